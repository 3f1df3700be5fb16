"""What is printed: results on stdout (one JSON document with ``--json``), words for people on stderr.

Tables have colour and rules on a terminal, and are plain aligned text elsewhere.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import typer

#: Was ``--json`` given? Then an error is a JSON document too (see `exits`).
as_json: ContextVar[bool] = ContextVar("as_json", default=False)


def document(value: Any) -> None:
    """The one JSON document of a command."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))
    as_json.set(False)  # an error after this has no document of its own


def line(text: str) -> None:
    """A line of the result."""
    typer.echo(text)


def note(text: str) -> None:
    """A line for people: not part of the result."""
    typer.echo(text, err=True)


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, empty: str) -> None:
    """Rows under their columns; `empty` is said (to people) when there are none. None is shown as ``-``."""
    if not rows:
        note(empty)
        return
    cells = [["-" if cell is None else _one_line(str(cell)) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _rich_table(columns, cells)
        return
    widths = _widths(columns, cells)
    for row in ([column.upper() for column in columns], *cells):
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def fields(values: Mapping[str, Any]) -> None:
    """One thing, a field a line; fields that are None are left out."""
    shown = {name: value for name, value in values.items() if value is not None}
    width = max((len(name) for name in shown), default=0)
    for name, value in shown.items():
        typer.echo(f"{name.ljust(width)}  {_one_line(str(value))}")


def stamp(seconds: float | None) -> str | None:
    """A time as local ISO 8601 to the second; None for 0 and None."""
    if not seconds:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(seconds))


def age(seconds: float | None) -> str | None:
    """How long ago a time was: ``12s``, ``5m``, ``3h``, ``2d``."""
    if not seconds:
        return None
    passed = max(0.0, time.time() - seconds)
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if passed >= 2 * length:
            return f"{passed / length:.0f}{unit}"
    return f"{passed:.0f}s"


def listing(values: Mapping[str, Any]) -> str | None:
    """``a=1 b=2``; None for nothing."""
    return " ".join(f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in values.items()) or None


def _one_line(text: str) -> str:
    """Without control characters: what others wrote must not move the cursor of who reads it."""
    return "".join(c if c.isprintable() else " " for c in text)


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(column), *(len(row[i]) for row in rows)) for i, column in enumerate(columns)]


def _rich_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """In colour, without the columns that nobody fills. A line that is too long the terminal breaks: an id, say, is
    never cut, since it is what is typed next."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    filled = [i for i, _ in enumerate(columns) if i == 0 or any(row[i] != "-" for row in rows)]
    widths = _widths(columns, rows)

    def show(row: Sequence[str], style: str | None) -> None:
        line = Text()
        for i in filled:
            line.append(row[i], style if style is not None else _STYLES.get(row[i], ""))
            line.append("" if i == filled[-1] else " " * (widths[i] - len(row[i]) + 2))
        console.print(line, soft_wrap=True)

    show([column.upper() for column in columns], "bold")
    for row in rows:
        show(row, None)


_STYLES = {
    "completed": "green",
    "alive": "green",
    "ok": "green",
    "running": "cyan",
    "failed": "red",
    "lost": "red",
    "silent": "red",
    "problem": "red",
    "no-match": "yellow",
    "unsatisfiable": "yellow",
    "cancelled": "yellow",
    "drained": "yellow",
    "throttled": "yellow",
}
