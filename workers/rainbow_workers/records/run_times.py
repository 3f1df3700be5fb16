"""How long the jobs of each user run, in all and on each cluster, as moving means: a sample is enough."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rainbow.models.job import JobEvent
from rainbow_workers.stores.base import Recorded, Store, run_time_of

#: How much the newest end counts.
_WEIGHT = 0.2
#: Ends looked at of a batch, and seconds between two writes.
_SAMPLE, _EVERY = 16, 1.0
#: Means remembered; with more of them the means begin again.
_MOST = 20_000


class RunTimes:
    """Of one recorder. Several write their own means: each is as good as the other's."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._means: dict[str, float] = {}
        self._changed: set[str] = set()
        self._next = 0.0

    def note(self, events: Sequence[JobEvent], results: Sequence[Recorded]) -> None:
        """Take over how long jobs ran, from `results` of recording `events`. Raises StoreUnavailable."""
        ends = [r for e, r in zip(events, results, strict=True) if r.applied and e.state in ("completed", "failed")]
        for result in ends[:_SAMPLE]:
            record = result.record
            began, ended = record.times.get("running"), record.times.get("ended")
            if record.user is None or began is None or ended is None:
                continue
            self._ran(record.user, seconds := max(0.001, ended - began))
            if record.cluster is not None:
                self._ran(run_time_of(record.user, record.cluster), seconds)
        self.write()

    def _ran(self, name: str, seconds: float) -> None:
        old = self._means.get(name)
        self._means[name] = seconds if old is None else old + _WEIGHT * (seconds - old)
        self._changed.add(name)

    def write(self) -> None:
        """Write what is new, at most once a second. Raises StoreUnavailable."""
        now = self._clock()
        if self._changed and now >= self._next:
            self._next = now + _EVERY
            self._store.shares.ran({user: self._means[user] for user in self._changed})
            self._changed.clear()
            if len(self._means) > _MOST:
                self._means.clear()
