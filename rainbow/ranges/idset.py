"""Sets of non-negative integers kept as ranges (RFC 22), so that ``"0-99999999"`` costs what ``"0-1"`` does.

Ranks, core and gpu indices, and sets of allowed counts are all written this way.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate, islice

from rainbow.errors import InvalidInput

MAX_ID = 2**53
"""The largest id taken: whole numbers beyond it do not survive a trip through other people's JSON."""

MAX_RANGES = 200_000
"""More separate ranges than this in one text is a mistake or an attack."""

Range = tuple[int, int]
"""``(start, stop)``: half-open, as everywhere in Python."""

_ITEM = re.compile(r"(0|[1-9][0-9]{0,15})(?:-(0|[1-9][0-9]{0,15}))?", re.ASCII)


class IdSet:
    """An immutable, hashable set of non-negative integers: sorted, disjoint ``[start, stop)`` ranges.

    >>> ids = IdSet.parse("0-3,7,9-10")
    >>> len(ids), 7 in ids, str(ids | IdSet.parse("8"))
    (7, True, '0-3,7-10')
    """

    __slots__ = ("_before", "_starts", "ranges")

    ranges: tuple[Range, ...]

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        """Take ranges in any order; they may touch or overlap, and empty ones are dropped."""
        merged: list[Range] = []
        for start, stop in sorted(ranges):
            if start < 0 or stop > MAX_ID + 1:
                raise InvalidInput(f"idset: ids go from 0 to {MAX_ID}; {start}-{stop - 1} does not")
            if stop <= start:
                continue
            if merged and start <= merged[-1][1]:
                if stop > merged[-1][1]:
                    merged[-1] = (merged[-1][0], stop)
            else:
                merged.append((start, stop))
        self.ranges = tuple(merged)
        self._starts = [start for start, _ in merged]
        # How many ids come before each range; its last entry is the size of the whole set.
        self._before = list(accumulate((stop - start for start, stop in merged), initial=0))

    @classmethod
    def parse(cls, text: str) -> IdSet:
        """Read ``"0-3,7"`` or ``"[0-3,7]"``; ``""`` and ``"[]"`` are empty.

        The order of items is not insisted on and they may overlap, since readers in the field take that too.

        Raises:
            InvalidInput: not an idset by RFC 22 (blanks, leading zeros, a falling range), or too long.
        """
        body = text[1:-1] if text.startswith("[") and text.endswith("]") else text
        if not body:
            return EMPTY
        if body.count(",") >= MAX_RANGES:
            raise InvalidInput(f"idset: more than {MAX_RANGES} ranges; write consecutive ids as ranges")
        ranges: list[Range] = []
        for item in body.split(","):
            match = _ITEM.fullmatch(item)
            if match is None:
                raise InvalidInput(f"idset: {_shown(item)} in {_shown(text)} is no id or range such as 0-3")
            first = int(match[1])
            last = first if match[2] is None else int(match[2])
            if last < first:
                raise InvalidInput(f"idset: the range {_shown(item)} falls; write the smaller id first")
            ranges.append((first, last + 1))
        return cls(ranges)

    @classmethod
    def of(cls, ids: Iterable[int]) -> IdSet:
        """Make a set out of single ids."""
        return cls((i, i + 1) for i in ids)

    @classmethod
    def span(cls, stop: int) -> IdSet:
        """The set of the `stop` smallest ids, ``0 .. stop - 1``."""
        return cls([(0, stop)])

    def __len__(self) -> int:
        return self._before[-1]

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __iter__(self) -> Iterator[int]:
        for start, stop in self.ranges:
            yield from range(start, stop)

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int):
            return False
        at = bisect_right(self._starts, number) - 1
        return at >= 0 and number < self.ranges[at][1]

    def __eq__(self, other: object) -> bool:
        return self.ranges == other.ranges if isinstance(other, IdSet) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.ranges)

    def __or__(self, other: IdSet) -> IdSet:
        if not other.ranges:
            return self
        return IdSet((*self.ranges, *other.ranges)) if self.ranges else other

    def __and__(self, other: IdSet) -> IdSet:
        return _built(_overlaps(self.ranges, other.ranges))

    def __sub__(self, other: IdSet) -> IdSet:
        if not self.ranges or not other.ranges:
            return self
        # Subtracting is meeting the gaps that the other set leaves.
        return _built(_overlaps(self.ranges, _gaps(other.ranges, self.ranges[-1][1])))

    union = __or__
    intersection = __and__
    difference = __sub__

    def isdisjoint(self, other: IdSet) -> bool:
        return next(_overlaps(self.ranges, other.ranges), None) is None

    def issubset(self, other: IdSet) -> bool:
        return not self - other

    def first(self) -> int:
        """The smallest id. Raises IndexError when empty."""
        return self.ranges[0][0]

    def last(self) -> int:
        """The largest id. Raises IndexError when empty."""
        return self.ranges[-1][1] - 1

    def at(self, position: int) -> int:
        """The id at `position` in rising order, from 0. Raises IndexError beyond the end."""
        if not 0 <= position < len(self):
            raise IndexError(position)
        at = bisect_right(self._before, position) - 1
        return self.ranges[at][0] + position - self._before[at]

    def position(self, number: int) -> int:
        """Where `number` stands in rising order, from 0. Raises KeyError when it is not in the set."""
        if number not in self:
            raise KeyError(number)
        at = bisect_right(self._starts, number) - 1
        return self._before[at] + number - self._starts[at]

    def take(self, count: int) -> IdSet:
        """The `count` smallest ids (fewer when there are not so many)."""
        ranges: list[Range] = []
        for start, stop in self.ranges:
            if count <= 0:
                break
            ranges.append((start, min(stop, start + count)))
            count -= stop - start
        return _built(ranges)

    def __str__(self) -> str:
        return ",".join(f"{a}" if b - a == 1 else f"{a}-{b - 1}" for a, b in self.ranges)

    def __repr__(self) -> str:
        shown = ",".join(str(IdSet([r])) for r in islice(self.ranges, 20))
        return f"IdSet({shown!r}{', ...' if len(self.ranges) > 20 else ''})"

    def __reduce__(self) -> tuple[type[IdSet], tuple[tuple[Range, ...]]]:
        return IdSet, (self.ranges,)


def _built(ranges: Iterable[Range]) -> IdSet:
    made = tuple(ranges)
    return IdSet(made) if made else EMPTY


def _overlaps(left: Iterable[Range], right: Iterable[Range]) -> Iterator[Range]:
    """The common parts of two sorted rows of ranges, in one pass over both."""
    a, b = iter(left), iter(right)
    x, y = next(a, None), next(b, None)
    while x is not None and y is not None:
        start, stop = max(x[0], y[0]), min(x[1], y[1])
        if start < stop:
            yield start, stop
        if x[1] < y[1]:
            x = next(a, None)
        else:
            y = next(b, None)


def _gaps(ranges: Iterable[Range], stop: int) -> Iterator[Range]:
    """What lies between the ranges, from 0 up to `stop`."""
    at = 0
    for start, end in ranges:
        if at < start:
            yield at, start
        at = end
    if at < stop:
        yield at, stop


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


EMPTY = IdSet()
"""The empty set, shared."""
