"""Finds the directives of a script: which dialect, which words, on which line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from rainbow.errors import InvalidInput

Dialect = Literal["flux", "slurm", "pbs", "lsf"]
DIALECTS: tuple[Dialect, ...] = ("flux", "slurm", "pbs", "lsf")

_FLUX = re.compile(r"^([^\w]*)((?:flux|FLUX):)(.*)$")
_COMMENTS: dict[Dialect, re.Pattern[str]] = {
    "slurm": re.compile(r"^#SBATCH(?=\s|$)(.*)$"),
    "pbs": re.compile(r"^#PBS(?=\s|$)(.*)$"),
    "lsf": re.compile(r"^#BSUB(?=\s|$)(.*)$"),
}
_TRIPLES = ('"""', "'''")
_TRIPLE = re.compile(r"(\"\"\"|''')(.*)\1")
_OPEN_TRIPLE = re.compile(r"(\"\"\"|''').")


@dataclass(frozen=True, slots=True)
class Directive:
    """One directive: its words, quotes resolved and comments removed, and the line it starts on (from 1)."""

    line: int
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Directives:
    """The directives of a script. `late` are lines after the first command, which its scheduler ignores."""

    dialect: Dialect | None
    found: tuple[Directive, ...] = ()
    late: tuple[int, ...] = field(default=())


def find(text: str, wanted: Dialect | None = None) -> Directives:
    """Find the directives of `text` in the dialect that is `wanted`, or in the only one that it uses.

    Raises:
        InvalidInput: directives of two dialects and none is `wanted`, or a directive that cannot be read.
    """
    lines = text.splitlines()
    used = [d for d in DIALECTS if any((_FLUX if d == "flux" else _COMMENTS[d]).match(line) for line in lines)]
    if wanted is None and len(used) > 1:
        raise InvalidInput(f"the script has directives of {' and '.join(used)}: choose with --directives {used[0]}")
    dialect = wanted if wanted is not None else used[0] if used else None
    if dialect is None:
        return Directives(None)
    if dialect == "flux":
        return Directives("flux", tuple(d for d in _flux(lines) if d.words))
    return _comments(lines, dialect)


# -- Slurm, PBS, LSF: comment lines before the first command -----------------------------------------


def _comments(lines: list[str], dialect: Dialect) -> Directives:
    pattern = _COMMENTS[dialect]
    found: list[Directive] = []
    late: list[int] = []
    started = False
    for number, line in enumerate(lines, 1):
        match = pattern.match(line)
        if match is None:
            started = started or bool(line.strip() and not line.lstrip().startswith("#"))
        elif started:
            late.append(number)
        else:
            found.append(Directive(number, _words(match[1], number)))
    return Directives(dialect, tuple(d for d in found if d.words), tuple(late))


def _words(text: str, line: int) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text, comments=True))
    except ValueError:
        raise InvalidInput(f"line {line}: the quotes of {text.strip()!r} are not closed") from None


# -- Flux: RFC 36 --------------------------------------------------------------------------------------


def _flux(lines: list[str]) -> Iterator[Directive]:
    """RFC 36: one sentinel for all lines, no directive after the first command, values in triple quotes over
    several lines."""
    sentinel = prefix = None
    opened: _Quoted | None = None
    ended_at = 0
    for number, line in enumerate(lines, 1):
        match = _FLUX.match(line)
        if match is None:
            if opened is not None:
                raise opened.unclosed(number)
            if prefix is not None and not ended_at and line.strip() and not line.startswith(prefix.rstrip()):
                ended_at = number - 1
            continue
        if ended_at:
            raise InvalidInput(f"line {number}: a directive after the first command (line {ended_at + 1}): move it up")
        if sentinel is None:
            prefix, sentinel = match[1], match[1] + match[2]
        elif match[1] + match[2] != sentinel:
            raise InvalidInput(
                f"line {number}: the sentinel changes from {sentinel!r} to {match[1] + match[2]!r}: write all"
                f" directives with the same one, and a comment as {sentinel + ' #'!r}"
            )
        value = match[3]
        if opened is not None:
            if value.endswith(opened.quote):
                yield Directive(opened.line, _lexed(opened.whole(value[:-3]), opened.line))
                opened = None
            else:
                opened.lines.append(value)
            continue
        if any(count > 0 and count % 2 == 0 for count in map(value.count, _TRIPLES)):
            value = _TRIPLE.sub(lambda found: shlex.quote(found[2]), value)
        elif value.endswith(_TRIPLES):
            opened = _Quoted(number, value)
            continue
        elif _OPEN_TRIPLE.search(value):
            raise InvalidInput(f"line {number}: a triple quote is not closed: {value.strip()}")
        yield Directive(number, _lexed(value, number))
    if opened is not None:
        raise opened.unclosed(len(lines))


class _Quoted:
    """A value in triple quotes whose end is on a later line."""

    def __init__(self, line: int, value: str) -> None:
        self.line = line
        self.quote = value[-3:]
        self.head = value[:-3]
        self.indent = value[: len(value) - len(value.lstrip())]
        self.lines: list[str] = []

    def whole(self, last: str) -> str:
        text = "\n".join(line.removeprefix(self.indent) for line in [*self.lines, last])
        return self.head + shlex.quote(text)

    def unclosed(self, line: int) -> InvalidInput:
        return InvalidInput(f"line {line}: the triple quote of line {self.line} is not closed")


def _lexed(value: str, line: int) -> tuple[str, ...]:
    lexer = shlex.shlex(value, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.escapedquotes = "\"'"
    try:
        words = tuple(lexer)
    except ValueError:
        raise InvalidInput(f"line {line}: the quotes of {value.strip()!r} are not closed") from None
    if words and not words[0].startswith("-"):
        raise InvalidInput(f"line {line}: {words[0]!r} is no directive: options start with -")
    return words
