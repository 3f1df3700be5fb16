"""The command that shows what a job wrote."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from rainbow.cli import output
from rainbow.cli.options import Config, JobId, Json, Token, WaitLimit
from rainbow.cli.session import client

if TYPE_CHECKING:
    from rainbow.models.asking import Output


def logs(
    job: JobId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    timeout: WaitLimit = None,
) -> None:
    """Show what a job wrote: its standard output on stdout, its standard error on stderr.

    It is fetched from the job's cluster, which keeps a bounded part of it for a while; where that cannot be asked, the
    end of the output that was recorded is shown. Only who submitted the job sees it, and an administrator. With --json
    each piece is a JSON document on a line.

    \b
    Example:
      rainbow logs -f 6f1c1f7e-3f0e-4c56-9a53-2f1f0f6c8a11
    """
    with client(config, token) as rainbow:
        for piece in rainbow.logs(job, follow=follow, timeout=timeout):
            if as_json:
                typer.echo(json.dumps(piece.model_dump(exclude_none=True), ensure_ascii=False))
            else:
                _show(piece)


def _show(piece: Output) -> None:
    sys.stdout.write(piece.stdout)
    sys.stdout.flush()
    sys.stderr.write(piece.stderr)
    sys.stderr.flush()
    if piece.source != "job" and piece.detail:
        kept = "this is the end of its output as recorded" if piece.stdout else "nothing was recorded"
        output.note(f"rainbow: {piece.detail}; {kept}")
