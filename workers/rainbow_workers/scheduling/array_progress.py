"""How far an array is: which of its elements were sent, and which have ended, and how.

The store counts elements. What is kept here goes with the array's message, so that it is there when the store lost its
data: clusters report what they have, and what ended lately, and the rest is known from here.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from rainbow.models.arrays import Array

#: Bytes of packed ends that go into the header of a message, at most: brokers take headers of up to 128 KiB.
_MOST = 80_000
#: How an element ended: its state and exit code.
End = tuple[str, int | None]
#: How an element is taken to have ended where that does not fit: all that is known then is that it has.
_UNCERTAIN: End = ("lost", None)
#: Of so many ends the exit codes are kept: a byte says which end it is, and has room for each state without one.
_WITH_CODES = 200


class Ends:
    """The elements that have ended, by position, and how. One byte for each, up to the last of them."""

    def __init__(self, kinds: Iterable[Sequence[Any]] = (), packed: bytes = b"", size: int = 0) -> None:
        self._kinds: list[End] = [(state, code) for state, code in kinds]
        self._marks = bytearray(zlib.decompressobj().decompress(packed, size)) if packed and size else bytearray()

    def __len__(self) -> int:
        return len(self._marks) - self._marks.count(0)

    def get(self, position: int) -> End | None:
        mark = self._marks[position] if position < len(self._marks) else 0
        return self._kinds[mark - 1] if mark else None

    def add(self, position: int, end: End) -> None:
        if end not in self._kinds:
            if len(self._kinds) >= _WITH_CODES:
                end = (end[0], None)
            if end not in self._kinds:
                self._kinds.append(end)
        if position >= len(self._marks):
            self._marks.extend(bytes(position + 1 - len(self._marks)))
        self._marks[position] = 1 + self._kinds.index(end)

    def packed(self) -> tuple[list[End], bytes]:
        """The arguments of the constructor."""
        packed = zlib.compress(bytes(self._marks))
        if len(packed) <= _MOST:
            return self._kinds, packed
        return [_UNCERTAIN], zlib.compress(bytes(map(bool, self._marks)))


@dataclass(slots=True, eq=False)
class Progress:
    """Positions are those of the indices in the array.

    Attributes:
        next: All before this position were sent, but for the `gaps`.
        gaps: Runs of positions that the store did not know when it had lost its data: to be sent (again).
        open: Position -> index, of those that were sent and are not known to have ended.
        epoch: Of the store, for which all this holds.
        restored: The store lost its data since the array began: its counts do not say which positions were sent.
    """

    array: Array
    next: int = 0
    ends: Ends = field(default_factory=Ends)
    gaps: deque[range] = field(default_factory=deque)
    open: dict[int, int] = field(default_factory=dict)
    epoch: int = 0
    restored: bool = False

    @property
    def sent(self) -> int:
        """How many were sent."""
        return self.next - sum(len(gap) for gap in self.gaps)

    def move_to(self, position: int) -> None:
        """All before `position` were sent."""
        self.open.update(self.numbered(range(self.next, position)))
        self.next = max(self.next, position)

    def ended(self, position: int, end: End) -> None:
        self.open.pop(position, None)
        self.ends.add(position, end)

    def following(self, most: int) -> list[tuple[int, int]]:
        """The next `most` to be sent at most, by position and index, of one run: `took` says how many were."""
        run = self.gaps[0] if self.gaps else range(self.next, self.array.size)
        return self.numbered(run[:most])

    def took(self, count: int) -> None:
        """So many of those that `following` gave were sent, or need not be."""
        if not self.gaps:
            self.move_to(self.next + count)
            return
        gap = self.gaps.popleft()
        self.open.update(self.numbered(gap[:count]))
        if gap[count:]:
            self.gaps.appendleft(gap[count:])

    def numbered(self, run: range) -> list[tuple[int, int]]:
        """Positions of `run` with their indices."""
        return list(zip(run, islice(self.array.indices(run.start), len(run)), strict=True)) if run else []

    def as_route(self) -> dict[str, Any]:
        """What goes with the message: see `of_route`. One with gaps is compared with the store again."""
        kinds, packed = self.ends.packed()
        return {
            "released": self.gaps[0].start if self.gaps else self.next,
            "array": {
                "epoch": 0 if self.gaps else self.epoch,
                "restored": self.restored,
                "ends": kinds,
                "ended": packed,
            },
        }


def of_route(array: Array, route: Mapping[str, Any]) -> Progress:
    """How far an array is by what came with its message. That of a release before this one only says how many were
    sent: it names no epoch, so the store is compared with the array's elements."""
    kept = route.get("array") or {}
    progress = Progress(
        array,
        ends=Ends(kept.get("ends", ()), kept.get("ended", b""), array.size),
        epoch=kept.get("epoch", 0),
        restored=kept.get("restored", False),
    )
    progress.next = min(array.size, route.get("released", 0))
    for position, index in enumerate(islice(array.indices(0), progress.next)):
        if progress.ends.get(position) is None:
            progress.open[position] = index
    return progress
