"""The command that watches everything: a table that is drawn anew every few seconds."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rainbow.cli.options import Config, Json, Limit, Token
from rainbow.cli.render import output
from rainbow.cli.render.keys import pressed
from rainbow.cli.session import client

if TYPE_CHECKING:
    from rich.console import RenderableType

#: Characters of a bar.
_BAR = 10
#: Narrower terminals get no bars; still narrower ones these columns only.
_WIDE, _NARROW = 110, 70
_NEEDED = ("cluster", "status", "cores", "queued")
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
    """Watch clusters, queues and rates; q or Ctrl-C ends it.

    Free and whole resources of each cluster, with what is in use as bars; jobs in its queue at the broker (`queued`),
    waiting and running there; messages in rainbow's own queues, where the broker lets you look; jobs submitted,
    assigned, started and ended in the last minute. Keys: s sorts by the next column, p pauses, space looks at once.
    Where the output is no terminal, one look after another is printed; with --json each is a document on a line.

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

            view = _View()
            with pressed() as key, Live(_drawn(seen, view), screen=True, auto_refresh=False) as live:
                due = time.monotonic() + interval
                while not view.press(key(max(0.0, due - time.monotonic()))):
                    if view.refresh or time.monotonic() >= due:
                        seen = seen if view.paused else overview.look(rainbow)
                        due = time.monotonic() + interval
                    live.update(_drawn(seen, view), refresh=True)
        except KeyboardInterrupt:
            return


def _print(seen: Mapping[str, Any]) -> None:
    output.table(_COLUMNS, [_row(c) for c in seen["clusters"]], empty="no clusters are registered")
    output.line("")
    output.line(_queues(seen))
    output.line(_rates(seen))


class _View:
    """What the keys have changed."""

    _SORTS = ("queued", "pending", "name", "running", "free")

    def __init__(self) -> None:
        self.sort = self._SORTS[0]
        self.paused = self.refresh = False

    def press(self, key: str) -> bool:
        """Obey a key (empty: none); whether that is the end."""
        self.refresh = key == " "
        if key == "p":
            self.paused = not self.paused
        elif key == "s":
            self.sort = self._SORTS[(self._SORTS.index(self.sort) + 1) % len(self._SORTS)]
        return key in ("q", "\x04")

    def order(self, cluster: Mapping[str, Any]) -> tuple[float, str]:
        """Most first, and names as they are."""
        key = {"free": "cores_free"}.get(self.sort, self.sort)
        return (0.0 if key == "name" else -(cluster[key] or 0.0)), cluster["name"]


def _drawn(seen: Mapping[str, Any], view: _View) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    width = shutil.get_terminal_size().columns
    shown = [c for c in _COLUMNS if width >= _NARROW or c in _NEEDED]
    table = Table(*(c.upper() for c in shown), box=None, header_style="bold")
    for cluster in sorted(seen["clusters"], key=view.order):
        style = {"drained": "yellow", "closed": "yellow", "throttled": "yellow", "silent": "red"}.get(
            cluster["status"], ""
        )
        cells = list(_row(cluster))
        for at, kind in enumerate(("nodes", "cores", "gpus") if width >= _WIDE else (), 2):
            cells[at] = _bar(cluster[f"{kind}_free"], cluster[kind], cells[at])
        found = dict(zip(_COLUMNS, cells, strict=True))
        table.add_row(*("-" if found[column] is None else found[column] for column in shown), style=style)
    clock = time.strftime("%H:%M:%S", time.localtime(seen["at"]))
    title = f"rainbow  {clock}{'  paused' if view.paused else ''}"
    keys = f"q quit   p {'go on' if view.paused else 'pause'}   s sort (by {view.sort})   space look now"
    lines = (Text(title, style="bold"), Text(_rates(seen)), Text(_queues(seen)), Text(""))
    return Group(*lines, table, Text(""), Text(keys, style="dim"))


def _row(c: Mapping[str, Any]) -> tuple[str | None, ...]:
    return (
        c["name"],
        c["status"],
        *(_of(c[f"{kind}_free"], c[kind]) for kind in ("nodes", "cores", "gpus")),
        *(None if c[key] is None else f"{c[key]:g}" for key in ("queued", "pending", "running")),
        output.age(c["heard_at"]),
    )


def _bar(free: float | None, whole: float, text: str | None) -> str | None:
    """What is in use, as a bar before the numbers."""
    if text is None or free is None:
        return text
    used = round(_BAR * (1 - min(1.0, max(0.0, free / whole))))
    return f"{'█' * used}{'░' * (_BAR - used)} {text}"


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
