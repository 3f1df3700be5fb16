"""Agents that are put out, and jobs that are lost with them or with their queues."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from rainbow import topology
from rainbow.brokers.base import Broker
from rainbow.models.cluster import ClusterRecord, Revocation
from rainbow.models.job import JobEvent, JobRecord
from rainbow_workers.clusters.cache import ClusterCache
from rainbow_workers.registry.operations.issuing import agent_of
from rainbow_workers.registry.operations.known import KnownClusters, give_back
from rainbow_workers.stores.base import Store

log = logging.getLogger(__name__)

#: Why a cluster is drained whose agent was revoked, until an agent with a good token registers it again.
BARRED = "its agent was revoked"
#: Seconds that a dispatch given back by a barred cluster has, on top of its time in the queue, to be placed elsewhere.
_SETTLING = 60.0
#: Seconds for an agent to say what it had taken of a queue that was deleted under it.
_LAST_WORDS = 150.0
#: Why a job is lost whose dispatch went with its queue.
EMPTIED = "the queue of its cluster was deleted with its dispatch in it: submit it again"
#: Seconds between looks at what such clusters had.
_SETTLE_EVERY = 2.0
#: Jobs looked at in one go.
_AT_ONCE = 10_000


class Barring:
    """Of the registrar's thread."""

    def __init__(
        self,
        broker: Broker,
        store: Store,
        world: ClusterCache,
        limits: topology.Limits,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._broker = broker
        self._store = store
        self._world = world
        self._known = KnownClusters(store, world)
        self._limits = limits
        self._clock = clock
        self._settle_at = 0.0

    def bar(self, revocation: Revocation) -> list[str]:
        """Put the agents out whose tokens are revoked: nothing new for their clusters, what waits for them is placed
        elsewhere, their queues are gone (which ends their consumers; they have no right to declare any), and what they
        sign counts no more. An agent with a good token that registers the cluster again brings it back.
        """
        with self._world.lock:
            self._world.apply(self._store.clusters.changes(self._world.version))
            hit = [c for c in self._world.clusters.values() if _names_agent(revocation, c.record)]
        for known in hit:
            record, name = known.record, known.record.name
            if not record.barred_at:  # else an earlier try died below
                epoch, now = record.epoch + 1, self._clock()
                update = {
                    "drained": BARRED,
                    "epoch": epoch,
                    "registration": f"revoked-{epoch}-{record.registration}",
                    "barred_at": now,
                    "updated_at": now,
                }
                self._known.put(record.model_copy(update=update), known)
            give_back(self._broker, name)
            self._broker.delete(list(topology.cluster_queues(name)))
            log.warning("agent put out", extra={"action": "bar", "cluster": name})
        return sorted(c.record.name for c in hit)

    def settle(self) -> None:
        """End the jobs that are lost by now. Cheap: meant to be called all the time."""
        now = self._clock()
        if now >= self._settle_at:
            self._settle_at = now + _SETTLE_EVERY
            self._settle_emptied(now)
            self._settle_barred(now)

    def _settle_barred(self, now: float) -> None:
        """End as `lost` what a revoked agent had: at once what it started, since nothing it says of it counts; and
        what it had and did not report, once all that came back must have been placed elsewhere."""
        with self._world.lock:
            barred = [self._world.clusters[n].record for n in self._world.drained if n in self._world.clusters]
        for record in (r for r in barred if r.barred_at):
            overdue = now - record.barred_at > self._limits.dispatch_timeout + _SETTLING
            for state in ("accepted", "running", *(("assigned",) if overdue else ())):
                jobs = self._store.jobs.find(state=state, cluster=record.name, user=None, limit=1000)
                self._store.jobs.record(
                    [
                        JobEvent(id=j.id, attempt=j.attempt, state="lost", at=now, code="lost", detail=BARRED)
                        for j in jobs
                    ]
                )

    def _settle_emptied(self, now: float) -> None:
        """End as `lost` the jobs whose dispatches went with a queue that somebody deleted, once its agent has had time
        to say which of them it had taken before."""
        with self._world.lock:
            emptied = [c for c in self._world.clusters.values() if c.record.emptied_at]
        for cluster in emptied:
            record = cluster.record
            if now - record.emptied_at < _LAST_WORDS:
                continue
            waiting = self._store.jobs.find(state="assigned", cluster=record.name, user=None, limit=_AT_ONCE)
            lost = [
                job
                for start in range(0, len(waiting), 500)
                for job in self._store.jobs.get([j.id for j in waiting[start : start + 500]])
                if job is not None and _assigned_before(job, record.emptied_at)
            ]
            self._store.jobs.record(
                [JobEvent(id=j.id, attempt=j.attempt, state="lost", at=now, code="lost", detail=EMPTIED) for j in lost]
            )
            if len(waiting) < _AT_ONCE or not lost:
                self._known.put(record.model_copy(update={"emptied_at": 0.0}), cluster)


def _names_agent(revocation: Revocation, record: ClusterRecord) -> bool:
    """Is it the agent of this cluster that is revoked: all of its tokens, or the one it has?"""
    if revocation.kind == "sub":
        return revocation.value == agent_of(record.name)
    return revocation.value == record.agent_jti


def _assigned_before(job: JobRecord, moment: float) -> bool:
    """Was the attempt that counts assigned before `moment`?"""
    if job.state != "assigned":
        return False
    times = [float(e["at"]) for e in job.history if e.get("state") == "assigned" and e.get("attempt") == job.attempt]
    return max(times, default=job.times.get("assigned", moment)) < moment
