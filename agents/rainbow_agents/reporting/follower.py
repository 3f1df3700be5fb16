"""Follows jobs to their end: what the executor reports goes into the journal, and out as events.

Reports may be missed (the executor was away, this agent was dead): from time to time, and whenever the executor comes
(back) up, all jobs are compared with what the executor has (see `reconciliation`). A held job that is not in the
journal is ended; one that may start and was never released is released; an end that nobody saw is written down; a job
that cannot be found any more ends `lost`. So does, after several tries, a job that the executor cannot look up: that is
the trouble of this job alone.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence

from rainbow.backoff import Backoff
from rainbow_agents.batcher import Batcher
from rainbow_agents.executors.base import Ended, Executor, ExecutorDown, News, Started, Up
from rainbow_agents.journal import Journal, JournalDown, Row
from rainbow_agents.reporting.reconciliation import Plan, compare

log = logging.getLogger(__name__)

_BATCH = 1000
#: Seconds that a report of an unknown job is kept: its handle may be about to be written down.
_UNKNOWN = 60.0
#: Seconds after which the executor is compared once more, where something may change by itself.
_LATE = 6.0
#: Comparisons in a row, and seconds, for which a job that cannot be looked up is not given up.
_LOOK_UPS = 5
_LOOK_UP_FOR = 60.0


class Follower:
    """One thread (`run`), which writes what comes through `progress` and compares. `Up` makes it compare now."""

    def __init__(
        self,
        journal: Journal,
        executor: Executor,
        progress: queue.SimpleQueue[News | Up],
        *,
        wake: Callable[[], None],
        changed: Callable[[Sequence[News]], None] = lambda _: None,
        every: float = 60.0,
        look_up_for: float = _LOOK_UP_FOR,
    ) -> None:
        self._journal = journal
        self._executor = executor
        self._progress = progress
        self._wake = wake
        self._changed = changed
        self._every = every
        self._look_up_for = look_up_for
        self._pace = Batcher()
        self._unknown: list[tuple[float, News]] = []
        self._missing: set[tuple[str, int]] = set()
        #: Jobs that cannot be looked up: how many times in a row, since when.
        self._unclear: dict[tuple[str, int], tuple[int, float]] = {}
        self._reconcile_at = float("inf")
        self._late_at = float("inf")

    @property
    def unclear(self) -> int:
        """Jobs that the executor could not look up when last asked."""
        return len(self._unclear)

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
                    log.warning("not compared with the executor: %s", exc, extra={"action": "reconcile"})
                    self._reconcile_at = now + min(5.0, self._every)
                except JournalDown as exc:
                    log.error("%s", exc, extra={"action": "reconcile"})  # noqa: TRY400

    def _take(self) -> list[News]:
        """Wait for what the executor reports, until it is time to compare; with it goes what was unknown before."""
        wait = min(1.0, max(0.0, min(self._reconcile_at, self._late_at) - time.monotonic()))
        batch: list[News] = []
        try:
            item = self._progress.get(timeout=wait)
            self._pace.gather()
            while True:
                if isinstance(item, Up):
                    now = time.monotonic()
                    self._reconcile_at, self._late_at = now, now + _LATE
                else:
                    batch.append(item)
                if len(batch) >= _BATCH:
                    break
                item = self._progress.get_nowait()
        except queue.Empty:
            pass
        if self._unknown and (not batch or len(self._unknown) < _BATCH):
            limit = time.monotonic() - _UNKNOWN
            batch = [h for since, h in self._unknown if since > limit] + batch
        return batch

    def _write(self, batch: Sequence[News]) -> None:
        since = {id(h): t for t, h in self._unknown}
        changed, unknown = self._journal.progress(batch)
        now = time.monotonic()
        self._unknown = [(since.get(id(h), now), h) for h in unknown][-10_000:]
        missed = {id(h) for h in unknown}
        for h in batch:
            if id(h) not in missed:
                _log(h)
        if changed:
            self._wake()
            self._changed(batch)

    # -- comparing ---------------------------------------------------------------------------------------------

    def reconcile(self) -> Plan:
        """Compare the journal with the executor, and put right what differs. Raises ExecutorDown, JournalDown."""
        executor = self._executor
        rows = [row for row in self._journal.active() if row.handle]
        recovery = executor.recover([row.held for row in rows])
        plan = compare(recovery, rows, lambda f: self._journal.get(f.mark.id, f.mark.attempt), time.time())
        if plan.orphans:
            log.info("ended %d held jobs that are in no journal", len(plan.orphans), extra={"action": "sweep"})
            executor.cancel(plan.orphans, "submitted by an agent that died before it wrote that down")
        if plan.release:
            executor.release(plan.release)
        for held, reason in plan.cancel:
            executor.cancel([held], reason)
        if plan.progress:
            self._write(plan.progress)
        # A job may have ended between the executor's answer and now: only what is missing twice is lost.
        again = [row for row in plan.missing if (row.id, row.attempt) in self._missing]
        self._missing = {(row.id, row.attempt) for row in plan.missing}
        self._lose([(row, "the executor does not know it any more, nor how it ended") for row in again])
        self._lose([(row, "the executor was replaced by a new one, which does not know it") for row in plan.strangers])
        self._lose(self._given_up(plan.unclear))
        if self._missing or self._unclear:
            self._late_at = min(self._late_at, time.monotonic() + _LATE)
        return plan

    def _given_up(self, unclear: Sequence[tuple[Row, str]]) -> list[tuple[Row, str]]:
        """Count the tries to look up jobs. Return those that were tried often enough, and for long enough."""
        now = time.monotonic()
        counted = {}
        lost = []
        for row, reason in unclear:
            key = (row.id, row.attempt)
            tries, since = self._unclear.get(key, (0, now))
            if tries == 0:
                log.warning("job cannot be looked up: %s", reason, extra={"action": "look-up", "id": row.id})
            counted[key] = (tries + 1, since)
            if tries + 1 >= _LOOK_UPS and now - since >= self._look_up_for:
                lost.append((row, reason))
        self._unclear = counted
        return lost

    def _lose(self, rows: Sequence[tuple[Row, str]]) -> None:
        for row, reason in rows:
            if self._journal.lose([row], reason):
                extra = {"action": "lost", "id": row.id, "attempt": row.attempt}
                log.warning("job lost: %s", reason, extra=extra)
                self._unclear.pop((row.id, row.attempt), None)
                self._wake()


def _log(progress: News) -> None:
    extra = {"id": progress.mark.id, "attempt": progress.mark.attempt, "handle": progress.handle}
    if isinstance(progress, Started):
        log.info("job started", extra={"action": "start", **extra})
    elif isinstance(progress, Ended):
        log.info("job %s", progress.state, extra={"action": "end", "returncode": progress.returncode, **extra})


__all__ = ["Follower"]
