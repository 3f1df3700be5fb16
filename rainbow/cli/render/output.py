"""Printing: results on stdout (one JSON document with ``--json``), messages for people on stderr.

Tables have colour on a terminal and are plain aligned text elsewhere. Output that cannot be written (a closed stdout, a
full disk) never ends a command in the middle of its work: `failure` keeps the reason, and `rainbow.cli.exits` reports
it at the end.
"""

from __future__ import annotations

import json
import os
import sys
import time
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from datetime import datetime
from functools import partial
from typing import IO, Any

from rainbow.logs import printable

#: Was ``--json`` given? Then an error is a JSON document too (see `exits`).
as_json: ContextVar[bool] = ContextVar("as_json", default=False)
#: Why stdout could not be written, if it could not.
failure: ContextVar[str | None] = ContextVar("failure", default=None)
#: Was what matters of it printed on stderr?
rescued: ContextVar[bool] = ContextVar("rescued", default=False)

#: Control characters of text that is printed: of what others wrote, nothing else reaches a terminal.
_KEPT = "\n\t"
#: The widest that text chosen by others (`narrow` of `table`) may be, in columns of the terminal.
_WIDEST = 32


def document(value: Any) -> None:
    """Print the one JSON document of a command."""
    line(json_text(value, indent=2))
    as_json.set(False)  # an error after this has no document of its own


def json_line(value: Any) -> None:
    """Print a JSON document on one line, for commands that print several."""
    line(json_text(value))


def json_text(value: Any, indent: int | None = None) -> str:
    """Return `value` as JSON, with escapes where stdout cannot encode all characters."""
    plain = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "") != "utf8"
    return json.dumps(value, indent=indent, ensure_ascii=plain, default=str)


def line(text: str) -> None:
    """Print a line of the result."""
    text_out(f"{printable(text, _KEPT)}\n")


def _drawn(text: str) -> None:
    """Print a line that has colours of ours, and no control characters of others."""
    text_out(f"{text}\n")


def result(text: str) -> None:
    """Print what names something that was done (the id of a job submitted): on stderr where stdout cannot be written.

    The command then keeps its exit code: who saw a failure would do it again.
    """
    line(text)
    if failure.get() is not None:
        note(text)
        rescued.set(True)


def text_out(text: str) -> None:
    """Print a part of the result as it is, in the encoding of stdout."""
    stream = sys.stdout
    if stream is None:
        _lost("it is closed")
        return
    _write(stream, partial(stream.write, _encodable(text)))


def _encodable(text: str) -> str:
    """Return `text` with escapes for characters that stdout cannot encode."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.encode(encoding, "backslashreplace").decode(encoding)
    return text


def raw(data: bytes, stream: IO[str] | None = None) -> None:
    """Write `data`, byte for byte, to stdout (or to `stream`)."""
    if not data:
        return
    target = stream or sys.stdout
    if target is None:
        _lost("it is closed")
        return
    buffer = getattr(target, "buffer", None)
    # Text streams without a buffer stand in for stdout in notebooks and tests.
    write = partial(target.write, data.decode("utf-8", "replace")) if buffer is None else partial(buffer.write, data)
    _write(target, write)


def note(text: str) -> None:
    """Print a line for people on stderr. Nothing happens where stderr is closed or full."""
    stream = sys.stderr
    if stream is None:
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        stream.write(printable(text, _KEPT).encode(encoding, "backslashreplace").decode(encoding) + "\n")
        stream.flush()
    except BrokenPipeError:
        raise
    except (OSError, ValueError):
        return


def _write(stream: IO[str], write: Any) -> None:
    if failure.get() is not None and stream is sys.stdout:
        return
    try:
        write()
        stream.flush()
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as exc:
        if stream is sys.stdout:
            _lost(getattr(exc, "strerror", None) or "it is closed")
            drop()


def _lost(why: str) -> None:
    failure.set(failure.get() or why)


def drop() -> None:
    """Send what is still buffered nowhere: without this, Python complains when it ends."""
    with suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, sys.stdout.fileno())
        finally:
            os.close(null)


# -- tables ----------------------------------------------------------------------------------------------------


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    empty: str,
    styled: Collection[str] = ("state", "status"),
    narrow: Collection[str] = (),
) -> None:
    """Print `rows` under their `columns`; None is shown as ``-``. A terminal does not get columns without any value.

    Args:
        empty: printed on stderr when there are no rows.
        styled: columns whose values have colour on a terminal.
        narrow: columns whose values are cut when they are long.
    """
    if not rows:
        note(empty)
        return
    cells = [[_cell(cell, narrow=column in narrow) for column, cell in zip(columns, row, strict=True)] for row in rows]
    shown = list(range(len(columns)))
    on_terminal = bool(sys.stdout and sys.stdout.isatty())
    if on_terminal:
        shown = [i for i in shown if i == 0 or any(row[i] != "-" for row in cells)]
    widths = [max(width(columns[i]), *(width(row[i]) for row in cells)) for i in range(len(columns))]
    colour = on_terminal and colourful()

    def text(row: Sequence[str], style: Any) -> str:
        parts = []
        for i in shown:
            padding = "" if i == shown[-1] else " " * (widths[i] - width(row[i]) + 2)
            parts.append(style(i, row[i]) + padding)
        return "".join(parts).rstrip()

    heads = [column.upper() for column in columns]
    _drawn(text(heads, lambda _, cell: f"\033[1m{cell}\033[0m" if colour else cell))
    for row in cells:
        _drawn(text(row, lambda i, cell: _coloured(cell) if colour and columns[i] in styled else cell))


def fields(values: Mapping[str, Any]) -> None:
    """Print one thing, a field a line; fields that are None are left out."""
    shown = {name: value for name, value in values.items() if value is not None}
    longest = max((len(name) for name in shown), default=0)
    for name, value in shown.items():
        value = str(value).lower() if isinstance(value, bool) else value
        line(f"{name.ljust(longest)}  {_one_line(str(value))}")


def colourful() -> bool:
    """Whether the terminal takes colour: not with `NO_COLOR` set (no-color.org), nor on a dumb one."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") not in ("", "dumb")


def width(text: str) -> int:
    """Return how many columns of a terminal `text` takes: 2 for a wide character, 0 for a combining one."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in ("W", "F") else 1 for c in text
    )


def stamp(seconds: float | None) -> str | None:
    """Return a time as local ISO 8601 to the second, with its zone; None for 0 and None."""
    if not seconds:
        return None
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")


def age(seconds: float | None) -> str | None:
    """Return how long ago a time was: ``12s``, ``5m``, ``3h``, ``2d``."""
    return span(max(0.0, time.time() - seconds)) if seconds else None


def span(seconds: float) -> str:
    """Return a length of time, rounded: ``12s``, ``5m``, ``3h``, ``2d``."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.0f}s"


def listing(values: Mapping[str, Any]) -> str | None:
    """Return ``a=1 b=2``; None for nothing."""
    return " ".join(f"{key}={_value(value)}" for key, value in values.items()) or None


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _one_line(text: str) -> str:
    """Return `text` without control characters: others wrote it, and it must not move the reader's cursor."""
    return "".join(c if c.isprintable() else " " for c in text)


def _cell(value: Any, *, narrow: bool) -> str:
    text = "-" if value is None else _encodable(_one_line(str(value)))
    if not narrow or width(text) <= _WIDEST:
        return text
    kept, taken = "", 1
    for character in text:
        taken += width(character)
        if taken > _WIDEST:
            break
        kept += character
    return kept + _encodable("…")


def _coloured(cell: str) -> str:
    code = _COLOURS.get(cell)
    return f"\033[{code}m{cell}\033[0m" if code else cell


_COLOURS = {
    **dict.fromkeys(("completed", "alive", "ok"), 32),
    "running": 36,
    **dict.fromkeys(("failed", "lost", "silent", "problem"), 31),
    **dict.fromkeys(("no-match", "unsatisfiable", "cancelled", "drained", "closed", "throttled"), 33),
}
