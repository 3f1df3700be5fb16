"""What this process has confirmed lately is written once more when the store may have lost its last writes.

An end that a scheduler or the registrar decided (cancelled while it waited, expired, no cluster can run it), and a
cancel that was asked for, are confirmed to users. No agent could report them again: no cluster has such a job.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

from rainbow.models.job import TERMINAL, JobEvent, JobRecord
from rainbow_workers.stores.base import (
    ANYONE,
    Asker,
    ClusterTable,
    Enrollments,
    Ledger,
    Recorded,
    Sender,
    Shares,
    Store,
)
from rainbow_workers.stores.dependencies import Dependencies

#: Seconds for which it is kept, and how many of each: what was written earlier is on disk, or with a replica.
_KEPT, _MOST = 60.0, 10_000


class ConfirmedStore:
    """See `rainbow_workers.stores.base.Store`. `again` is called when another epoch of the store's data has begun."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._jobs = _ConfirmedLedger(store.jobs, clock)

    @property
    def clusters(self) -> ClusterTable:
        return self._store.clusters

    @property
    def enrollments(self) -> Enrollments:
        return self._store.enrollments

    @property
    def jobs(self) -> Ledger:
        return cast(Ledger, self._jobs)

    @property
    def shares(self) -> Shares:
        return self._store.shares

    @property
    def dependencies(self) -> Dependencies:
        return self._store.dependencies

    def warnings(self) -> list[str]:
        return self._store.warnings()

    def close(self) -> None:
        self._store.close()

    def again(self) -> int:
        """Write it once more; how much there was. Raises StoreUnavailable: call it again."""
        return self._jobs.again()


class _ConfirmedLedger:
    """Used by several threads."""

    def __init__(self, jobs: Ledger, clock: Callable[[], float]) -> None:
        self._inner = jobs
        self._clock = clock
        self._lock = threading.Lock()
        self._ends: deque[tuple[float, JobEvent]] = deque(maxlen=_MOST)
        self._cancels: deque[tuple[float, str, Asker | None]] = deque(maxlen=_MOST)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def record(
        self,
        events: Sequence[JobEvent],
        senders: Sequence[Sender | None] = (),
        jobspecs: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ) -> list[Recorded]:
        recorded = self._inner.record(events, senders, jobspecs)
        if not senders:
            now = self._clock()
            with self._lock:
                self._ends.extend((now, event) for event in events if event.state in TERMINAL)
        return recorded

    def cancel(self, ids: Sequence[str], by: Asker | None = ANYONE) -> list[JobRecord | None]:
        found = self._inner.cancel(ids, by)
        with self._lock:
            now = self._clock()
            self._cancels.extend((now, job_id, by) for job_id in ids)
        return found

    def again(self) -> int:
        since = self._clock() - _KEPT
        with self._lock:
            ends = [event for at, event in self._ends if at >= since]
            cancels = [(job_id, by) for at, job_id, by in self._cancels if at >= since]
        for asker in dict.fromkeys(by for _, by in cancels):
            self._inner.cancel([job_id for job_id, by in cancels if by == asker], asker)
        if ends:
            self._inner.record(ends)
        return len(ends) + len(cancels)
