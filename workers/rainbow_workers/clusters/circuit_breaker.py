"""Clusters on which jobs fail at once: how much of what they took lately did, as a moving mean per cluster.

A broken cluster that fails everything in a second is always the least loaded, and would draw all work. The share is
kept in the cluster's state (`failing`, 0 to 1), where every scheduler follows it and people see it: from
`Breaker.threshold` on, jobs go there only when nothing else can run them, and one as a probe from time to time. Sixteen
failures in a row reach it from nothing, with the default; one success takes a tenth off.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rainbow.models.cluster import StateReport
from rainbow.models.job import JobEvent, JobRecord
from rainbow_workers.clusters.cache import FAILING, ClusterCache
from rainbow_workers.stores.base import Recorded, Store

#: How much the newest end counts.
_WEIGHT = 0.1
#: Seconds for which our own last word goes before what the world has heard; and how many clusters are remembered.
_OURS = 5.0
_MOST = 20_000
#: Ends that say something of the cluster.
_TELLING = frozenset({"completed", "failed", "lost"})


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """`threshold`: the share of fast failures from which on a cluster is throttled (0: never). A failure is fast within
    `fast` seconds of the start. `probe`: seconds between two jobs that a scheduler sends there all the same."""

    threshold: float = 0.8
    fast: float = 10.0
    probe: float = 10.0


class CircuitBreaker:
    def __init__(
        self, store: Store, world: ClusterCache, breaker: BreakerPolicy, clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._world = world
        self._breaker = breaker
        self._clock = clock
        self._means: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def note(self, events: Sequence[JobEvent], results: Sequence[Recorded]) -> None:
        """Take over how jobs ended, as `results` of recording `events`. Raises StoreUnavailable; noting an end
        twice counts it twice, which is no harm."""
        if not self._breaker.threshold:
            return
        now = self._clock()
        means: dict[str, float] = {}
        for event, result in zip(events, results, strict=True):
            if not result.applied or event.state not in _TELLING:
                continue
            cluster: str | None
            bad: bool | None
            if event.state == "completed" and event.cluster is not None:
                cluster, bad = event.cluster, False  # as nearly all: the record is not read for it
            else:
                record = result.record
                cluster, bad = record.cluster, failed_fast(record, self._breaker.fast)
            if cluster is None or bad is None:
                continue
            mean = means.get(cluster, self._known(cluster, now))
            means[cluster] = mean + _WEIGHT * (bad - mean)
        reports = [
            StateReport(cluster=name, values={FAILING: round(mean, 3)}, heartbeat=False)
            for name, mean in means.items()
            if round(mean, 3) != round(self._known(name, now), 3)
        ]
        if reports:
            self._store.clusters.report(reports, now)
        for name, mean in means.items():
            self._means[name] = (now, mean if mean >= 0.001 else 0.0)
            self._means.move_to_end(name)
        while len(self._means) > _MOST:
            self._means.popitem(last=False)

    def _known(self, cluster: str, now: float) -> float:
        at, mean = self._means.get(cluster, (0.0, 0.0))
        if now - at <= _OURS:
            return mean
        with self._world.lock:
            return self._world.failing(cluster)


def failed_fast(record: JobRecord, within: float) -> bool | None:
    """Did the job fail at once? None for an end that says nothing of its cluster, and for a job that goes on."""
    if record.state not in _TELLING:
        return None
    if record.state == "completed":
        return False
    times = record.times
    began = times.get("running", times.get("accepted", times.get("assigned")))
    ended = times.get("ended")
    return began is not None and ended is not None and ended - began <= within
