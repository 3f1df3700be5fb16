"""How good the bids of clusters are: by how much jobs start later than promised, as a moving mean per cluster.

The mean is kept in the cluster's state (`bid_error_s`, seconds; below 0 when jobs start early), where selections and
people see it. It is measured here, from the promise that was recorded and the start that was reported; an agent that
names the value itself is not listened to. Only a sample: what a worker has to follow up is lost with it, and bounded.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence
from typing import Any

from rainbow.models.cluster import StateReport
from rainbow.models.job import JobRecord
from rainbow_workers.clusters.cache import ClusterCache
from rainbow_workers.selection.bid import ERROR
from rainbow_workers.stores.base import Store

#: How much the newest start counts.
_WEIGHT = 0.2
#: Jobs followed up at a time, and looked at in one go.
_MOST = 20_000
_AT_A_TIME = 200
#: Seconds until the first look, the longest between two, and after which a job is let go.
_FIRST, _LONGEST, _GIVE_UP = 1.0, 60.0, 86_400.0


class BidAccuracy:
    def __init__(self, store: Store, world: ClusterCache, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._world = world
        self._clock = clock
        #: When to look next, at which job, how long was waited so far, and since when.
        self._due: list[tuple[float, str, float, float]] = []

    def expect(self, jobs: Sequence[str]) -> None:
        """Follow these jobs up, which clusters made promises for."""
        now = self._clock()
        for job in jobs[: _MOST - len(self._due)]:
            heapq.heappush(self._due, (now + _FIRST, job, _FIRST, now))

    def look(self) -> None:
        """See which have started meanwhile. Raises StoreUnavailable."""
        now = self._clock()
        due: list[tuple[float, str, float, float]] = []
        while self._due and self._due[0][0] <= now and len(due) < _AT_A_TIME:
            due.append(heapq.heappop(self._due))
        if not due:
            return
        means: dict[str, float] = {}
        for (_, job, waited, since), record in zip(due, self._store.jobs.get([d[1] for d in due]), strict=True):
            error = None if record is None else late_by(record)
            if record is not None and record.cluster is not None and error is not None:
                old = means.get(record.cluster, self._known(record.cluster))
                means[record.cluster] = error if old is None else old + _WEIGHT * (error - old)
            elif record is not None and not record.terminal and now - since < _GIVE_UP:
                wait = min(_LONGEST, 2 * waited)
                heapq.heappush(self._due, (now + wait, job, wait, since))
        if means:
            reports = [
                StateReport(cluster=name, values={ERROR: round(mean, 3)}, heartbeat=False)
                for name, mean in means.items()
            ]
            self._store.clusters.report(reports, now)

    def _known(self, cluster: str) -> float | None:
        with self._world.lock:
            known = self._world.clusters.get(cluster)
            value = known.state.values.get(ERROR) if known is not None else None
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def late_by(record: JobRecord) -> float | None:
    """Seconds from the promised start to the one that was (below 0: early); None where either is not known."""
    promised, started = promised_start(record.answer), record.times.get("running")
    return None if promised is None or started is None else started - promised


def promised_start(answer: Any) -> float | None:
    """When the cluster that was chosen said the job would start, in seconds since 1970; None without such a bid."""
    selection = answer.get("selection") if isinstance(answer, dict) else None
    promised = selection.get("promised") if isinstance(selection, dict) else None
    return float(promised) if isinstance(promised, int | float) and not isinstance(promised, bool) else None
