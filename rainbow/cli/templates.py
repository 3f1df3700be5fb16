"""Templates of `rainbow bulksubmit`: one command, and lists of inputs that are filled in, as with ``flux bulksubmit``.

``::: A B`` begins a list of inputs, ``:::: FILE`` one of the lines of a file. Of several lists each combination is a
job; ``:::+`` and ``::::+`` go along with the list before. Without any list the lines of standard input are the inputs.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from rainbow.errors import InvalidInput

_SIGNS = (":::", ":::+", "::::", "::::+")
#: ``{}`` and ``{0}`` are inputs, also as base name, folder or without suffix; the others count jobs.
_PLACE = re.compile(r"\{(\d*|seq1?|cc)(\.//|\./%|\./|\.%)?\}")


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is filled into one job: its inputs, its number from 0, and its number among copies."""

    values: tuple[str, ...]
    number: int
    copy: int | None = None

    def fill(self, text: str) -> str:
        """Return `text` with its places filled in. Raises InvalidInput for one that no input is there for."""
        return _PLACE.sub(self._value, text)

    def _value(self, place: re.Match[str]) -> str:
        what, how = place[1], place[2]
        if what in ("seq", "seq1"):
            value = str(self.number + (what == "seq1"))
        elif what == "cc":
            if self.copy is None:
                raise InvalidInput("{cc} needs --cc")
            value = str(self.copy)
        else:
            at = int(what or 0)
            if at >= len(self.values):
                raise InvalidInput(f"{place[0]}: there is no such input ({len(self.values)} of them, counted from 0)")
            value = self.values[at]
        path = PurePath(value)
        if how == ".//":
            return str(path.parent)
        if how in ("./", "./%"):
            value = path.name
        return value.removesuffix(path.suffix) if how in (".%", "./%") and path.suffix else value


def parted(words: Sequence[str]) -> tuple[list[str], list[list[list[str]]]]:
    """Return the command, and the lists of inputs: those of one group go along with each other.

    Raises:
        InvalidInput: A file cannot be read, or a ``+`` has no list before it.
    """
    at = next((i for i, word in enumerate(words) if word in _SIGNS), len(words))
    command, rest = list(words[:at]), list(words[at:])
    if not rest:
        return command, [[_lines("-")]]
    groups: list[list[list[str]]] = []
    while rest:
        sign = rest.pop(0)
        end = next((i for i, word in enumerate(rest) if word in _SIGNS), len(rest))
        given, rest = rest[:end], rest[end:]
        values = [line for name in given for line in _lines(name)] if sign.startswith("::::") else given
        if not sign.endswith("+"):
            groups.append([values])
        elif not groups:
            raise InvalidInput(f"{sign} goes along with a list before it, and there is none")
        else:
            groups[-1].append(values)
    return command, groups


def combined(groups: Sequence[Sequence[Sequence[str]]], copies: Sequence[int | None]) -> Iterator[Inputs]:
    """Give the inputs of each job, in order. Lists that go along with each other end with the shortest."""
    numbers = itertools.count()
    for parts in itertools.product(*(list(zip(*group, strict=False)) for group in groups)):
        values = tuple(itertools.chain.from_iterable(parts))
        for copy in copies:
            yield Inputs(values, next(numbers), copy)


def _lines(name: str) -> list[str]:
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text()
    except (OSError, UnicodeDecodeError) as exc:
        raise InvalidInput(f"{name} cannot be read: {getattr(exc, 'strerror', None) or 'it is not text'}") from None
    return [line for line in text.splitlines() if line.strip()]
