"""Lists of host names kept as ranges (RFC 29): ``"node[0-9999],login1"`` is two entries, not 10,001.

Order is kept and names may repeat, because R (RFC 20) maps its node list one to one onto ranks.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from rainbow.errors import InvalidInput

MAX_HOSTS = 2**40
"""More names than this in one list is a mistake or an attack."""

MAX_PIECES = 200_000
"""More separate ranges and names than this likewise."""

MAX_NAME = 1024
"""Characters in the text of one name before and after its brackets."""

# An expression is split at commas outside brackets; at most one pair of brackets is allowed in each.
_EXPRESSION = re.compile(r"([!-+\--Z\\^-~]*)(?:\[([0-9,-]*)\]([!-+\--Z\\^-~]*))?", re.ASCII)
_ID = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", re.ASCII)
_TRAILING = re.compile(r"(.*?)([0-9]{1,18})", re.ASCII)
_DIGITS = re.compile(r"[0-9]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class HostRange:
    """The names ``prefix + number + suffix`` for ``start <= number < stop``.

    Numbers are padded with zeros to `width`. A name without a number has ``start == stop == -1``.
    """

    prefix: str
    start: int
    stop: int
    width: int = 1
    suffix: str = ""

    def __len__(self) -> int:
        return self.stop - self.start if self.start >= 0 else 1

    def name(self, offset: int) -> str:
        if self.start < 0:
            return self.prefix
        return f"{self.prefix}{self.start + offset:0{self.width}d}{self.suffix}"

    def __str__(self) -> str:
        if self.start < 0 or self.stop - self.start == 1:
            return self.name(0)
        first = f"{self.start:0{self.width}d}"
        return f"{self.prefix}[{first}-{self.stop - 1:0{self.width}d}]{self.suffix}"


class Hostlist:
    """An immutable, ordered list of host names with cheap look-up both ways.

    >>> hosts = Hostlist.parse("n[001-003],fat1")
    >>> len(hosts), hosts[1], hosts.position("fat1"), "n004" in hosts
    (4, 'n002', 3, False)
    """

    __slots__ = ("_before", "_index", "pieces")

    pieces: tuple[HostRange, ...]

    def __init__(self, pieces: Iterable[HostRange] = ()) -> None:
        """Take pieces in order; neighbours that continue each other are joined."""
        joined: list[HostRange] = []
        first: HostRange | None = None  # of a run that goes on; `stop` is where it ends by now
        stop = 0
        for piece in pieces:
            if first is not None and _continues(first, stop, piece):
                stop = piece.stop
                continue
            if first is not None:
                joined.append(_until(first, stop))
            first, stop = piece, piece.stop
        if first is not None:
            joined.append(_until(first, stop))
        self.pieces = tuple(joined)
        self._before = list(accumulate(map(len, joined), initial=0))
        self._index: dict[tuple[str, str | None], _Group] | None = None
        if self._before[-1] > MAX_HOSTS:
            raise InvalidInput(f"hostlist: {self._before[-1]} names; at most {MAX_HOSTS} are taken")

    @classmethod
    def parse(cls, text: str | Iterable[str]) -> Hostlist:
        """Read one hostlist text, or several that follow each other. Empty expressions add nothing.

        Raises:
            InvalidInput: not a hostlist by RFC 29 (blanks, several or unbalanced brackets, a falling range),
                or too large.
        """
        texts = (text,) if isinstance(text, str) else text
        pieces: list[HostRange] = []
        for one in texts:
            for expression in _expressions(one):
                _read(expression, pieces)
                if len(pieces) > MAX_PIECES:
                    raise InvalidInput(f"hostlist: more than {MAX_PIECES} separate names; write them as ranges")
        return cls(pieces)

    def __len__(self) -> int:
        return self._before[-1]

    def __bool__(self) -> bool:
        return bool(self.pieces)

    def __iter__(self) -> Iterator[str]:
        for piece in self.pieces:
            for offset in range(len(piece)):
                yield piece.name(offset)

    def __getitem__(self, position: int) -> str:
        """The name at `position` from 0. Raises IndexError beyond the end."""
        if not 0 <= position < len(self):
            raise IndexError(position)
        at = bisect_right(self._before, position) - 1
        return self.pieces[at].name(position - self._before[at])

    def positions(self, name: str) -> list[int]:
        """Every position of `name`, rising; empty when it is not in the list."""
        index = self._index
        if index is None:
            index = self._index = self._indexed()
        found: list[int] = []
        plain = index.get((name, None))
        if plain is not None:
            found += plain.positions
        # Which digits of a name are its number depends on the expression: try each run of digits in it.
        for run in _DIGITS.finditer(name):
            first, last = run.span()
            for start in range(first, last):
                for stop in range(start + 1, min(last, start + 18) + 1):
                    group = index.get((name[:start], name[stop:]))
                    if group is not None:
                        group.look_up(name[start:stop], found)
        found.sort()
        return found

    def position(self, name: str) -> int:
        """The first position of `name`. Raises KeyError when it is not in the list."""
        found = self.positions(name)
        if not found:
            raise KeyError(name)
        return found[0]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(self.positions(name))

    def _indexed(self) -> dict[tuple[str, str | None], _Group]:
        index: dict[tuple[str, str | None], _Group] = {}
        for piece, before in zip(self.pieces, self._before, strict=False):
            key = (piece.prefix, piece.suffix if piece.start >= 0 else None)
            index.setdefault(key, _Group()).add(piece, before)
        for group in index.values():
            group.close()
        return index

    def __eq__(self, other: object) -> bool:
        return self.pieces == other.pieces if isinstance(other, Hostlist) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.pieces)

    def __str__(self) -> str:
        return ",".join(map(str, self.pieces))

    def __repr__(self) -> str:
        shown = ",".join(map(str, self.pieces[:20]))
        return f"Hostlist({shown!r}{', ...' if len(self.pieces) > 20 else ''})"

    def __reduce__(self) -> tuple[type[Hostlist], tuple[tuple[HostRange, ...]]]:
        return Hostlist, (self.pieces,)


class _Group:
    """The ranges of one (prefix, suffix), ordered by first number, to find those that hold a number."""

    __slots__ = ("_reach", "_starts", "positions", "ranges")

    def __init__(self) -> None:
        self.positions: list[int] = []
        self.ranges: list[tuple[int, int, int, int]] = []

    def add(self, piece: HostRange, before: int) -> None:
        if piece.start < 0:
            self.positions.append(before)
        else:
            self.ranges.append((piece.start, piece.stop, piece.width, before))

    def close(self) -> None:
        self.ranges.sort()
        self._starts = [start for start, *_ in self.ranges]
        # How far the ranges up to each one reach: where that is too short, looking further left is no use.
        self._reach = list(accumulate((stop for _, stop, *_ in self.ranges), max))

    def look_up(self, digits: str, found: list[int]) -> None:
        number, length = int(digits), len(digits)
        padded = digits[0] == "0" and length > 1
        at = bisect_right(self._starts, number) - 1
        while at >= 0 and self._reach[at] > number:
            start, stop, width, before = self.ranges[at]
            if number < stop and (width == length if padded else width <= length):
                found.append(before + number - start)
            at -= 1


def _expressions(text: str) -> Iterator[str]:
    """Split at the commas that stand outside brackets."""
    if "[" not in text:
        yield from text.split(",")
        return
    start = depth = 0
    for at, char in enumerate(text):
        if char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
        elif char == "," and depth == 0:
            yield text[start:at]
            start = at + 1
    yield text[start:]


def _read(expression: str, pieces: list[HostRange]) -> None:
    """Append the pieces of one expression ``prefix[idlist]suffix``."""
    match = _EXPRESSION.fullmatch(expression)
    if match is None:
        raise InvalidInput(f"hostlist: {_shown(expression)} is no name such as node1 or node[0-3]")
    prefix, ids, suffix = match.groups()
    if len(prefix) + len(suffix or "") > MAX_NAME:
        raise InvalidInput(f"hostlist: a name has more than {MAX_NAME} characters: {_shown(expression)}")
    if ids is None:
        if prefix:
            pieces.append(single(prefix))
        return
    if ids.count(",") >= MAX_PIECES:
        raise InvalidInput(f"hostlist: more than {MAX_PIECES} separate names; write them as ranges")
    padding = 1
    for position, item in enumerate(ids.split(",")):
        one = _ID.fullmatch(item)
        if one is None:
            raise InvalidInput(f"hostlist: {_shown(item)} in {_shown(expression)} is no number or range such as 0-3")
        low = one[1]
        start = int(low)
        stop = start + 1 if one[2] is None else int(one[2]) + 1
        if stop <= start:
            raise InvalidInput(f"hostlist: the range {_shown(item)} falls; write the smaller number first")
        width = len(low) if low[0] == "0" else 1
        if position == 0:
            padding = width  # leading zeros of the first number hold for all that follow (RFC 29)
        pieces.append(HostRange(prefix, start, stop, max(width, padding), suffix))


def single(name: str) -> HostRange:
    """One name, also one that is no host name by RFC 29.

    A number at its end is kept as such, so that neighbours join into a range.
    """
    match = _TRAILING.fullmatch(name)
    if match is None:
        return HostRange(name, -1, -1)
    prefix, digits = match.groups()
    number = int(digits)
    return HostRange(prefix, number, number + 1, len(digits) if digits[0] == "0" else 1)


def _continues(first: HostRange, stop: int, right: HostRange) -> bool:
    """Whether `right` goes on where a range that begins as `first` does, and ends at `stop`, ends."""
    if stop != right.start or first.start < 0 or first.prefix != right.prefix or first.suffix != right.suffix:
        return False
    # n08, n09, n10: the last is written without a zero, yet it is what padding to two would give.
    return first.width == right.width or (first.width > right.width and len(str(right.start)) >= first.width)


def _until(first: HostRange, stop: int) -> HostRange:
    return first if stop == first.stop else HostRange(first.prefix, first.start, stop, first.width, first.suffix)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
