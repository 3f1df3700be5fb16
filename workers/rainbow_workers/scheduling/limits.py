"""Limits of users and accounts: jobs on clusters, jobs that wait, submissions a second.

The ledger counts the jobs of all schedulers. Between two looks at its counts, a process adds what it decided itself.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from rainbow.errors import TooManyRequests
from rainbow.models.shares import Level, ShareTerms
from rainbow_workers.headers import KIND
from rainbow_workers.scheduling.decide import Job, Payer
from rainbow_workers.scheduling.pending_job import PendingJob, Refusal
from rainbow_workers.scheduling.share_terms import ShareTable
from rainbow_workers.scheduling.stages import Decided
from rainbow_workers.stores.base import Store, Tally

#: Seconds between two looks at the counts.
_EVERY = 0.1


class Limits:
    """Who has as many jobs as it may. Decisions of one process are made one after the other, under the cache's lock."""

    def __init__(self, store: Store, table: ShareTable, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._table = table
        self._clock = clock
        self._next = 0.0
        self._seen: tuple[Mapping[Payer, Tally], int] = ({}, 0)
        self._waiting: Mapping[tuple[Level, str], int] = {}
        self._running: Mapping[tuple[Level, str], int] = {}
        #: Decided and not in the ledger yet; and in the ledger, perhaps after it was looked at.
        self._decided: Counter[tuple[Level, str]] = Counter()
        self._written: Counter[tuple[Level, str]] = Counter()

    def refresh(self) -> bool:
        """Look at the counts, if anybody has a limit. True when they, or the limits, have changed.

        Raises StoreUnavailable.
        """
        now = self._clock()
        if not self._table.bounded or now < self._next:
            return False
        self._next = now + _EVERY
        self._written = Counter()
        tallies = self._store.jobs.tally()
        waiting: Counter[tuple[Level, str]] = Counter()
        running: Counter[tuple[Level, str]] = Counter()
        for payer, tally in tallies.items():
            for key in _keys(payer):
                waiting[key] += tally.waiting
                running[key] += tally.running
        self._waiting, self._running = waiting, running
        seen, self._seen = self._seen, (tallies, self._table.version)
        return seen != self._seen

    def placed(self, job: Job) -> None:
        """The job was given a cluster, and the ledger does not have it yet."""
        if self._table.bounded:
            self._decided.update(_keys(job.payer))

    def written(self, job: Job) -> None:
        """What was decided is in the ledger now, or was given up."""
        if not self._decided:
            return
        for key in _keys(job.payer):
            if key in self._decided:
                self._written[key] += 1
                if self._decided[key] > 1:
                    self._decided[key] -= 1
                else:
                    del self._decided[key]

    def full(self, job: Job) -> str:
        """Why no more jobs like this one may be on clusters now; empty if they may."""
        if not self._table.bounded:
            return ""
        for key, terms in self._bounds(job):
            most = terms.max_running
            if most is not None and self._running.get(key, 0) + self._decided[key] + self._written[key] >= most:
                return f"{key[0]} {key[1]!r} has as many jobs on clusters as it may ({most})"
        return ""

    def waits(self, job: Job, more: Mapping[tuple[Level, str], int]) -> str | None:
        """Why no more jobs like this one may wait, with so many `more` that are about to; None if they may."""
        for key, terms in self._bounds(job):
            most = terms.max_waiting
            if most is not None and self._waiting.get(key, 0) + more.get(key, 0) >= most:
                return f"{key[0]} {key[1]!r} has as many jobs waiting as it may ({most})"
        return None

    def _bounds(self, job: Job) -> Iterator[tuple[tuple[Level, str], ShareTerms]]:
        for key in _keys(job.payer):
            yield key, self._table.terms(*key)

    # -- submissions --------------------------------------------------------------------------------------

    def too_many(self, decided: Decided, *, refuse_running: bool = False) -> dict[int, str]:
        """The new submissions of a batch, by position, that go beyond a limit, and why.

        A job that is known is none: its answer was lost, and it is told what became of it. Raises StoreUnavailable.
        """
        if not self._table.bounded:
            return {}
        new = [
            (at, pending, pending.job, decision)
            for at, (pending, decision) in enumerate(zip(decided.jobs, decided.decisions, strict=True))
            if pending.job is not None and decision is not None and _comes_in(pending) and not pending.job.satisfy_only
        ]
        found = self._fast([(at, job) for at, _, job, _ in new])
        more: Counter[tuple[Level, str]] = Counter()
        for at, _, job, decision in new:
            if at in found or not decision.waits:
                continue
            why = decision.detail if decision.limited and refuse_running else self.waits(job, more)
            if why is not None:
                found[at] = why
            else:
                more.update(_keys(job.payer))
        if found:
            records = self._store.jobs.get([decided.jobs[at].id for at in found])
            found = {at: why for (at, why), record in zip(found.items(), records, strict=True) if record is None}
        return found

    def _fast(self, new: Sequence[tuple[int, Job]]) -> dict[int, str]:
        """Those of new submissions that come faster than they may."""
        found: dict[int, str] = {}
        groups: dict[tuple[Level, str], list[int]] = {}
        for at, job in new:
            for key, terms in self._bounds(job):
                if terms.max_rate is not None:
                    groups.setdefault(key, []).append(at)
        for key, places in groups.items():
            rate = self._table.terms(*key).max_rate or 0.0
            seconds = max(1.0, 1.0 / rate)
            most = max(1, int(rate * seconds))
            window = int(self._clock() // seconds)
            total = self._store.shares.submitted(":".join(key), len(places), window, seconds)
            left = max(0, most - (total - len(places)))
            why = f"{key[0]} {key[1]!r} submits faster than it may ({rate:g} jobs a second)"
            found.update(dict.fromkeys(places[left:], why))
        return found


def refuse(pending: PendingJob, why: str) -> None:
    """Make a refusal of a submission that goes beyond a limit."""
    error = f"{why}: submit it again later"
    pending.refusal = Refusal("denied", error, TooManyRequests.code, dead=pending.reply_to is None)


def _comes_in(pending: PendingJob) -> bool:
    return pending.fresh and not pending.again and KIND not in pending.delivery.headers


def _keys(payer: Payer) -> tuple[tuple[Level, str], tuple[Level, str]]:
    account, user = payer
    return ("user", user), ("account", account)
