"""`rainbow timeline`: when jobs waited and ran, cluster by cluster."""

from __future__ import annotations

import dataclasses
import shutil
import time
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from rainbow.cli.options import Config, Json, Limit, Token
from rainbow.cli.render import output
from rainbow.cli.session import client


def timeline(
    since: Annotated[
        str, typer.Option("--since", metavar="WHEN", help="From when: 2h, 3d, or a date and time.")
    ] = "1h",
    cluster: Annotated[str | None, typer.Option("--cluster", "-C", metavar="NAME", help="Only this cluster.")] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write it as a page that needs nothing beside it.")
    ] = None,
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    timeout: Limit = 30.0,
) -> None:
    """Draw when jobs waited (dots) and ran (blocks), a group of rows for each cluster.

    You see the jobs of your tokens' subjects; with an administrator's token, all: the newest 500 that ran in this time.

    \b
    Examples:
      rainbow timeline --since 30m
      rainbow timeline --since 1d --html out.html
    """
    from rainbow.cli import joblist
    from rainbow.cli.files import write_picture
    from rainbow.pictures import timeline as pictures

    # A job that ran in this time may have been submitted long before it.
    wanted = joblist.choice(None, [cluster] if cluster else None, None, None, None)
    begin, now = joblist.moment_ago(since), time.time()
    with client(config, token, timeout) as rainbow:
        newest = [job for _, job in islice(wanted.walk(rainbow), joblist.MOST)]
    ran = [job for job in newest if pictures.ran(job, begin, now)]
    lanes = pictures.lanes(ran, begin, now)
    if html is not None:
        write_picture(html, pictures.page(lanes, begin, now))
        output.note(f"{html} has the timeline of {sum(len(lane.bars) for lane in lanes)} jobs")
    elif as_json:
        output.document({"since": begin, "until": now, "lanes": [dataclasses.asdict(lane) for lane in lanes]})
    else:
        output.line(f"{output.stamp(begin)} to {output.stamp(now)}")
        for line in pictures.lines(lanes, max(20, shutil.get_terminal_size().columns - 2)) or [
            "no job ran in this time"
        ]:
            output.line(line)
