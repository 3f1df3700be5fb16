"""Job arrays: one submission for many jobs that differ by an index, as Slurm writes it (``1-1000%50``, ``0-15:4``)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise

from rainbow.errors import InvalidInput
from rainbow.models.ids import element_id
from rainbow.models.wire import OpenWire

#: The largest index, and how many an array may have whose ranges overlap: these are written out to know them apart.
MAX_INDEX, MAX_MIXED = 2**31 - 1, 100_000
#: Characters of an array as text.
MAX_TEXT = 65_536

_ITEM = re.compile(r"(\d{1,12})(?:-(\d{1,12})(?::(\d{1,12}))?)?", re.ASCII)
_FORMS = "write 1-100, 1,3,5-9, 0-15:4, with %N for at most N at a time"


@dataclass(frozen=True, slots=True)
class Array:
    """The indices of an array as ranges, ascending and apart from each other, and how many may run at once (None: all).

    `text` is how it was written.
    """

    text: str
    ranges: tuple[range, ...]
    limit: int | None

    @property
    def size(self) -> int:
        """How many elements it has."""
        return sum(len(part) for part in self.ranges)

    def indices(self, start: int) -> Iterator[int]:
        """Give the indices in order, from the one at position `start` on."""
        for part in self.ranges:
            if start < len(part):
                yield from part[start:]
            start = max(0, start - len(part))

    def __contains__(self, index: int) -> bool:
        return any(index in part for part in self.ranges)

    def element(self, array_id: str, index: int) -> Element:
        step = self.ranges[0].step if len(self.ranges) == 1 else 1
        first, last = self.ranges[0][0], self.ranges[-1][-1]
        return Element(array=array_id, index=index, count=self.size, min=first, max=last, step=step)


class Element(OpenWire):
    """Which element of an array a job is: of `count` with indices from `min` to `max`."""

    array: str
    index: int
    count: int = 1
    min: int = 0
    max: int = 0
    step: int = 1

    @property
    def id(self) -> str:
        """The id of the job."""
        return element_id(self.array, self.index)

    def environment(self) -> dict[str, str]:
        """The variables by which a job knows its index: ours, and those of Flux, Slurm, PBS and LSF."""
        return {
            "RAINBOW_ARRAY_ID": self.array,
            "RAINBOW_ARRAY_INDEX": str(self.index),
            "FLUX_JOB_CC": str(self.index),
            "SLURM_ARRAY_JOB_ID": self.array,
            "SLURM_ARRAY_TASK_ID": str(self.index),
            "SLURM_ARRAY_TASK_COUNT": str(self.count),
            "SLURM_ARRAY_TASK_MIN": str(self.min),
            "SLURM_ARRAY_TASK_MAX": str(self.max),
            "SLURM_ARRAY_TASK_STEP": str(self.step),
            "PBS_ARRAY_INDEX": str(self.index),
            "PBS_ARRAYID": str(self.index),
            "LSB_JOBINDEX": str(self.index),
        }


@lru_cache(maxsize=1024)
def read_array(text: str) -> Array:
    """Read indices, ranges and a limit. An index that is written twice counts once.

    Raises:
        InvalidInput: what is none, has a step or limit of 0, or an index above MAX_INDEX.
    """
    listed, percent, limit = text.strip().partition("%")
    if percent and (re.fullmatch(r"[0-9]{1,12}", limit) is None or int(limit) < 1):
        raise InvalidInput(f"array {_shown(text)}: %{limit[:20]} is no number of elements: write 1 or more")
    ranges = sorted((_range(item.strip(), text) for item in listed.split(",")), key=lambda r: (r[0], r[-1]))
    if any(one[-1] >= other[0] for one, other in pairwise(ranges)):
        if sum(len(part) for part in ranges) > MAX_MIXED:
            raise InvalidInput(f"array {_shown(text)}: its ranges overlap: write each index once")
        ranges = [range(index, index + 1) for index in sorted(set(chain.from_iterable(ranges)))]
    return Array(text.strip(), tuple(ranges), int(limit) if limit else None)


def _range(item: str, text: str) -> range:
    match = _ITEM.fullmatch(item)
    if match is None:
        raise InvalidInput(f"array {_shown(text)}: {_shown(item)} is no index or range: {_FORMS}")
    first, last, step = (int(part) if part else None for part in match.groups())
    assert first is not None
    last = first if last is None else last
    if step == 0:
        raise InvalidInput(f"array {_shown(text)}: the step in {_shown(item)} is 0: write 1 or more")
    if last < first:
        raise InvalidInput(f"array {_shown(text)}: the range {_shown(item)} falls: write the smaller index first")
    if last > MAX_INDEX:
        raise InvalidInput(f"array {_shown(text)}: index {last} is above {MAX_INDEX}")
    return range(first, last + 1, step or 1)


def _shown(text: str) -> str:
    return repr(text[:60])
