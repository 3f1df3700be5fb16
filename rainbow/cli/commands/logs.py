"""The command that shows what a job wrote."""

from __future__ import annotations

from typing import Annotated

import typer

from rainbow.cli.jobids import resolve
from rainbow.cli.options import Config, JobId, Json, Token, WaitLimit
from rainbow.cli.render import output
from rainbow.cli.session import client


def logs(
    job: JobId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    timeout: WaitLimit = None,
) -> None:
    """Show what a job wrote, byte for byte: its standard output on stdout, its standard error on stderr.

    It is fetched from the job's cluster, which keeps a bounded part of it for a while; where that cannot be asked, the
    end of the output that was recorded is shown. Only who submitted the job sees it, and an administrator. With --json
    each piece is a JSON document on a line.

    \b
    Example:
      rainbow logs -f 6f1c1f7e-3f0e-4c56-9a53-2f1f0f6c8a11
    """
    from rainbow.cli.attach import show

    with client(config, token) as rainbow:
        for piece in rainbow.logs(resolve(rainbow, [job])[0], follow=follow, timeout=timeout):
            output.json_line(piece.model_dump(exclude_none=True)) if as_json else show(piece)
