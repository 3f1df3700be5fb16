"""The command that brings home the files that a job left."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rainbow.cli.jobids import resolve
from rainbow.cli.options import Config, JobId, Json, Token
from rainbow.cli.render import output
from rainbow.cli.session import client


def fetch(
    job: JobId,
    into: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Where to put them.", show_default=".")] = Path(),
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
) -> None:
    """Bring home what a job left (`rainbow submit --stage-out`), and remove it from the place where it lay.

    The paths are printed. Those of an array are in a folder for each index.

    \b
    Example:
      rainbow fetch @- results
    """
    with client(config, token) as rainbow:
        paths = rainbow.fetch(resolve(rainbow, [job])[0], into)
    if as_json:
        output.document({"paths": paths})
    else:
        for path in paths:
            output.line(path)
