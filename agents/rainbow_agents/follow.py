"""Follows jobs to their end: what the executor tells goes into the journal, and out as events.

Words may be missed (the executor was away, this agent was dead): from time to time, and whenever the executor comes
(back) up, all jobs are compared with what the executor has. What is held and not in the journal is ended; what may
start and is still held is released; what ended unseen is written down; what cannot be found any more ends `lost`.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rainbow.backoff import Backoff
from rainbow_agents.executors.base import Ended, Executor, ExecutorDown, Found, Held, Recovery, Started
from rainbow_agents.journal import OVER, Journal, JournalDown, Row
from rainbow_agents.pace import Pace

log = logging.getLogger(__name__)

_BATCH = 1000
#: Seconds that news of a job nobody knows is kept: its handle may be about to be written down.
_UNKNOWN = 60.0
#: Seconds after the executor came up when it is compared once more: submissions may come in late.
_LATE = 6.0
#: Seconds that a try to submit may be under way before its held job is nobody's.
_ABANDONED = 900.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What comparing found to do."""

    news: list[Started | Ended]
    orphans: list[Held]
    release: list[Held]
    cancel: list[tuple[Held, str]]
    missing: list[Row]
    strangers: list[Row]


def compare(recovery: Recovery, rows: Iterable[Row], known: Callable[[Found], Row | None], now: float) -> Plan:
    """Journal against executor. Pure; `known` gives the row for a found job, over or not."""
    plan = Plan([], [], [], [], [], [])
    found = {job.mark: job for job in recovery.jobs}
    for job in recovery.jobs:
        row = known(job)
        ours = row is not None and row.claim == job.mark.claim
        held = Held(job.mark, job.handle, row.priority if row else 16)
        if not ours or row is None or row.state in OVER or row.state == "returned":
            if job.phase in ("held", "queued"):
                plan.orphans.append(held)
            continue
        if row.state == "taken":
            # Its outcome is on its way to whoever took it; unless that agent died and nobody will come for it.
            if job.phase == "held" and now - row.changed_at > _ABANDONED:
                plan.orphans.append(held)
            continue
        if job.phase == "ended":
            if job.ended is not None:
                if job.started_at is not None:
                    plan.news.append(Started(job.mark, job.handle, job.started_at))
                plan.news.append(job.ended)
            continue
        if row.cancel is not None:
            plan.cancel.append((held, row.cancel))
        elif job.phase == "held" and row.released:
            plan.release.append(held)
        if job.phase == "running" and row.state == "accepted":
            plan.news.append(Started(job.mark, job.handle, job.started_at or now))
    for row in rows:
        if row.mark not in found:
            (plan.missing if row.incarnation == recovery.incarnation else plan.strangers).append(row)
    return plan


class Follower:
    """Two threads' worth of following: `run` writes news down, `reconcile` is called by it from time to time."""

    def __init__(
        self,
        journal: Journal,
        *,
        wake: Callable[[], None],
        changed: Callable[[Sequence[Started | Ended]], None] = lambda _: None,
        every: float = 60.0,
    ) -> None:
        self._journal = journal
        self._wake = wake
        self._changed = changed
        self._every = every
        self._news: queue.SimpleQueue[Started | Ended | None] = queue.SimpleQueue()
        self._pace = Pace()
        self._unknown: list[tuple[float, Started | Ended]] = []
        self._missing: set[tuple[str, int]] = set()
        self._reconcile_at = float("inf")
        self._late_at = float("inf")
        self.executor: Executor | None = None
        self.last_reconcile = 0.0

    def tell(self, happening: Started | Ended) -> None:
        """From the executor, in any thread."""
        self._news.put(happening)

    def up(self) -> None:
        """The executor came up: compare now, and once more a little later."""
        now = time.monotonic()
        self._reconcile_at, self._late_at = now, now + _LATE
        self._news.put(None)

    def run(self, stop: threading.Event) -> None:
        backoff = Backoff(0.2, 10.0)
        while not stop.is_set():
            batch = self._take()
            while batch:
                try:
                    self._write(batch)
                    backoff.reset()
                    break
                except JournalDown as exc:  # kept until it can be written: nothing else may overtake it
                    log.error("%s", exc, extra={"action": "follow"})  # noqa: TRY400
                    if backoff.wait(stop):
                        return
            now = time.monotonic()
            if now >= min(self._reconcile_at, self._late_at):
                if now >= self._late_at:
                    self._late_at = float("inf")
                self._reconcile_at = now + self._every
                try:
                    self.reconcile()
                except ExecutorDown as exc:
                    log.info("not compared: %s", exc, extra={"action": "reconcile"})
                    self._reconcile_at = now + min(5.0, self._every)
                except JournalDown as exc:
                    log.error("%s", exc, extra={"action": "reconcile"})  # noqa: TRY400

    def _take(self) -> list[Started | Ended]:
        wait = min(1.0, max(0.0, min(self._reconcile_at, self._late_at) - time.monotonic()))
        batch: list[Started | Ended] = []
        try:
            first = self._news.get(timeout=wait)
            self._pace.gather()
            while True:
                if first is not None:
                    batch.append(first)
                if len(batch) >= _BATCH:
                    break
                first = self._news.get_nowait()
        except queue.Empty:
            pass
        if self._unknown and (not batch or len(self._unknown) < _BATCH):
            limit = time.monotonic() - _UNKNOWN
            batch = [h for since, h in self._unknown if since > limit] + batch
        return batch

    def _write(self, batch: Sequence[Started | Ended]) -> None:
        since = {id(h): t for t, h in self._unknown}
        changed, unknown = self._journal.progress(batch)
        now = time.monotonic()
        self._unknown = [(since.get(id(h), now), h) for h in unknown][-10_000:]
        if changed:
            self._wake()
            self._changed(batch)

    # -- comparing ---------------------------------------------------------------------------------------------

    def reconcile(self) -> Plan:
        """Compare the journal with the executor, and put right what differs. Raises ExecutorDown, JournalDown."""
        executor = self.executor
        if executor is None:
            raise ExecutorDown("there is no executor yet")
        rows = [row for row in self._journal.active() if row.handle]
        recovery = executor.recover([row.held for row in rows])
        plan = compare(recovery, rows, lambda f: self._journal.get(f.mark.id, f.mark.attempt), time.time())
        self.last_reconcile = time.time()
        if plan.orphans:
            log.info("ended %d held jobs nobody asked for", len(plan.orphans), extra={"action": "sweep"})
            executor.cancel(plan.orphans, "submitted by an agent that did not live to write it down")
        if plan.release:
            executor.release(plan.release)
        for held, reason in plan.cancel:
            executor.cancel([held], reason)
        if plan.news:
            self._write(plan.news)
        # A job may have ended between the executor's answer and now: only what is missing twice is lost.
        again = [row for row in plan.missing if (row.id, row.attempt) in self._missing]
        self._missing = {(row.id, row.attempt) for row in plan.missing}
        if self._missing:
            self._late_at = min(self._late_at, time.monotonic() + _LATE)
        lost = self._journal.lose(again, "the executor does not know it any more, nor how it ended")
        lost += self._journal.lose(plan.strangers, "the executor was replaced by a fresh one, which does not know it")
        if lost:
            for row in lost:
                log.warning("job lost", extra={"action": "lost", "id": row.id, "attempt": row.attempt})
            self._wake()
        return plan
