"""Who the execution targets of a cluster are: host names, ranks and properties by ordinal, kept as ranges.

Ordinals come from the canonical numbering of `fold`; sets of targets are `IdSet`s of ordinals. Look-up tables
are built when first asked for, so that loading costs no more for 100,000 nodes than for ten.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from rainbow.ranges.hostlist import Hostlist, HostRange
from rainbow.ranges.idset import EMPTY, IdSet

Run = tuple[int, int, int]
"""``(rank, count, ordinal)``: ranks from `rank` on belong to the ordinals from `ordinal` on."""

_DIGITS = re.compile(r"[0-9]{1,18}")
_MAX_EXPANDED = 10_000


class Spans:
    """Maps stretches of numbers to stretches of ordinals; one number may lead to several ordinals."""

    __slots__ = ("_closed", "_reach", "_rows", "_starts")

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int]] = []
        self._closed = False

    def add(self, start: int, stop: int, ordinal: int) -> None:
        self._rows.append((start, stop, ordinal))

    def find(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Ordinal ranges of the numbers in ``[start, stop)``."""
        if not self._closed:
            self._rows.sort()
            self._starts = [row[0] for row in self._rows]
            # How far the rows up to each one reach: looking further left ends where that is too short.
            self._reach = list(accumulate((row[1] for row in self._rows), max))
            self._closed = True
        at = bisect_right(self._starts, stop - 1) - 1
        while at >= 0 and self._reach[at] > start:
            low, high, ordinal = self._rows[at]
            first, last = max(low, start), min(high, stop)
            if first < last:
                yield ordinal + first - low, ordinal + last - low
            at -= 1


def _by_length(piece: HostRange) -> Iterator[tuple[tuple[str, int, str], int, int]]:
    """Split a range where its numbers get one digit longer: a name then has exactly one key."""
    start = piece.start
    while start < piece.stop:
        length = max(len(str(start)), piece.width)
        stop = min(piece.stop, 10**length)
        yield (piece.prefix, length, piece.suffix), start, stop
        start = stop


class Identity:
    """Host names, ranks and properties of the targets ``0 .. count - 1``."""

    __slots__ = ("_hosts", "_ranks", "count", "hosts", "properties", "ranks")

    def __init__(
        self,
        count: int,
        hosts: Hostlist | None = None,
        ranks: Sequence[Run] = (),
        properties: dict[str, IdSet] | None = None,
    ) -> None:
        """`hosts` is None when no target has a name; else it has one name per ordinal."""
        self.count = count
        self.hosts = hosts
        self.ranks = tuple(ranks)
        self.properties = properties or {}
        self._hosts: dict[tuple[str, int, str], Spans] | None = None
        self._ranks: Spans | None = None

    def with_property(self, name: str) -> IdSet:
        return self.properties.get(name, EMPTY)

    def with_ranks(self, wanted: IdSet) -> IdSet:
        """Targets whose rank is in `wanted`."""
        if self._ranks is None:
            self._ranks = Spans()
            for rank, count, ordinal in self.ranks:
                self._ranks.add(rank, rank + count, ordinal)
        find = self._ranks.find
        return IdSet(found for start, stop in wanted.ranges for found in find(start, stop))

    def with_hosts(self, wanted: Hostlist) -> IdSet:
        """Targets whose name is in `wanted` (several when one name occurs several times)."""
        if self.hosts is None:
            return EMPTY
        index = self._hosts
        if index is None:
            index = self._hosts = self._host_index(self.hosts)
        found: list[tuple[int, int]] = []
        for piece in wanted.pieces:
            if piece.start < 0:
                found += ((at, at + 1) for at in self.hosts.positions(piece.prefix))
                continue
            for key, start, stop in _by_length(piece):
                spans = index.get(key)
                if spans is not None:
                    found += spans.find(start, stop)
            if piece.suffix and len(piece) <= _MAX_EXPANDED:
                # Which digits are a name's number is a matter of how it was written: ask name by name.
                for offset in range(len(piece)):
                    found += ((at, at + 1) for at in self.hosts.positions(piece.name(offset)))
        return IdSet(found)

    @staticmethod
    def _host_index(hosts: Hostlist) -> dict[tuple[str, int, str], Spans]:
        index: dict[tuple[str, int, str], Spans] = {}
        ordinal = 0
        for piece in hosts.pieces:
            if piece.start >= 0:
                for key, start, stop in _by_length(piece):
                    spans = index.get(key)
                    if spans is None:
                        spans = index[key] = Spans()
                    spans.add(start, stop, ordinal + start - piece.start)
                if piece.suffix:
                    _index_ends(index, piece, ordinal)
            ordinal += len(piece)
        return index


def _index_ends(index: dict[tuple[str, int, str], Spans], piece: HostRange, ordinal: int) -> None:
    """Names such as rack[1-2]n7: also under the number at their end, as a single name is written."""
    match = re.search(r"[0-9]{1,18}\Z", piece.suffix)
    if match is None or len(piece) > _MAX_EXPANDED:
        return
    number = int(match[0])
    for offset in range(len(piece)):
        name = piece.name(offset)
        key = (name[: -len(match[0])], len(match[0]), "")
        index.setdefault(key, Spans()).add(number, number + 1, ordinal + offset)


def cut(hosts: Hostlist, ranges: Iterable[tuple[int, int]]) -> list[HostRange]:
    """The pieces of `hosts` at the positions in `ranges`, in that order."""
    before = list(accumulate(map(len, hosts.pieces), initial=0))
    pieces: list[HostRange] = []
    for start, stop in ranges:
        at = bisect_right(before, start) - 1
        while start < stop:
            piece = hosts.pieces[at]
            end = min(stop, before[at + 1])
            if piece.start < 0 or end - start == len(piece):
                pieces.append(piece)
            else:
                low = piece.start + start - before[at]
                pieces.append(HostRange(piece.prefix, low, low + end - start, piece.width, piece.suffix))
            start = end
            at += 1
    return pieces


def runs(ranks: Iterable[int]) -> list[Run]:
    """Ranks by ordinal as runs; negative ranks mean "not known" and are left out."""
    made: list[Run] = []
    for ordinal, rank in enumerate(ranks):
        if rank < 0:
            continue
        if made:
            first, count, start = made[-1]
            if rank == first + count and ordinal == start + count:
                made[-1] = (first, count + 1, start)
                continue
        made.append((rank, 1, ordinal))
    return made
