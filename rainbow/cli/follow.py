"""Commands that stay until something happens: watch and wait."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from rainbow.cli import output, records
from rainbow.cli.options import Config, JobIds, Json, SomeJobIds, Token, WaitLimit
from rainbow.cli.session import client

if TYPE_CHECKING:
    from rainbow.models.job import JobRecord


def watch(
    ids: SomeJobIds = None,
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    timeout: WaitLimit = None,
) -> None:
    """Follow jobs, a line each time one changes, until all have ended.

    Without an id: those of your newest 100 jobs that have not ended. With --json, every line is a JSON document.

    \b
    Example:
      rainbow watch 6f1c1f7e-3f0e-4c56-9a53-2f1f0f6c8a11
    """
    with client(config, token) as rainbow:
        chosen = ids or [record.id for record in rainbow.jobs() if not record.terminal]
        if not chosen:
            output.note("no jobs to follow: all have ended")
            return
        for record in rainbow.events(chosen, timeout=timeout):
            typer.echo(json.dumps(records.plain(record), ensure_ascii=False) if as_json else records.line(record))


def wait(
    ids: JobIds,
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    timeout: WaitLimit = None,
) -> None:
    """Wait until all these jobs have ended. Exit 0 if all completed, 1 if one did not, 124 when time is up.

    \b
    Example:
      rainbow wait $(rainbow submit hostname) --timeout 60
    """
    with client(config, token) as rainbow:
        ended = rainbow.wait(list(dict.fromkeys(ids)), timeout)
    if as_json:
        output.document({"jobs": [records.plain(record) for record in ended]})
    else:
        for record in ended:
            output.line(records.line(record))
    raise typer.Exit(success(ended))


def success(ended: Sequence[JobRecord]) -> int:
    """0 when all jobs completed, else 1."""
    return 0 if all(record.state == "completed" for record in ended) else 1
