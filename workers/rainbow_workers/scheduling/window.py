"""The window of the waiting room: the jobs that this process holds, by kind.

Jobs of one kind ask for the same and may use the same clusters: when one of them has to wait, so have all. So the cost
of an event is in the number of kinds, not of jobs.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rainbow_workers.scheduling.decide import Payer
from rainbow_workers.scheduling.pending_job import PendingJob

Key = tuple[Any, ...]


def kind_of(pending: PendingJob) -> Key:
    """What jobs of one kind have in common."""
    job = pending.job
    assert job is not None
    rights = (job.allowed, job.restrict, frozenset(job.tried))
    return (id(job.jobspec.request), rights, job.payer, job.selection is None)


def _whose(pending: PendingJob) -> tuple[str, str]:
    """A job by its id and user: under the id of another user's job nothing takes the place of that job."""
    return pending.id, pending.job.user if pending.job is not None else ""


@dataclass(slots=True, eq=False)
class Entry:
    """A job in the window. `since`: when it came in; `wake_at`: when it is due whatever happens before, 0 never; times
    are seconds since 1970. `left` once it is out again."""

    pending: PendingJob
    key: Key
    since: float
    wake_at: float = 0.0
    left: bool = False


@dataclass(slots=True, eq=False)
class Kind:
    """The waiting jobs of one kind, by priority and then age.

    Attributes:
        passed_at: When a job of another kind was placed for the first time although it was this kind's turn; 0 never.
        detail: Why they wait, as decided last.
        limited: That is since their user or account has as many jobs on clusters as it may.
    """

    key: Key
    payer: Payer
    heap: list[tuple[int, float, int, Entry]] = field(default_factory=list)
    count: int = 0
    passed_at: float = 0.0
    detail: str = ""
    limited: bool = False

    def first(self) -> Entry | None:
        while self.heap and self.heap[0][3].left:
            heapq.heappop(self.heap)
        return self.heap[0][3] if self.heap else None


class Window:
    """The waiting room bounds it. Not thread-safe: used by one thread."""

    def __init__(self) -> None:
        self.kinds: dict[Key, Kind] = {}
        self._entries: dict[tuple[str, str], Entry] = {}
        self._timers: list[tuple[float, int, Entry]] = []
        self._number = itertools.count()
        #: Whose jobs it holds of each queue.
        self._users: dict[str, Counter[str]] = {}
        #: Rises when kinds come or go.
        self.version = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries.values()))

    def oldest(self) -> float | None:
        """When the job that came first was submitted; None when there is none."""
        first = next(iter(self._entries.values()), None)
        return None if first is None or first.pending.job is None else first.pending.job.submitted_at

    def get(self, pending: PendingJob) -> Entry | None:
        """The entry of this job, by this copy of it or another."""
        return self._entries.get(_whose(pending))

    def add(self, pending: PendingJob, now: float) -> Entry:
        """Take a job in, in place of another copy of it."""
        self.remove(pending)
        job = pending.job
        assert job is not None
        entry = Entry(pending, kind_of(pending), now)
        kind = self.kinds.get(entry.key)
        if kind is None:
            kind = self.kinds[entry.key] = Kind(entry.key, job.payer)
            self.version += 1
        heapq.heappush(kind.heap, (-job.priority, job.submitted_at, next(self._number), entry))
        kind.count += 1
        self._entries[_whose(pending)] = entry
        self._users.setdefault(pending.delivery.queue, Counter())[job.user] += 1
        for deadline in (job.expires_at, job.hold_until):
            if deadline and deadline > now:
                self.wake(entry, deadline)
        return entry

    def wake(self, entry: Entry, at: float) -> None:
        """The job is due at this time, whatever happens before."""
        if entry.wake_at and entry.wake_at <= at:
            return
        entry.wake_at = at
        heapq.heappush(self._timers, (at, next(self._number), entry))

    def next_due(self) -> float:
        """When the first timer runs out; infinity without one."""
        while self._timers and (self._timers[0][2].left or self._timers[0][2].wake_at != self._timers[0][0]):
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else float("inf")

    def due(self, now: float) -> list[Entry]:
        """The jobs whose time has come."""
        out: dict[tuple[str, str], Entry] = {}
        while self.next_due() <= now:
            entry = heapq.heappop(self._timers)[2]
            entry.wake_at = 0.0
            out[_whose(entry.pending)] = entry
        return list(out.values())

    def remove(self, pending: PendingJob) -> None:
        """A job that is not there is fine."""
        entry = self._entries.pop(_whose(pending), None)
        if entry is None:
            return
        entry.left = True
        _, user = _whose(entry.pending)
        users = self._users[entry.pending.delivery.queue]
        users[user] -= 1
        if not users[user]:
            del users[user]
        kind = self.kinds[entry.key]
        kind.count -= 1
        if not kind.count:
            del self.kinds[entry.key]
            self.version += 1

    def full(self, size: int) -> dict[str, str]:
        """The queues of which it holds `size` jobs or more, and the user of whom it holds most of each."""
        return {q: users.most_common(1)[0][0] for q, users in self._users.items() if users.total() >= size}

    def of_kind(self, entry: Entry) -> list[Entry]:
        """All jobs of the kind of this one, in order."""
        kind = self.kinds.get(entry.key)
        return [] if kind is None else [e for *_, e in sorted(kind.heap, key=lambda item: item[:3]) if not e.left]

    def clear(self) -> None:
        self.version += 1
        self.kinds.clear()
        self._entries.clear()
        self._users.clear()
        self._timers.clear()
