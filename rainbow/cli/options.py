"""Options that several commands have, declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rainbow.cli import completion
from rainbow.cli.jobids import check
from rainbow.cli.render.output import as_json


def _config(ctx: typer.Context, value: Path | None) -> Path | None:
    """``rainbow --config F jobs`` and ``rainbow jobs --config F`` are the same."""
    return value or ctx.find_root().params.get("config")


def _json(value: bool) -> bool:
    as_json.set(value)
    return value


def secret_text(value: str | None) -> str | None:
    """``@FILE`` stands for what is in the file, so that a secret need not be in the list of processes."""
    if value is None:
        return None
    from rainbow.security import bearer  # brings pydantic, which help texts do without

    return bearer.given(value)


def _job_ids(value: str | list[str] | None) -> str | list[str] | None:
    for text in [value] if isinstance(value, str) else value or ():
        check(text)
    return value


Config = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="Settings file (else RAINBOW_CONFIG, ./, ~/.config/rainbow).", callback=_config
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.", callback=_json)]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN|@FILE",
        help="Use this token (else RAINBOW_TOKEN, the settings).",
        callback=secret_text,
    ),
]
Limit = Annotated[float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="How long to wait for an answer.")]
WaitLimit = Annotated[
    float | None, typer.Option("--timeout", min=0.0, metavar="SECONDS", help="Give up after this long (exit 124).")
]
Cluster = Annotated[
    str,
    typer.Argument(
        metavar="CLUSTER", help="Name of a cluster.", show_default=False, autocompletion=completion.clusters
    ),
]
Clusters = Annotated[
    list[str] | None,
    typer.Option(
        "--cluster",
        "-C",
        metavar="NAME",
        help="Only this cluster or @group; may be repeated.",
        autocompletion=completion.clusters_and_groups,
    ),
]
_AN_ID = "UUID of a job, its first 4 digits or more, @- for your last one, or %NAME; with [7] element 7 of an array"
JobId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help=f"{_AN_ID}.", show_default=False, callback=_job_ids, autocompletion=completion.jobs
    ),
]
JobIds = Annotated[
    list[str],
    typer.Argument(
        metavar="ID...",
        help=f"{_AN_ID}; - reads ids from standard input.",
        show_default=False,
        callback=_job_ids,
        autocompletion=completion.active_jobs,
    ),
]
SomeJobIds = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[ID...]",
        help=f"{_AN_ID}; - reads ids from standard input.",
        show_default=False,
        callback=_job_ids,
        autocompletion=completion.active_jobs,
    ),
]
Nodes = Annotated[
    Path | None,
    typer.Option("--nodes", metavar="FILE", help="Resource graph in JSON Graph Format (JSON or YAML, also .gz, .xz)."),
]
Save = Annotated[bool, typer.Option("--save", help="Write what comes back into the settings file (mode 0600).")]
