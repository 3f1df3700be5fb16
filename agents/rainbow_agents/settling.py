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

from rainbow.brokers.base import Delivery
from rainbow.errors import BadCredentials, RainbowError
from rainbow.models.job import JobEvent, RejectCode
from rainbow_agents.admission import Refusal
from rainbow_agents.checks import Job
from rainbow_agents.events import Publisher
from rainbow_agents.executors.base import Held, Mark, Outcome, Refused, Submitted, Undecided
from rainbow_agents.gate import Gate
from rainbow_agents.journal import Journal, JournalDown, Pending, Row
from rainbow_agents.pace import Pace
from rainbow_agents.underway import Flight, Underway

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
    refused: list[tuple[Job, Mark | None, JobEvent]] = field(default_factory=list)
    undecided: list[Mark] = field(default_factory=list)
    again: list[tuple[Job, Row]] = field(default_factory=list)


_Word = Outcome | tuple[Job, Verdict]


class Settling:
    """See the module."""

    def __init__(
        self,
        *,
        cluster: str,
        journal: Journal,
        publisher: Publisher,
        underway: Underway,
        gate: Gate,
        settle_within: float = SETTLE_WITHIN,
        on_accept: Callable[[Sequence[Mark]], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.last = 0.0
        self._cluster = cluster
        self._journal = journal
        self._publisher = publisher
        self._underway = underway
        self._gate = gate
        self._settle_within = settle_within
        self._on_accept = on_accept
        self._clock = clock
        self._pace = Pace()
        self._words: queue.SimpleQueue[_Word] = queue.SimpleQueue()

    def tell(self, outcome: Outcome) -> None:
        """From the executor."""
        self._words.put(outcome)

    def decided(self, job: Job, verdict: Verdict) -> None:
        self._words.put((job, verdict))

    def run(self, stop: threading.Event) -> None:
        """Until `stop`, and then for as long as something is under way (the agent ends the wait when it must)."""
        while not stop.is_set() or self._underway.unsettled:
            words = self._next()
            self._time_out()
            if words:
                try:
                    self._settle(words)
                except JournalDown as exc:
                    self._give_back(words)
                    self._gate.pause(str(exc))

    def _next(self) -> list[_Word]:
        out: list[_Word] = []
        try:
            out.append(self._words.get(timeout=0.1))
            self._pace.gather()
            while len(out) < _MOST:
                out.append(self._words.get_nowait())
        except queue.Empty:
            pass
        return out

    def _time_out(self) -> None:
        """Tries without an answer for too long: their deliveries go back, and what comes of them later is dropped."""
        late = self._underway.late(time.monotonic() - self._settle_within)
        for mark in late:
            self.tell(Undecided(mark, f"the executor did not answer within {self._settle_within:g} s"))
        if late:
            self._gate.pause(f"the executor did not answer within {self._settle_within:g} s")

    def _settle(self, words: Sequence[_Word]) -> None:
        batch = self._gather(words)
        decided = self._journal.decide(batch.submitted, [(event, mark) for _, mark, event in batch.refused])
        if batch.undecided:
            self._journal.returned(batch.undecided)
        resent = self._journal.again([row for _, row in batch.again]) if batch.again else []
        executor = self._gate.executor
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

    def _gather(self, words: Sequence[_Word]) -> _Batch:
        batch = _Batch()
        for word in words:
            if isinstance(word, tuple):
                job, verdict = word
                if isinstance(verdict, Row):
                    batch.again.append((job, verdict))
                elif isinstance(verdict, Refusal):
                    batch.refused.append((job, None, self._event(job, "rejected", verdict.code, verdict.detail)))
                else:
                    batch.refused.append((job, None, self._event(job, "cancelled", "cancelled", verdict.reason)))
                continue
            flight = self._underway.find(word.mark)
            if isinstance(word, Submitted):
                # Also one that comes too late: the journal will say that it is superseded.
                batch.submitted.append(word)
            elif flight is None:
                continue
            elif isinstance(word, Refused):
                event = self._event(flight.job, "rejected", word.code, word.detail)
                batch.refused.append((flight.job, word.mark, event))
            else:
                log.info("job given back: %s", word.detail, extra={"action": "undecided", "id": word.mark.id})
                batch.undecided.append(word.mark)
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

    def _finish(self, batch: _Batch, gone: set[Mark], sent: Sequence[Pending], confirmed: bool) -> None:
        """Release and settle. The deliveries are settled last, each by its own word."""
        marks = [s.mark for s in batch.submitted] + [m for _, m, _ in batch.refused if m is not None] + batch.undecided
        landed = {mark: flight for mark in marks if (flight := self._underway.land(mark)) is not None}
        back = [d for mark in batch.undecided if mark in landed for d in landed[mark].deliveries]
        acks: list[Delivery] = []
        rejects: list[Delivery] = []
        started: set[Mark] | None = None
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
        if batch.undecided:
            self._gate.pause("the executor could not take jobs")
        elif started is not None:
            self._gate.well()
        self.last = self._clock()
        self._underway.settle(ack=acks, reject=rejects, requeue=back)

    def _release(
        self, batch: _Batch, landed: Mapping[Mark, Flight], gone: set[Mark], sent: Sequence[Pending]
    ) -> set[Mark] | None:
        """Let start what may: what was accepted, its delivery still ours. None when that cannot be written down."""
        ours = self._underway.ours
        may = [
            s.mark
            for s in batch.submitted
            if s.mark in landed and s.mark not in gone and any(map(ours, landed[s.mark].deliveries))
        ]
        may += [row.mark for job, row in batch.again if row.state == "accepted" and ours(job.delivery)]
        try:
            rows = self._journal.release(may, sent)
        except JournalDown as exc:
            self._gate.pause(str(exc))
            return None
        executor = self._gate.executor
        executor.release([row.held for row in rows if row.cancel is None])
        executor.cancel([row.held for row in rows if row.cancel is not None], "cancelled")
        self._on_accept([row.mark for row in rows])
        return {row.mark for row in rows}

    def _open(self, mark: Mark, started: set[Mark]) -> bool:
        """Whether a job that was not let start is to be taken again, since what was submitted is gone."""
        if mark in started:
            return False
        row = self._journal.get(mark.id, mark.attempt)
        return row is None or row.state in ("returned", "taken")

    def _give_back(self, words: Sequence[_Word]) -> None:
        """The journal cannot be written: nothing was decided, nothing starts, all deliveries come again."""
        deliveries = []
        held = []
        for word in words:
            if isinstance(word, tuple):
                deliveries.append(word[0].delivery)
                continue
            flight = self._underway.land(word.mark)
            if flight is not None:
                deliveries.extend(flight.deliveries)
            if isinstance(word, Submitted):
                held.append(_held(word))
        if held and self._gate.given is not None:
            self._gate.given.cancel(held, "it could not be written down")
        self._underway.settle(requeue=deliveries)

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
        )

    def _log(self, batch: _Batch, gone: set[Mark]) -> None:
        for s in batch.submitted:
            if s.mark not in gone:
                extra = {"action": "accept", "id": s.mark.id, "attempt": s.mark.attempt, "handle": s.handle}
                log.info("job accepted", extra=extra)
        for _, _, event in batch.refused:
            extra = {"action": event.state, "id": event.id, "attempt": event.attempt, "code": event.code}
            log.info("job %s: %s", event.state, event.detail, extra=extra)


def _held(submitted: Submitted) -> Held:
    return Held(submitted.mark, submitted.handle)


__all__ = ["SETTLE_WITHIN", "Cancelled", "Settling", "Verdict"]
