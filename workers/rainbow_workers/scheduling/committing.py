"""Committing, the second stage: `Decided` in, `Committed` out. The ledger has the assignments then."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from rainbow.errors import StoreUnavailable
from rainbow_workers.clusters.cache import ClusterCache
from rainbow_workers.scheduling.answers import looked, terms
from rainbow_workers.scheduling.decide import Decision, Job
from rainbow_workers.scheduling.deciding import Deciding
from rainbow_workers.scheduling.stages import Committed, Decided, Outcome
from rainbow_workers.stores.base import Assigned, Assigning, Assignment, Changes, Store

#: How often a batch is decided again because others took the room meanwhile; then it goes where it may have to wait.
OVERTAKEN = 5
_NEW = Outcome(None, False)


@dataclass(slots=True, eq=False)
class Commit:
    """A batch on its way to the ledger: `Committing.finish` or `Committing.drop` ends it."""

    decided: Decided
    assigning: Assigning | None


class Committing:
    """Writes assignments by compare-and-set, one round trip a batch."""

    def __init__(
        self,
        store: Store,
        world: ClusterCache,
        deciding: Deciding,
        *,
        reserve_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._world = world
        self._deciding = deciding
        self._reserve_s = reserve_s
        self._clock = clock

    def begin(self, decided: Decided, *, insist: bool = False) -> Commit:
        """Send the assignments. With `insist` they hold also where the room was taken meanwhile.

        Raises:
            StoreUnavailable: Nothing was sent, and nothing stays deducted.
        """
        assignments = [self._assignment(job, decision, decided.at) for _, job, decision in decided.assigned()]
        if not assignments:
            return Commit(decided, None)
        with self._world.lock:
            version = self._world.version
            room = {} if insist else self._world.room({a.cluster for a in assignments})
        try:
            return Commit(decided, self._store.jobs.assigning(assignments, version, room))
        except StoreUnavailable:
            self._deciding.undo(decided)
            raise

    def finish(self, commit: Commit) -> Committed:
        """Wait for the ledger. A batch that was overtaken by other schedulers is decided again, a few times.

        Raises:
            StoreUnavailable: The ledger may have the assignments or not; the deliveries find out when they come again.
        """
        for round_ in range(1, OVERTAKEN + 2):
            assigned = self._wait(commit)
            if assigned is None:
                return Committed(commit.decided, [])
            if not assigned.crowded:
                repeated = assigned.repeated
                outcomes = [
                    _NEW if r is None and at not in repeated else Outcome(r, at in repeated)
                    for at, r in enumerate(assigned.outcomes)
                ]
                return Committed(commit.decided, outcomes)
            decided = self._deciding.again(commit.decided, self._clock())
            commit = self.begin(decided, insist=round_ == OVERTAKEN)
        raise AssertionError("unreachable: an insisting commit is never overtaken")

    def drop(self, commit: Commit) -> None:
        """Do nothing more for this batch: its deliveries come again, and find what the ledger has."""
        if commit.assigning is not None:
            commit.assigning.drop()
        self._deciding.undo(commit.decided)

    def _wait(self, commit: Commit) -> Assigned | None:
        if commit.assigning is None:
            return None
        changes: Changes | None = None
        try:
            assigned = commit.assigning.wait()
            changes = assigned.changes
        finally:
            # What was deducted is in the store's own sums from these changes on, or was given up.
            with self._world.lock:
                self._deciding.undo(commit.decided)
                if changes is not None:
                    self._world.apply(changes)
        return assigned

    def _assignment(self, job: Job, decision: Decision, now: float) -> Assignment:
        assert decision.cluster is not None
        return Assignment(
            id=job.id,
            attempt=job.attempt,
            cluster=decision.cluster,
            user=job.user,
            account=job.account,
            name=job.name,
            demand=job.jobspec.demand,
            at=now,
            submitted_at=job.submitted_at,
            answer=terms(job.id, decision, job.attempt),
            reserve_s=self._reserve_s,
            registration=self._registration(decision.cluster),
            looked=looked(decision),
            array=job.element.array if job.element is not None else None,
            index=job.element.index if job.element is not None else None,
            jobspec=job.jobspec.document,
        )

    def _registration(self, cluster: str) -> str:
        known = self._world.clusters.get(cluster)
        return known.record.registration if known is not None else ""
