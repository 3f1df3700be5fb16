"""What came of jobs is written down with its event, told, and only then settled with the queue.

The event is confirmed by the broker, then accepted jobs may start, then deliveries are acked. A job is released only
while its delivery is still ours after `accepted` was confirmed: a delivery that went back to the queue may have been
placed elsewhere by now. It then stays held until the delivery comes again (or a cancel, or the ledger's word; see
`limbo`). What is refused has its event confirmed before the delivery is rejected.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rainbow import tracing
from rainbow.brokers.base import Delivery
from rainbow.errors import BadCredentials, RainbowError
from rainbow.models.job import Dispatch, JobEvent, RejectCode
from rainbow_agents.batcher import Batcher
from rainbow_agents.executors.base import Executor, Held, Outcome, Refused, SubmissionKey, Submitted, Undecided
from rainbow_agents.intake.admission.policies import Refusal
from rainbow_agents.intake.gate import IntakeGate
from rainbow_agents.intake.in_flight import Flight, InFlight
from rainbow_agents.intake.validation import Job
from rainbow_agents.journal import Journal, JournalDown, Pending, Row
from rainbow_agents.reporting.events import Publisher

log = logging.getLogger(__name__)

#: Seconds that a try to submit may stay without an answer. Far below any `consumer_timeout` (RabbitMQ: 30 min).
SETTLE_WITHIN = 60.0
_CONFIRM = 30.0
_MOST = 500


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The job was cancelled before it came."""

    reason: str


#: What is decided of a job without the executor. A row was decided before: its delivery came again.
Verdict = Refusal | Cancelled | Row


@dataclass(slots=True)
class _Batch:
    """What one round of settling does, gathered before anything is written."""

    submitted: list[Submitted] = field(default_factory=list)
    refused: list[tuple[Job, SubmissionKey | None, JobEvent]] = field(default_factory=list)
    undecided: list[SubmissionKey] = field(default_factory=list)
    again: list[tuple[Job, Row]] = field(default_factory=list)


_Item = Outcome | tuple[Job, Verdict]


class Finalizer:
    """See the module."""

    def __init__(
        self,
        *,
        cluster: str,
        journal: Journal,
        publisher: Publisher,
        in_flight: InFlight,
        gate: IntakeGate,
        executor: Executor,
        inbox: queue.SimpleQueue[Any],
        settle_within: float = SETTLE_WITHIN,
        on_accept: Callable[[Sequence[SubmissionKey]], None] = lambda _: None,
        doubt: Callable[[Dispatch], str | None] = lambda _: None,
        on_doubt: Callable[[Sequence[tuple[str, int]]], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.last = 0.0
        self._cluster = cluster
        self._journal = journal
        self._publisher = publisher
        self._in_flight = in_flight
        self._gate = gate
        self._executor = executor
        #: Outcomes from the executor, and what `decided` puts beside them.
        self._inbox: queue.SimpleQueue[_Item] = inbox
        self._settle_within = settle_within
        self._on_accept = on_accept
        self._doubt = doubt
        self._on_doubt = on_doubt
        self._clock = clock
        self._pace = Batcher()

    def decided(self, job: Job, verdict: Verdict) -> None:
        self._inbox.put((job, verdict))

    def run(self, stop: threading.Event) -> None:
        """Until `stop`, and then for as long as something is under way (the agent ends the wait when it must)."""
        while not stop.is_set() or self._in_flight.unsettled:
            items = self._next()
            self._time_out()
            if items:
                try:
                    self._settle(items)
                except JournalDown as exc:
                    self._give_back(items)
                    self._gate.pause(str(exc))

    def _next(self) -> list[_Item]:
        out: list[_Item] = []
        try:
            out.append(self._inbox.get(timeout=0.1))
            self._pace.gather()
            while len(out) < _MOST:
                out.append(self._inbox.get_nowait())
        except queue.Empty:
            pass
        return out

    def _time_out(self) -> None:
        """Tries without an answer for too long: their deliveries go back, and what comes of them later is dropped."""
        late = self._in_flight.late(time.monotonic() - self._settle_within)
        for mark in late:
            self._inbox.put(Undecided(mark, f"the executor did not answer within {self._settle_within:g} s"))
        if late:
            self._gate.pause(f"the executor did not answer within {self._settle_within:g} s")

    def _settle(self, items: Sequence[_Item]) -> None:
        batch = self._gather(items)
        flights = {s.mark: self._in_flight.find(s.mark) for s in batch.submitted}
        held = [mark for mark, f in flights.items() if f is not None and self._doubt(f.job.dispatch) is not None]
        decided = self._journal.decide(batch.submitted, [(event, mark) for _, mark, event in batch.refused], held)
        if batch.undecided:
            self._journal.returned(batch.undecided)
        resent = self._journal.outbox.repeat([row for _, row in batch.again]) if batch.again else []
        executor = self._executor
        if decided.superseded:
            log.info(
                "stood down: somebody else has %d of these jobs", len(decided.superseded), extra={"action": "stale"}
            )
            executor.cancel([_held(s) for s in decided.superseded], "submitted twice")
        if decided.cancelled:
            executor.cancel([_held(s) for s, _ in decided.cancelled], "cancelled before it was accepted")
        sent = [*(p for _, p in decided.accepted), *(p for _, p in decided.cancelled), *decided.refused, *resent]
        confirmed = self._confirm(sent)
        self._finish(batch, {*(s.mark for s in decided.superseded), *decided.lapsed}, sent, confirmed)

    def _gather(self, items: Sequence[_Item]) -> _Batch:
        batch = _Batch()
        for item in items:
            if isinstance(item, tuple):
                job, verdict = item
                if isinstance(verdict, Row):
                    batch.again.append((job, verdict))
                elif isinstance(verdict, Refusal):
                    batch.refused.append((job, None, self._event(job, "rejected", verdict.code, verdict.detail)))
                else:
                    batch.refused.append((job, None, self._event(job, "cancelled", "cancelled", verdict.reason)))
                continue
            flight = self._in_flight.find(item.mark)
            if isinstance(item, Submitted):
                # Also one that comes too late: the journal will say that it is superseded.
                batch.submitted.append(item)
            elif flight is None:
                continue
            elif isinstance(item, Refused):
                event = self._event(flight.job, "rejected", item.code, item.detail)
                batch.refused.append((flight.job, item.mark, event))
            else:
                log.info("job given back: %s", item.detail, extra={"action": "undecided", "id": item.mark.id})
                batch.undecided.append(item.mark)
        return batch

    def _confirm(self, pending: Sequence[Pending]) -> bool:
        """Whether the broker has all these events."""
        if not pending:
            return True
        try:
            self._publisher.publish(pending).check(_CONFIRM)
        except BadCredentials:
            raise
        except RainbowError as exc:
            self._gate.pause(f"events are not confirmed: {exc}")
            return False
        return True

    def _finish(self, batch: _Batch, gone: set[SubmissionKey], sent: Sequence[Pending], confirmed: bool) -> None:
        """Release and settle. The deliveries are settled last, each by its own word."""
        marks = [s.mark for s in batch.submitted] + [m for _, m, _ in batch.refused if m is not None] + batch.undecided
        landed = {mark: flight for mark in marks if (flight := self._in_flight.land(mark)) is not None}
        back = [d for mark in batch.undecided if mark in landed for d in landed[mark].deliveries]
        acks: list[Delivery] = []
        rejects: list[Delivery] = []
        started: set[SubmissionKey] | None = None
        if confirmed:
            started = self._release(batch, landed, gone, sent)
        if started is None:
            # Nothing may start or be settled on events that may not have arrived: all of it comes again.
            undecided = set(batch.undecided)
            back += [d for mark, f in landed.items() if mark not in undecided for d in f.deliveries]
            back += [job.delivery for job, mark, _ in batch.refused if mark is None]
            back += [job.delivery for job, _ in batch.again]
        else:
            for s in batch.submitted:
                if s.mark in landed:
                    (back if s.mark in gone or self._open(s.mark, started) else acks).extend(landed[s.mark].deliveries)
            for job, mark, event in batch.refused:
                deliveries = landed[mark].deliveries if mark in landed else [job.delivery]
                (back if mark in gone else rejects if event.state == "rejected" else acks).extend(deliveries)
            for job, row in batch.again:
                (rejects if row.state == "rejected" else acks).append(job.delivery)
            self._log(batch, gone)
            if tracing.is_on():
                self._trace(batch, landed, gone)
        if batch.undecided:
            self._gate.pause("the executor could not take jobs")
        elif started is not None:
            self._gate.well()
        self.last = self._clock()
        self._in_flight.settle(ack=acks, reject=rejects, requeue=back)

    def _release(
        self, batch: _Batch, landed: Mapping[SubmissionKey, Flight], gone: set[SubmissionKey], sent: Sequence[Pending]
    ) -> set[SubmissionKey] | None:
        """Let start what may: what was accepted, its delivery still ours. None when that cannot be written down.

        A job whose dispatch is in doubt stays held until the ledger confirms it (see `held_jobs`).
        """
        ours = self._in_flight.ours
        able = [
            (s.mark, landed[s.mark].job)
            for s in batch.submitted
            if s.mark in landed and s.mark not in gone and any(map(ours, landed[s.mark].deliveries))
        ]
        able += [(row.mark, job) for job, row in batch.again if row.state == "accepted" and ours(job.delivery)]
        doubtful = {mark: why for mark, job in able if (why := self._doubt(job.dispatch)) is not None}
        may = [mark for mark, _ in able if mark not in doubtful]
        try:
            rows = self._journal.release(may, sent)
        except JournalDown as exc:
            self._gate.pause(str(exc))
            return None
        if doubtful:
            why = next(iter(doubtful.values()))
            log.info("%d jobs wait for the ledger: %s", len(doubtful), why, extra={"action": "confirm"})
            self._on_doubt([(mark.id, mark.attempt) for mark in doubtful])
        executor = self._executor
        executor.release([row.held for row in rows if row.cancel is None])
        executor.cancel([row.held for row in rows if row.cancel is not None], "cancelled")
        self._on_accept([row.mark for row in rows])
        return {row.mark for row in rows}

    def _open(self, mark: SubmissionKey, started: set[SubmissionKey]) -> bool:
        """Whether a job that was not let start is to be taken again, since what was submitted is gone."""
        if mark in started:
            return False
        row = self._journal.get(mark.id, mark.attempt)
        return row is None or row.state in ("returned", "taken")

    def _give_back(self, items: Sequence[_Item]) -> None:
        """The journal cannot be written: nothing was decided, nothing starts, all deliveries come again."""
        deliveries = []
        held = []
        for item in items:
            if isinstance(item, tuple):
                deliveries.append(item[0].delivery)
                continue
            flight = self._in_flight.land(item.mark)
            if flight is not None:
                deliveries.extend(flight.deliveries)
            if isinstance(item, Submitted):
                held.append(_held(item))
        if held:
            self._executor.cancel(held, "it could not be written down")
        self._in_flight.settle(requeue=deliveries)

    def _event(self, job: Job, state: str, code: RejectCode | str, detail: str) -> JobEvent:
        d = job.dispatch
        return JobEvent(
            id=d.id,
            attempt=d.attempt,
            cluster=self._cluster,
            state=state,
            at=self._clock(),
            user=d.user,
            name=d.name,
            code=code,
            detail=detail[:1000],
            grant=d.grant or None,
        )

    def _trace(self, batch: _Batch, landed: Mapping[SubmissionKey, Flight], gone: set[SubmissionKey]) -> None:
        """Record what was taken and refused as steps of the jobs' traces."""
        now, moment = self._clock(), time.monotonic()
        for s in batch.submitted:
            if s.mark in landed and s.mark not in gone:
                flight = landed[s.mark]
                self._step(flight.job, now - (moment - flight.since), now)
        for job, mark, event in batch.refused:
            flown = landed.get(mark) if mark is not None else None
            begun = event.at if flown is None else now - (moment - flown.since)
            self._step(job, begun, now, event.detail if event.state == "rejected" else None, event.code)

    def _step(self, job: Job, begun: float, now: float, error: str | None = None, code: str | None = None) -> None:
        parent, d = tracing.parent_of(job.delivery.headers), job.dispatch
        about = {"job": d.id, "attempt": d.attempt, "cluster": self._cluster, "code": code}
        tracing.ended("rainbow.accept", parent, begun, now, error, **about)

    def _log(self, batch: _Batch, gone: set[SubmissionKey]) -> None:
        for s in batch.submitted:
            if s.mark not in gone:
                extra = {"action": "accept", "id": s.mark.id, "attempt": s.mark.attempt, "handle": s.handle}
                log.info("job accepted", extra=extra)
        for _, _, event in batch.refused:
            extra = {"action": event.state, "id": event.id, "attempt": event.attempt, "code": event.code}
            log.info("job %s: %s", event.state, event.detail, extra=extra)


def _held(submitted: Submitted) -> Held:
    return Held(submitted.mark, submitted.handle)


__all__ = ["SETTLE_WITHIN", "Cancelled", "Finalizer", "Verdict"]
