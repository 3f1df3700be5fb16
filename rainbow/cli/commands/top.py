"""The command that watches everything: a table that is drawn anew every few seconds."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rainbow.cli.options import Config, Json, Limit, Token
from rainbow.cli.render import output
from rainbow.cli.session import client

if TYPE_CHECKING:
    from rich.console import RenderableType

_COLUMNS = ("cluster", "status", "nodes", "cores", "gpus", "queued", "pending", "running", "heard")


def top(
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=0.2, metavar="SECONDS", help="Seconds between two looks.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look once, and end.")] = False,
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    timeout: Limit = 30.0,
) -> None:
    """Watch clusters, queues and rates; Ctrl-C ends it.

    Free and whole resources of each cluster, jobs in its queue at the broker (`queued`), waiting and running there;
    messages in rainbow's own queues, where the broker lets you look; jobs submitted, assigned, started and ended in the
    last minute. Where the output is no terminal, one look after another is printed; with --json each is a document on a
    line.

    \b
    Example:
      rainbow top --once
    """
    from rainbow.client import overview

    with client(config, token, timeout) as rainbow:
        seen = overview.look(rainbow)
        if once:
            output.document(seen) if as_json else _print(seen)
            return
        try:
            if as_json or not sys.stdout.isatty():
                while True:
                    typer.echo(json.dumps(seen)) if as_json else _print(seen)
                    time.sleep(interval)
                    seen = overview.look(rainbow)
            from rich.live import Live

            with Live(_drawn(seen), screen=True, auto_refresh=False) as live:
                while True:
                    time.sleep(interval)
                    seen = overview.look(rainbow)
                    live.update(_drawn(seen), refresh=True)
        except KeyboardInterrupt:
            return


def _print(seen: Mapping[str, Any]) -> None:
    output.table(_COLUMNS, [_row(c) for c in seen["clusters"]], empty="no clusters are registered")
    output.line("")
    output.line(_queues(seen))
    output.line(_rates(seen))


def _drawn(seen: Mapping[str, Any]) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(*(c.upper() for c in _COLUMNS), box=None, header_style="bold")
    for cluster in seen["clusters"]:
        style = {"drained": "yellow", "throttled": "yellow", "silent": "red"}.get(cluster["status"], "")
        table.add_row(*("-" if cell is None else cell for cell in _row(cluster)), style=style)
    clock = time.strftime("%H:%M:%S", time.localtime(seen["at"]))
    return Group(Text(f"rainbow  {clock}", style="bold"), Text(_rates(seen)), Text(_queues(seen)), Text(""), table)


def _row(c: Mapping[str, Any]) -> tuple[str | None, ...]:
    return (
        c["name"],
        c["status"],
        *(_of(c[f"{kind}_free"], c[kind]) for kind in ("nodes", "cores", "gpus")),
        *(None if c[key] is None else f"{c[key]:g}" for key in ("queued", "pending", "running")),
        output.age(c["heard_at"]),
    )


def _of(free: float | None, whole: float) -> str | None:
    """Free of all: ``3/16``."""
    if not whole:
        return None
    return f"{'-' if free is None else f'{free:g}'}/{whole:g}"


def _queues(seen: Mapping[str, Any]) -> str:
    shown = (f"{name.removeprefix('rainbow.')}={'-' if n is None else n}" for name, n in seen["queues"].items())
    return f"queues  {' '.join(shown)}"


def _rates(seen: Mapping[str, Any]) -> str:
    rates = dict(seen["rates"])
    more = "at least " if rates.pop("at_least") else ""
    return f"in the last minute  {more}{' '.join(f'{name}={count}' for name, count in rates.items())}"
