"""One pass over the jobs that wait: whose turn is next."""

from __future__ import annotations

import heapq
import itertools

from rainbow_workers.scheduling.decide import Decision, Payer
from rainbow_workers.scheduling.fair_share import FairShare, Standing
from rainbow_workers.scheduling.pending_job import PendingJob
from rainbow_workers.scheduling.window import Key, Kind, Window

#: Jobs decided in one go.
BATCH = 500


class Round:
    """Implements `deciding.Waiting`.

    The next job is of the account with the lowest usage for its weight, and in it of the user with the lowest usage
    for its own; of its kinds, the one with the most urgent job, then the oldest. A kind that has to wait is left out
    for the rest of the round, and so are kinds of other users that ask for the same of the same clusters.
    """

    def __init__(self, window: Window, patience: float, now: float, fair_share: FairShare) -> None:
        self._window = window
        self._patience = patience
        self._now = now
        self._fair_share = fair_share
        #: What this round has charged: it is in the sums of `fair_share` once it is dispatched.
        self._charged: dict[Payer, float] = {}
        self._of_account: dict[str, float] = {}
        self._number = itertools.count()
        self._heap: list[tuple[Standing, int, float, int, Kind]] = []
        for kind in window.kinds.values():
            self._push(kind)
        self._kind: Kind | None = None
        self._early = False
        self._skipped: list[Kind] = []
        #: What found no room in this round, and why.
        self._full: dict[Key, str] = {}
        self._placed = 0
        #: The jobs that were taken, and the one that is offered.
        self.at_hand: list[PendingJob] = []

    @property
    def full(self) -> bool:
        """There may be room for more."""
        return self._placed >= BATCH

    def offer(self) -> tuple[PendingJob, bool] | None:
        if self.full:
            return None
        while True:
            if self._kind is None:
                self._kind = self._next()
                if self._kind is None:
                    return None
            if self._known_full(self._kind):
                self._skipped.append(self._kind)
                self._kind = None
                continue
            entry = self._kind.first()
            if entry is not None:
                self.at_hand.append(entry.pending)
                return entry.pending, self._early
            self._kind = None

    def declined(self, pending: PendingJob, decision: Decision) -> None:
        kind = self._kind
        assert kind is not None
        self.at_hand.pop()
        kind.detail = decision.detail or ""
        kind.limited = decision.limited
        if decision.retry_in:
            entry = self._window.get(pending)
            assert entry is not None
            self._window.wake(entry, self._now + decision.retry_in)
        if kind.limited:
            # No cluster is kept from it: the others do not pass it.
            self._early, self._kind, kind.passed_at = False, None, 0.0
            return
        if not self._early and self._is_late(kind, pending):
            self._early = True  # offered once more
            return
        self._early = False
        self._skipped.append(kind)
        self._kind = None
        if not decision.retry_in:
            self._full[_asked(kind)] = kind.detail

    def _known_full(self, kind: Kind) -> bool:
        """Whether there is no room for what this kind asks for, and it is not to be bound early."""
        detail, entry = self._full.get(_asked(kind)), kind.first()
        if detail is None or kind.limited or (entry is not None and self._is_late(kind, entry.pending)):
            return False
        kind.detail = detail
        return True

    def _is_late(self, kind: Kind, pending: PendingJob) -> bool:
        """Whether others went by for too long. The less of the largest cluster a job leaves, the less chance has it of
        finding room."""
        assert pending.job is not None
        patience = self._patience * (1.0 - self._fair_share.size_of(pending.job))
        return bool(kind.passed_at) and self._now - kind.passed_at > patience

    def taken(self, pending: PendingJob, decision: Decision | None) -> None:
        kind, job = self._kind, pending.job
        assert kind is not None
        assert job is not None
        self._placed += 1
        self._window.remove(pending)
        cost = self._fair_share.cost(job, decision.cluster if decision is not None else None)
        account, _ = kind.payer
        self._charged[kind.payer] = self._charged.get(kind.payer, 0.0) + cost
        self._of_account[account] = self._of_account.get(account, 0.0) + cost
        kind.passed_at = 0.0
        for other in self._skipped:
            other.passed_at = other.passed_at or self._now
        self._skipped.clear()
        if not self._early:
            # One of a kind is bound early: the others have their turn when it has started.
            self._push(kind)
        self._early, self._kind = False, None

    def _push(self, kind: Kind) -> None:
        entry = kind.first()
        if entry is not None and entry.pending.job is not None:
            job = entry.pending.job
            place = (self._standing(kind), -job.priority, job.submitted_at, next(self._number))
            heapq.heappush(self._heap, (*place, kind))

    def _next(self) -> Kind | None:
        while self._heap:
            standing, *_, kind = heapq.heappop(self._heap)
            if self._standing(kind) > standing:
                self._push(kind)  # others of its account had their turn meanwhile
                continue
            return kind
        return None

    def _standing(self, kind: Kind) -> Standing:
        account, payer = kind.payer[0], kind.payer
        return self._fair_share.standing(payer, self._of_account.get(account, 0.0), self._charged.get(payer, 0.0))


def _asked(kind: Kind) -> Key:
    """What a kind asks for, of which clusters: its key without the user."""
    request, rights, _, usual = kind.key
    return request, rights, usual
