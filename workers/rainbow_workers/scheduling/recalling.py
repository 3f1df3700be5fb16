"""Recalling: jobs that an agent took and that have not started go to clusters that are idle.

A cluster gets a little work ahead, or a large job without room (`clusters.depth`, `round`). When it slows down or is
drained, that work waits there while another cluster has nothing to do. Its agent is told to give back what has not
started: the job comes back as one that was refused does, with the code `recalled`, and is placed as its next attempt.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rainbow.brokers.base import Broker
from rainbow.jobspec.request import Demand
from rainbow.models.control import AgentCommand
from rainbow.models.job import JobRecord
from rainbow_workers import commands
from rainbow_workers.clusters.cache import ClusterCache
from rainbow_workers.clusters.idle import is_idle
from rainbow_workers.keys import ClusterKeys
from rainbow_workers.scheduling.contention import Contention
from rainbow_workers.scheduling.decide import Decider, Job
from rainbow_workers.stores.base import Store

log = logging.getLogger(__name__)

#: Seconds between two looks, until a job of a drained cluster is recalled, and until one is recalled again.
_EVERY, _DRAINED, _AGAIN = 1.0, 1.0, 10.0
#: Dispatches that are known of each cluster, the newest ones: those wait there longest.
_KNOWN = 64
#: Jobs that are looked up in the ledger at a time.
_AT_ONCE = 200
#: A job that came so often to a cluster is left there.
_MOST_ATTEMPTS = 5


@dataclass(slots=True, eq=False)
class _Bound:
    """A job that was dispatched at the time `at`, and recalled last at `asked` (0: never)."""

    job: Job
    attempt: int
    cluster: str
    at: float
    asked: float = 0.0


class Recalling:
    """One for each process that schedules: it knows what this process has dispatched. `note` is called by any thread.
    A job is recalled that has waited for `after` seconds on its cluster (0: none is)."""

    def __init__(
        self,
        broker: Broker,
        store: Store,
        world: ClusterCache,
        decider: Decider,
        keys: ClusterKeys,
        contention: Contention,
        after: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._broker = broker
        self._store = store
        self._world = world
        self._decider = decider
        self._keys = keys
        self._contention = contention
        self._after = after
        self._clock = clock
        self._lock = threading.Lock()
        self._next = 0.0
        self._bound: dict[str, deque[_Bound]] = {}

    def note(self, jobs: Sequence[tuple[Job, str]], now: float) -> None:
        """These jobs were dispatched to these clusters."""
        if not self._after:
            return
        with self._lock:
            for job, cluster in jobs:
                known = self._bound.get(cluster)
                if known is None:
                    known = self._bound[cluster] = deque(maxlen=_KNOWN)
                known.append(_Bound(job, job.attempt, cluster, now))

    def look(self) -> None:
        """Recall jobs, if it is time to look. Raises StoreUnavailable."""
        now = self._clock()
        if now < self._next:
            return
        self._next = now + _EVERY
        waiting, idle = self._candidates(now)
        if not waiting:
            return
        standing = self._still_waiting(waiting)
        messages = []
        with self._world.lock:
            for bound in standing:
                place = next((n for n in self._places(bound, idle) if _fits(idle[n], bound.job.jobspec.demand)), None)
                cluster = self._world.clusters.get(bound.cluster)
                if place is None or cluster is None:
                    continue
                idle[place] = _without(idle[place], bound.job.jobspec.demand)
                bound.asked = now
                why = "is drained" if bound.cluster in self._world.drained else "has not started it"
                command = AgentCommand(
                    command="recall",
                    id=bound.job.id,
                    attempt=bound.attempt,
                    reason=f"{bound.cluster} {why}, and {place} has room",
                )
                messages.append(commands.message(self._keys, bound.cluster, cluster.record.registration, command))
        if messages:
            log.info("%d jobs recalled", len(messages), extra={"action": "recall"})
            self._broker.publish(messages)

    def _candidates(self, now: float) -> tuple[list[_Bound], dict[str, Demand]]:
        """Jobs that may wait on a cluster while an idle one could run them; and what is free on idle ones."""
        with self._world.lock, self._lock:
            slow = [b for name in list(self._bound) for b in self._long_there(name, now)]
            if not slow:
                return [], {}
            idle = {
                n: self._world.load(n).free
                for n in self._world.clusters
                if is_idle(self._world, n) and n not in self._contention
            }
            fit = [b for b in slow if idle and any(_fits(idle[n], b.job.jobspec.demand) for n in self._places(b, idle))]
            return fit[:_AT_ONCE], idle

    def _long_there(self, cluster: str, now: float) -> list[_Bound]:
        """Jobs that were dispatched there a while ago, newest first, if jobs wait there."""
        world, bound = self._world, self._bound[cluster]
        if cluster not in world.clusters:
            del self._bound[cluster]
            return []
        if not world.load(cluster).pending:
            if bound and bound[-1].at < now - _AGAIN:
                del self._bound[cluster]  # all of them have started
            return []
        if cluster in world.unreachable or cluster in world.closed.reasons:
            return []
        before = now - (_DRAINED if cluster in world.drained else self._after)
        return [b for b in reversed(bound) if b.at <= before and b.asked <= now - _AGAIN and b.attempt < _MOST_ATTEMPTS]

    def _places(self, bound: _Bound, idle: dict[str, Demand]) -> list[str]:
        able = frozenset(self._decider.candidates(bound.job))
        return [n for n in idle if n in able and n != bound.cluster]

    def _still_waiting(self, jobs: Sequence[_Bound]) -> list[_Bound]:
        """Those that the ledger has there and that have not started. The others are forgotten."""
        records = self._store.jobs.get([b.job.id for b in jobs])
        out: list[_Bound] = []
        for bound, record in zip(jobs, records, strict=True):
            if record is not None and _is_at(record, bound) and record.state in ("assigned", "accepted"):
                if record.state == "accepted" and not record.cancel_requested:
                    out.append(bound)
                continue
            with self._lock:
                known = self._bound.get(bound.cluster)
                if known is not None and bound in known:
                    known.remove(bound)
        return out


def _is_at(record: JobRecord, bound: _Bound) -> bool:
    return record.attempt == bound.attempt and record.cluster == bound.cluster


def _fits(free: Demand, wanted: Demand) -> bool:
    """Can it start there at once?"""
    if not wanted.cores and not wanted.gpus:
        return wanted.nodes <= free.nodes
    return wanted.cores <= free.cores and wanted.gpus <= free.gpus


def _without(free: Demand, taken: Demand) -> Demand:
    return Demand(free.nodes - taken.nodes, free.cores - taken.cores, free.gpus - taken.gpus)
