"""Deciding, the first stage: `PendingJob`s in, `Decided` out. Nothing is written."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

from rainbow.errors import StoreUnavailable
from rainbow.models.dependencies import DEPENDENCY
from rainbow_workers.clusters.cache import ClusterCache, awaiting_clusters
from rainbow_workers.headers import DOUBTFUL
from rainbow_workers.scheduling.answers import looked
from rainbow_workers.scheduling.decide import Decider, Decision, Job
from rainbow_workers.scheduling.failover import AGAIN, RateLimiter
from rainbow_workers.scheduling.limits import Limits, refuse
from rainbow_workers.scheduling.pending_job import PendingJob
from rainbow_workers.scheduling.stages import Decided
from rainbow_workers.stores.base import Store
from rainbow_workers.stores.history import ARRAY

#: Decisions that are not revised later.
_FINAL = frozenset({"no-match", "unsatisfiable", "satisfied"})
#: Seconds until it is looked again whether a cluster has come back to a store that lost its data.
_BACK = 2.0


class Waiting(Protocol):
    """Jobs that wait, offered one by one: those of one kind until one of them has to wait on."""

    def offer(self) -> tuple[PendingJob, bool] | None:
        """The next job, and whether it may be bound to a cluster without room. None: no more for now."""

    def declined(self, pending: PendingJob, decision: Decision) -> None:
        """The job that was offered waits on."""

    def taken(self, pending: PendingJob, decision: Decision | None) -> None:
        """The job that was offered does not wait any more."""


class Deciding:
    """Decides batches and deducts what they reserve. Store calls are made without the lock of the cache."""

    def __init__(
        self,
        store: Store,
        world: ClusterCache,
        decider: Decider,
        turns: RateLimiter,
        rng: random.Random | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._store = store
        self._world = world
        self._decider = decider
        self._turns = turns
        self._limits = limits
        self._rng = rng or random.Random()

    def decide(self, jobs: Sequence[PendingJob], now: float) -> Decided:
        """Decide a batch.

        A refusal is only final with the newest view of the clusters: one that was registered a moment ago may be known
        to the store alone.

        Raises:
            StoreUnavailable: Nothing was decided, and nothing stays deducted.
        """
        decisions: list[Decision | None] = []
        try:
            with self._world.lock:
                before = self._world.generation
                decisions.extend(self._one(p, now) for p in jobs)
        except Exception:
            self.undo(Decided(jobs[: len(decisions)], decisions, now))
            raise
        return self._reviewed(Decided(jobs, decisions, now), before)

    def release(self, waiting: Waiting, now: float) -> Decided:
        """Decide as many of the jobs that wait as there is room for, in the order in which they are offered.

        Raises:
            StoreUnavailable: Nothing was decided, and nothing stays deducted.
        """
        jobs: list[PendingJob] = []
        decisions: list[Decision | None] = []
        try:
            with self._world.lock:
                before = self._world.generation
                while (offered := waiting.offer()) is not None:
                    pending, early = offered
                    decision = self._one(pending, now, early=early)
                    if decision is not None and decision.waits:
                        waiting.declined(pending, decision)
                    else:
                        jobs.append(pending)
                        decisions.append(decision)
                        waiting.taken(pending, decision)
        except Exception:
            self.undo(Decided(jobs, decisions, now))
            raise
        return self._reviewed(Decided(jobs, decisions, now), before)

    def _reviewed(self, decided: Decided, generation: int) -> Decided:
        """Decisions that may be wrong on an old view of the store are made again with the newest one."""
        jobs, now = decided.jobs, decided.at
        decisions = list(decided.decisions)
        try:
            doubtful = self._doubtful(jobs, now)
            final = [at for at, d in enumerate(decisions) if d is not None and d.status in _FINAL]
            if final:
                self._refresh()
        except StoreUnavailable:
            self.undo(decided)
            self._world.relief += 1
            raise
        if not doubtful and not final:
            return decided
        with self._world.lock:
            if self._world.generation != generation:
                for at in final:
                    decisions[at] = self._one(jobs[at], now)
            for at, pending in enumerate(jobs):
                decision = decisions[at]
                if pending.id in doubtful and decision is not None:
                    if decision.cluster is not None and pending.job is not None:
                        self._settle(decision.cluster, pending.job)
                    decisions[at] = self._wait(pending, now)
        return Decided(jobs, decisions, now)

    def again(self, decided: Decided, now: float) -> Decided:
        """Other schedulers were faster where there was room: decide what was assigned with the current numbers."""
        decisions = list(decided.decisions)
        with self._world.lock:
            for at, _, _ in decided.assigned():
                decisions[at] = self._one(decided.jobs[at], now)
        return Decided(decided.jobs, decisions, now)

    def undo(self, decided: Decided) -> None:
        """Give back what the decisions reserved."""
        with self._world.lock:
            for _, job, decision in decided.assigned():
                assert decision.cluster is not None
                self._settle(decision.cluster, job)

    def admit(self, decided: Decided, *, refuse_running: bool = False) -> Decided:
        """Refuse the new submissions that go beyond a limit, and give back what they reserved.

        Raises:
            StoreUnavailable: Nothing stays deducted.
        """
        if self._limits is None:
            return decided
        try:
            found = self._limits.too_many(decided, refuse_running=refuse_running)
        except Exception:
            self.undo(decided)
            raise
        if not found:
            return decided
        decisions = list(decided.decisions)
        with self._world.lock:
            for at, why in found.items():
                pending, decision = decided.jobs[at], decisions[at]
                if decision is not None and decision.cluster is not None and pending.job is not None:
                    self._settle(decision.cluster, pending.job)
                refuse(pending, why)
                decisions[at] = None
        return Decided(decided.jobs, decisions, decided.at)

    def _settle(self, cluster: str, job: Job) -> None:
        self._world.settle(cluster, job.jobspec.demand)
        if self._limits is not None:
            self._limits.written(job)

    def _one(self, pending: PendingJob, now: float, *, early: bool = False) -> Decision | None:
        """The decision for one job, applied to the cache: the jobs after it see what it takes."""
        job = pending.job
        if job is None:
            return None
        if job.after:
            return Decision("held", code=DEPENDENCY)
        if job.unmet:
            return Decision("unsatisfiable", detail=job.unmet, code="dependency-never")
        if job.begin_at > now:
            why = f"starts in {job.begin_at - now:.0f} s at the earliest, as asked"
            return Decision("held", retry_in=job.begin_at - now, detail=why, code="begin-time")
        if pending.failover and not pending.admitted and not self._turns.take():
            why = "waits for its turn: its cluster is lost, and what waited there is placed elsewhere bit by bit"
            return Decision("held", retry_in=AGAIN, detail=why)
        pending.admitted = True
        if job.array is not None:
            return self._array(job, now)
        limit = self._limits.full(job) if self._limits is not None else ""
        decision = self._decider.decide(job, now, self._rng, early=early, limit=limit)
        if decision.status == "assigned":
            assert decision.cluster is not None
            self._world.reserve(decision.cluster, job.jobspec.demand)
            if self._limits is not None:
                self._limits.placed(job)
            if decision.probe_until:
                self._world.probe_at[decision.cluster] = decision.probe_until
        return decision

    def _array(self, job: Job, now: float) -> Decision:
        """End an array that no cluster can run as a job would. The elements of any other are decided one by one."""
        assert job.array is not None
        decision = self._decider.decide(job, now, self._rng)
        if decision.status in ("no-match", "unsatisfiable", "expired"):
            return decision
        detail = f"array of {job.array.size} elements"
        return Decision("held", looked=looked(decision), code=ARRAY, detail=detail)

    def _refresh(self) -> None:
        changes = self._store.clusters.changes(self._world.version)
        with self._world.lock:
            self._world.apply(changes)

    def _doubtful(self, jobs: Sequence[PendingJob], now: float) -> frozenset[str]:
        """Jobs that may run, or have run, on a cluster although the store does not know it.

        They were taken before and not settled, waited on hold, or came back from a cluster, while the store lost data:
        they wait until the agents have reported what they have. While registered clusters still report for a new epoch
        of the store, every submission waits: its client may have sent it before. A job that is older than the data
        waits for the first cluster to come back: no decision is right without any.
        """
        recalling = self._world.recalling(now) > 0
        again = [
            p
            for p in jobs
            if p.job
            and not p.job.satisfy_only
            and (recalling or p.back or not p.fresh or p.again or DOUBTFUL in p.delivery.headers)
        ]
        if not again:
            return frozenset()
        self._refresh()
        if not self._world.remembering(now):
            began = self._world.known_since if awaiting_clusters(self._world, now) else 0.0
            again = [p for p in again if p.job and p.job.submitted_at < began]
            if not again:
                return frozenset()
        records = self._store.jobs.get([p.id for p in again])
        return frozenset(
            p.id
            for p, known in zip(again, records, strict=True)
            if p.job and (known is None or (not known.terminal and known.attempt < p.job.attempt))
        )

    def _wait(self, pending: PendingJob, now: float) -> Decision:
        pending.hold_headers = {**pending.hold_headers, DOUBTFUL: True}
        why = "the store lost its data: it waits until the clusters have said whether one of them has it"
        retry_in = self._world.remembering(now) or min(_BACK, awaiting_clusters(self._world, now))
        return Decision("held", retry_in=retry_in, detail=why, in_doubt=True)
