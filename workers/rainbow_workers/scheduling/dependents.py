"""Jobs that wait for other jobs, until these have started or ended.

They are in the queue `rainbow.waiting.after`, durable. This worker holds a window of it, unacknowledged. The store
says which jobs started or ended (`stores.base.Dependencies`): those that wait for them are looked at then, and all
others from time to time. A job leaves for the schedulers' queue, with what became of its dependencies sealed beside it:
the scheduler places it, or ends it. So this worker decides nothing about clusters, and a message that is handled twice
does no harm.

A job is only recorded when all that it waits for are, so no two can wait for each other.
"""

from __future__ import annotations

import queue
from collections.abc import Sequence

from rainbow import topology
from rainbow.brokers.base import Consumer, Delivery, Message, Receipt
from rainbow.models.dependencies import DEPENDENCY, written
from rainbow.models.job import JobEvent, JobRecord
from rainbow_workers.events import news, recorded_events, stands
from rainbow_workers.scheduling.answers import answer, first_answers, happened, to_submitter
from rainbow_workers.scheduling.awaiting import Awaiting, Entry
from rainbow_workers.scheduling.decide import Decision, Job
from rainbow_workers.scheduling.listening import HELD_MOST, ListeningTask, Parts
from rainbow_workers.scheduling.outgoing import as_it_came
from rainbow_workers.scheduling.pending_job import PendingJob, of_two
from rainbow_workers.stores.base import Dependent

#: Seconds for which a job may wait for one that is unknown: that one may have been submitted a moment before, and be
#: with another scheduler, or with one that was killed.
GRACE = 10.0
#: Seconds between two looks at a job of which nothing is heard, at one that waits for a job of which the store lost the
#: record, and at one that waits for an unknown one.
_AGAIN, _ANEW, _SOON = 60.0, 5.0, 1.0
#: Seconds between two looks at what is due.
_TIDY = 1.0
#: Seconds after which a full window makes way for others in the queue: at first, when something happened to jobs for
#: which none in the window waits, and at most.
_TURN_FIRST, _TURN_MISSED, _TURN_MOST = 1.0, 5.0, 60.0
#: Jobs looked at, or given back, in one go.
_BATCH = 500


class Dependents(ListeningTask[Awaiting]):
    name = "dependents"
    queue = topology.DEPENDENTS_QUEUE

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts, Awaiting())
        #: Those that left, to be forgotten by the store: put in by the broker's thread.
        self._left: queue.SimpleQueue[Dependent] = queue.SimpleQueue()
        self._turn_at, self._turn_after = 0.0, _TURN_FIRST

    def ready(self) -> None:
        left = [self._left.get_nowait() for _ in range(self._left.qsize())]
        if left:
            self._store.dependencies.forget(left)
        super().ready()

    def _work(self, deliveries: Sequence[Delivery], consumer: Consumer, now: float) -> None:
        arrived = self._take(deliveries, consumer, now)
        self._look(arrived, now)
        self._hear(self._heard(), now)
        if now >= self._tidy_at:
            self._tidy_at = now + _TIDY
            self._tidy(consumer, now)

    def _drop(self, job_id: str) -> None:
        self._window.remove(job_id)

    # -- the window -----------------------------------------------------------------------------------------

    def _take(self, deliveries: Sequence[Delivery], consumer: Consumer, now: float) -> list[Entry]:
        arrived: list[Entry] = []
        elsewhere: list[PendingJob] = []
        again: list[PendingJob] = []
        strangers: list[PendingJob] = []
        for delivery in deliveries:
            pending = self._reader.read(delivery)
            self._at_hand.append(pending)
            job = pending.job
            if job is None or not job.after:
                elsewhere.append(pending)  # nothing to wait with: the scheduler says what is wrong
                continue
            known = self._window.get(pending.id)
            if known is not None and known.job.user != job.user:
                stays, goes = self._owner_first(known.pending, pending)
                strangers.append(goes)
                if stays is not pending:
                    continue
            elif known is not None and not delivery.redelivered:
                again.append(pending)
                continue
            elif known is not None:
                stays, goes = of_two(known.pending, pending)
                consumer.ack([goes.delivery])
                if stays is not pending:
                    continue
            arrived.append(self._window.add(pending, job, now, now + _AGAIN))
        if elsewhere:
            self._send(elsewhere, [as_it_came(p.delivery) for p in elsewhere], consumer)
        if again:
            self._answer_again(again, consumer)
        for pending in strangers:
            assert pending.job is not None
            pending.job.freed_at = now
        if strangers:
            taken = [self._outgoing.freed(p, f"job id {p.id} is taken: use a new UUID") for p in strangers]
            self._send(strangers, taken, consumer)
        return arrived

    def _owner_first(self, known: PendingJob, came: PendingJob) -> tuple[PendingJob, PendingJob]:
        """Two users' jobs under one id: the one that the ledger has, else the one that came first; then the other."""
        assert came.job is not None
        [record] = self._store.jobs.get([came.id])
        return (came, known) if record is not None and record.user == came.job.user else (known, came)

    def _answer_again(self, jobs: Sequence[PendingJob], consumer: Consumer) -> None:
        """Their submitters sent them twice: they wait already."""
        found = self._store.jobs.get([p.id for p in jobs])
        records = [r or JobRecord(id=p.id, state="submitted") for p, r in zip(jobs, found, strict=True)]
        deliveries = [p.delivery for p in jobs]
        self._broker.publish(first_answers(jobs, records)).then(lambda _: consumer.ack(deliveries))

    # -- looking --------------------------------------------------------------------------------------------

    def _hear(self, moved: Sequence[str], now: float) -> None:
        """Look at those who wait for jobs that started or ended, and at those that were ended while they waited."""
        asked: dict[Entry, list[str]] = {}
        ended: list[Entry] = []
        for job_id in dict.fromkeys(moved):
            own, waiting = self._window.get(job_id), self._window.waiting_for(job_id)
            if own is not None:
                ended.append(own)
            for entry in waiting:
                asked.setdefault(entry, []).append(job_id)
            if not waiting and own is None:
                # Those that wait for it may be further back in the queue.
                self._turn_at = min(self._turn_at, now + _TURN_MISSED)
        entries = list(asked.items())
        for start in range(0, len(entries), _BATCH):
            part = entries[start : start + _BATCH]
            found = self._store.dependencies.await_([e.dependent(others) for e, others in part])
            for (entry, others), progress in zip(part, found, strict=True):
                entry.advance(others, progress)
            self._settle([entry for entry, _ in part], now)
        self._look([e for e in ended if self._window.get(e.job.id) is e], now)

    def _look(self, entries: Sequence[Entry], now: float) -> None:
        """Ask for all that they wait for, and for their own records. Those that are new are recorded, and behind them
        those that waited for these to be known: so a whole chain at once, whatever its order.
        """
        todo = list(entries)
        looked: dict[Entry, None] = {}
        while todo:
            part, todo = todo[:_BATCH], todo[_BATCH:]
            looked.update(dict.fromkeys(part))
            todo = [*self._look_at(part, now), *todo]
        for start in range(0, len(looked), _BATCH):
            self._settle(list(looked)[start : start + _BATCH], now)

    def _look_at(self, part: Sequence[Entry], now: float) -> list[Entry]:
        """Look at these. Returns those in the window for which a job that they wait for is known since."""
        # In this order: one that is cancelled after the second is told of.
        found = self._store.dependencies.await_([e.dependent(e.open) for e in part])
        records = self._store.jobs.get([e.job.id for e in part])
        fresh: list[Entry] = []
        for entry, progress, record in zip(part, found, records, strict=True):
            entry.advance(list(entry.open), progress)
            entry.unknown = ""
            # The store that lost its data does not say when it hears again of a job.
            entry.look_at = now + (_ANEW if entry.missing else _AGAIN)
            if record is not None and not _waits(record, entry.job):
                entry.open.clear()  # it ended, or went on: the scheduler knows what to say
            elif record is None and entry.missing and not self._forgotten(entry.job, now):
                entry.look_at = now + _SOON
                if now - entry.since > GRACE:
                    entry.unknown = f"dependency {entry.missing[0]}: no such job (or it is another user's)"
            elif record is None and entry.open and not entry.job.unmet:
                fresh.append(entry)
        return [
            behind
            for entry in self._record(fresh, now)
            for behind in self._window.waiting_for(entry.job.id)
            if behind.job.user == entry.job.user and any(m.endswith(entry.job.id) for m in behind.missing)
        ]

    def _forgotten(self, job: Job, now: float) -> bool:
        """Whether the store may have known, when this job came, what it does not know now."""
        return job.submitted_at <= self._world.known_since or self._world.remembering(now) > 0

    def _record(self, entries: Sequence[Entry], now: float) -> list[Entry]:
        """Record that they wait, and tell. Returns those that the ledger has now."""
        if not entries:
            return []
        events: list[JobEvent] = []
        for entry in entries:
            detail = _detail(entry)
            reply = answer(entry.job.id, Decision("held"), entry.job.attempt - 1) | {"error": detail}
            events.append(happened(entry.job, "held", now, code=DEPENDENCY, detail=detail, answer=reply))
        jobspecs = {entry.job.id: entry.job.jobspec.document for entry in entries}
        written_ = list(zip(events, self._store.jobs.record(events, (), jobspecs), strict=True))
        told = [event for event, result in written_ if stands(event, result)]
        messages = [*recorded_events(self._keys, told), *(m for _, result in written_ for m in news(result))]
        for entry, (event, result) in zip(entries, written_, strict=True):
            if result.record.cancel_requested:
                entry.open.clear()
            elif result.applied and entry.pending.reply_to and event.answer is not None:
                messages.append(to_submitter(entry.pending, event.answer))
        if messages:
            self._broker.publish(messages)
        return [entry for entry, (event, result) in zip(entries, written_, strict=True) if stands(event, result)]

    # -- leaving --------------------------------------------------------------------------------------------

    def _settle(self, entries: Sequence[Entry], now: float) -> None:
        """Send those on that do not wait any more."""
        assert self._consumer is not None
        leaving = [e for e in entries if not e.open or e.job.unmet or e.unknown]
        if not leaving:
            return
        for entry in leaving:
            entry.job.freed_at = now
            self._window.remove(entry.job.id)
        self._turn_after = _TURN_FIRST
        self._send(
            [e.pending for e in leaving], [self._outgoing.freed(e.pending, e.unknown) for e in leaving], self._consumer
        )

    def _send(self, jobs: Sequence[PendingJob], messages: Sequence[Message], consumer: Consumer) -> None:
        def settle(receipt: Receipt) -> None:
            for pending, outcome in zip(jobs, receipt.outcomes, strict=True):
                if outcome is not None:
                    consumer.requeue([pending.delivery])
                    continue
                consumer.ack([pending.delivery])
                if pending.job is not None and messages[0].exchange == topology.SUBMIT:
                    job = pending.job
                    self._left.put(Dependent(job.id, job.user, [other for _, other in job.after]))

        self._broker.publish(messages).then(settle)

    def _tidy(self, consumer: Consumer, now: float) -> None:
        if self._epoch != self._world.epoch:
            self._epoch = self._world.epoch
            for entry in self._window:
                entry.look_at = now
        due: list[Entry] = []
        old: list[Entry] = []
        late: list[Entry] = []
        for entry in self._window:
            expires = entry.job.expires_at
            if expires is not None and now > expires:
                late.append(entry)
            elif now - entry.since > HELD_MOST:
                old.append(entry)
            elif now >= entry.look_at:
                due.append(entry)
        for entry in late:
            entry.open.clear()  # the scheduler says that it is too late
        self._settle(late, now)
        self._look(due[:_BATCH], now)
        if len(self._window) >= self._size:
            if not self._turn_at:
                self._turn_at = now + self._turn_after
            elif now >= self._turn_at:
                old = list(self._window) if self._broker.stats(self.queue).messages else old
                self._turn_after = min(_TURN_MOST, 2 * self._turn_after)
                self._turn_at = now + self._turn_after
        else:
            self._turn_at = 0.0
        for start in range(0, len(old), _BATCH):
            self._give_back(old[start : start + _BATCH], consumer)

    def _give_back(self, entries: Sequence[Entry], consumer: Consumer) -> None:
        """To the end of the queue, as a new message: a requeued one counts as a failed delivery, and comes first."""
        for entry in entries:
            self._window.remove(entry.job.id)
        jobs = [e.pending for e in entries]
        self._send(jobs, [self._outgoing.to_dependents(p) for p in jobs], consumer)


def _waits(record: JobRecord, job: Job) -> bool:
    """Whether the record is of this job, and says that it waits."""
    return record.user in (None, job.user) and record.state in ("held", "submitted") and not record.cancel_requested


def _detail(entry: Entry, most: int = 3) -> str:
    names = written((scheme, other) for other, schemes in entry.open.items() for scheme in schemes)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"waits for {', '.join(names[:most])}{more}"
