"""Job arrays: their elements become jobs bit by bit, as room, the array's own limit and a cancel have it.

An array is one message in the queue `rainbow.waiting.array`, durable, until it has ended. This worker holds it
unacknowledged. It sends so many elements to the schedulers' queue that some always wait for room, each with an id that
follows from the array's and its index. The ledger counts in the array's record, in the step that changes an element,
how many are in which state, and says that it did (`stores.base.Dependencies.moved`): then further ones are sent.

When this worker dies, another one begins after as many elements as the ledger counts. At least that many were sent, so
none is left out; one that is sent twice has the same id, and runs once. No more are sent after the array was cancelled,
and those that are on their way are not assigned (`stores.base.Ledger.record`).

Which elements have ended is noted in the message of the array, once a minute. In a new epoch of the store that is
compared with what clusters report: what ended earlier is recorded again, and what neither knows is sent again
(`array_restoring`). Nothing is sent before each registered cluster has reported, or was disabled or deleted: elements
that the store lost may be on one that is away.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rainbow import topology
from rainbow.brokers.base import Consumer, Delivery, Message
from rainbow.models.arrays import Array
from rainbow.models.cluster import Revocation
from rainbow.models.ids import element_id
from rainbow.models.job import TERMINAL, JobEvent, JobRecord
from rainbow_workers.events import news, recorded_events, stands
from rainbow_workers.scheduling.answers import happened
from rainbow_workers.scheduling.array_progress import Progress, of_route
from rainbow_workers.scheduling.array_restoring import Restoring, known, unheard
from rainbow_workers.scheduling.cancelling import Cancelling
from rainbow_workers.scheduling.decide import Job
from rainbow_workers.scheduling.listening import HELD_MOST, ListeningTask, Parts
from rainbow_workers.scheduling.outgoing import as_it_came
from rainbow_workers.scheduling.pending_job import PendingJob
from rainbow_workers.scheduling.publishing import revoked
from rainbow_workers.stores.base import Cursor
from rainbow_workers.stores.history import ARRAY, ON_CLUSTER

log = logging.getLogger(__name__)

#: Elements of one array that are with the schedulers and on no cluster yet, at most.
AHEAD = 1000
#: Arrays that are looked at, and elements that are cancelled, in one go.
_BATCH = 500
#: Seconds between two looks at an array of which nothing is heard, and after a look that was not enough.
_AGAIN, _SOON = 60.0, 1.0
#: Seconds between two looks at which elements have ended, for the array's message. Workers write ends that they decided
#: themselves again for as long (`stores.confirmed`), clusters those that they reported for much longer.
_NOTE = 50.0
_CONFIRM_S = 30.0


@dataclass(slots=True, eq=False)
class Entry:
    """An array that is held here. Times are in seconds since 1970.

    Attributes:
        cancelled: Elements on clusters whose cancel was asked for, once the array is cancelled.
        restoring: While it is compared with a store that lost its data.
    """

    pending: PendingJob
    job: Job
    array: Array
    progress: Progress
    since: float
    look_at: float
    note_at: float
    cancelled: set[str] = field(default_factory=set)
    restoring: Restoring | None = None


class Arrays(ListeningTask[dict[str, Entry]]):
    name = "arrays"
    queue = topology.ARRAYS_QUEUE
    arrays = True

    def __init__(self, parts: Parts, cancelling: Cancelling, keep: float) -> None:
        """`keep` is for how many seconds the store knows what has ended."""
        super().__init__(parts, {})
        self._cancelling = cancelling
        self._keep = keep
        self._revocations: Sequence[Revocation] = ()
        self._told_epoch = 0

    def _work(self, deliveries: Sequence[Delivery], consumer: Consumer, now: float) -> None:
        for delivery in deliveries:
            self._take(self._reader.read(delivery), consumer, now)
        for array_id in self._heard():
            if array_id in self._window:
                self._window[array_id].look_at = now
        if now >= self._tidy_at:
            self._tidy_at = now + _SOON
            self._tidy(consumer, now)
        self._look([entry for entry in self._window.values() if entry.look_at <= now], consumer, now)

    def _drop(self, job_id: str) -> None:
        self._window.pop(job_id, None)

    # -- the window -----------------------------------------------------------------------------------------

    def _take(self, pending: PendingJob, consumer: Consumer, now: float) -> None:
        self._at_hand.append(pending)
        job = pending.job
        if job is None or job.array is None:
            if pending.refusal is not None and self._given_up(pending, now):
                consumer.ack([pending.delivery])
                return
            # The scheduler says what is wrong.
            self._send_on(pending, as_it_came(pending.delivery), consumer)
            return
        held = self._window.get(pending.id)
        if held is not None and held.job.user != job.user:
            job.freed_at = now
            self._send_on(pending, self._outgoing.freed(pending, _taken(pending.id)), consumer)
            return
        progress = of_route(job.array, pending.progress)
        if held is not None:
            # Sent twice, or delivered again behind a lost connection: then only this delivery is good. What either
            # knows of it holds.
            consumer.ack([held.pending.delivery])
            mine = held.progress
            if (len(mine.ends), mine.next) >= (len(progress.ends), progress.next):
                progress = mine
        self._window[pending.id] = Entry(pending, job, job.array, progress, now, now, now + _NOTE)

    def _given_up(self, pending: PendingJob, now: float) -> bool:
        """End an array that began and may not go on: its token was revoked. Returns whether there is one."""
        [record] = self._store.jobs.get([pending.id])
        if record is None or record.indices is None or record.terminal or record.state == "held":
            return False
        assert pending.refusal is not None
        self._stop(record, set())
        event = JobEvent(
            id=record.id, attempt=1, state="cancelled", at=now, user=record.user, detail=pending.refusal.error
        )
        self._told(event)
        return True

    def _tidy(self, consumer: Consumer, now: float) -> None:
        lost, self._epoch = self._epoch != self._world.epoch, self._world.epoch
        revocations = self._world.revocations
        changed, self._revocations = revocations is not self._revocations, revocations
        for entry in list(self._window.values()):
            if lost or (changed and revoked(entry.job, revocations)):
                entry.look_at = now
            noted = now >= entry.note_at and self._note(entry, now)
            # What has gaps would be compared with the store once more.
            if now - entry.since > HELD_MOST or (noted and not entry.progress.gaps and not entry.restoring):
                # To the end of the queue, as a new message: a requeued one counts as a failed delivery.
                self._drop(entry.job.id)
                message = self._outgoing.to_arrays(entry.pending, entry.progress.as_route())
                self._send_on(entry.pending, message, consumer)

    def _note(self, entry: Entry, now: float) -> bool:
        """Note which elements have ended since the last time. Returns whether any has."""
        entry.note_at = now + _NOTE
        progress = entry.progress
        if progress.epoch != self._world.epoch:
            return False
        todo = list(progress.open.items())
        before = len(todo)
        for start in range(0, before, _BATCH):
            part = todo[start : start + _BATCH]
            records = self._store.jobs.get([element_id(entry.job.id, index) for _, index in part])
            for (position, _), record in zip(part, records, strict=True):
                if record is not None and record.terminal:
                    progress.ended(position, (record.state, record.returncode))
        return len(progress.open) < before

    def _send_on(self, pending: PendingJob, message: Message, consumer: Consumer) -> None:
        [outcome] = self._broker.publish([message]).wait(_CONFIRM_S)
        consumer.ack([pending.delivery]) if outcome is None else consumer.requeue([pending.delivery])

    # -- looking --------------------------------------------------------------------------------------------

    def _look(self, entries: Sequence[Entry], consumer: Consumer, now: float) -> None:
        for start in range(0, len(entries), _BATCH):
            part = entries[start : start + _BATCH]
            records = self._store.jobs.get([entry.job.id for entry in part])
            if None in records:
                self._sync.refresh()  # of new arrays there is none yet, nor of others in a store that lost its data
            for entry, record in zip(part, records, strict=True):
                entry.look_at = now + _AGAIN
                self._advance(entry, record or self._record(entry, "held", now, code=ARRAY), consumer, now)

    def _advance(self, entry: Entry, record: JobRecord, consumer: Consumer, now: float) -> None:
        counts = record.counts
        if record.user not in (None, entry.job.user):
            self._drop(entry.job.id)
            entry.job.freed_at = now
            self._send_on(entry.pending, self._outgoing.freed(entry.pending, _taken(entry.job.id)), consumer)
            return
        ended = _sum(counts, TERMINAL)
        if not record.cancel_requested and revoked(entry.job, self._world.revocations):
            self._cancelling.cancel([record.id], None, "its token was revoked")
            return  # that it is marked is told
        if record.terminal or record.cancel_requested:
            if live := self._stop(record, entry.cancelled):
                entry.look_at = now + (_SOON if "held" in live else _AGAIN)
                return
            if not record.terminal:
                self._record(entry, "cancelled", now, detail=_summary(record))
        elif ended >= entry.array.size:
            state = _end_of(counts)
            self._record(entry, state, now, detail=_summary(record), returncode=record.exit_code)
        else:
            if record.state != "running" and any(state in counts for state in ("running", "completed", "failed")):
                self._record(entry, "running", now)
            self._release(entry, record, ended, now)
            return
        self._drop(entry.job.id)
        consumer.ack([entry.pending.delivery])

    def _release(self, entry: Entry, record: JobRecord, ended: int, now: float) -> None:
        """Send as many elements as may wait, and run."""
        array, progress, counted = entry.array, entry.progress, sum(record.counts.values())
        if self._world.remembering(now) or not self._world.clusters:
            # Clusters report which elements they have, and had: they are counted again. Without any, all would fail.
            entry.look_at = now + _SOON
            return
        if progress.epoch != self._world.epoch and self._waits_for(unheard(self._world)):
            entry.look_at = now + _SOON
            return
        if not self._restored(entry, now):
            entry.look_at = now
            return
        if not progress.restored:
            progress.move_to(counted)
        sent = max(progress.sent, counted)
        waiting = sent - ended - _sum(record.counts, ON_CLUSTER)
        room = AHEAD - waiting
        if array.limit is not None:
            room = min(room, array.limit - (sent - ended))
        elif waiting > AHEAD // 2:
            return  # in few large steps
        if room > 0 and progress.sent < array.size:
            self._send_elements(entry, room, now)

    def _waits_for(self, clusters: list[str]) -> bool:
        """Whether elements that the store lost may be on these clusters: they would be sent, and run, once more.

        They are waited for without a limit, as a job is that is known to be on a cluster which is away.
        """
        if clusters and self._told_epoch != self._world.epoch:
            self._told_epoch = self._world.epoch
            log.warning(
                "arrays wait for what clusters %s had when the store lost data: start, disable or delete them",
                ", ".join(clusters),
                extra={"action": "arrays-wait", "clusters": clusters},
            )
        return bool(clusters)

    def _restored(self, entry: Entry, now: float) -> bool:
        """Compare an array with what the store knows of it, if that has begun another epoch. Returns whether it is
        done: else more is to be done."""
        epoch = self._world.epoch
        if entry.progress.epoch == epoch:
            return True
        if entry.restoring is None or entry.restoring.epoch != epoch:
            entry.restoring = Restoring(self._store, entry.job, entry.progress, epoch, self._keep)
        if not entry.restoring.step(now):
            return False
        entry.restoring = None
        return True

    def _send_elements(self, entry: Entry, most: int, now: float) -> None:
        """Send the next elements, `most` at most. Those that came up in the store meanwhile are passed over."""
        progress = entry.progress
        found = progress.following(most)
        if progress.restored:
            ids = [element_id(entry.job.id, index) for _, index in found]
            there = [known(record) for record in self._store.jobs.get(ids)]
        else:
            there = [False] * len(found)
        indices = [index for (_, index), known_ in zip(found, there, strict=True) if not known_]
        outcomes = iter(self._broker.publish(self._outgoing.elements(entry.pending, indices)).wait(_CONFIRM_S))
        done = next((at for at, known_ in enumerate(there) if not known_ and next(outcomes) is not None), len(found))
        progress.took(done)
        if done < len(found) or any(there) or progress.gaps:
            entry.look_at = now + (_SOON if done < len(found) else 0.0)

    def _stop(self, record: JobRecord, cancelled: set[str]) -> list[str]:
        """Cancel the elements that have not ended, but for those `cancelled` before. Returns their states."""
        live = [state for state, count in record.counts.items() if count > 0 and state not in TERMINAL]
        for state in live:
            before: Cursor | None = None
            while True:
                page = self._store.jobs.page(
                    state=state, cluster=None, user=None, limit=_BATCH, before=before, array=record.id
                )
                ids = [job.id for _, job in page.jobs if job.id not in cancelled]
                if ids:
                    self._cancelling.cancel(ids, None, "its array was cancelled")
                if state != "held":
                    cancelled.update(ids)
                before = page.next
                if before is None:
                    break
        return live

    def _record(self, entry: Entry, state: str, now: float, **more: object) -> JobRecord:
        """Record what happened to an array, and tell. Its first attempt begins when one of its elements starts."""
        event = happened(entry.job, state, now, **more)
        if state != "held":
            event = event.model_copy(update={"attempt": 1})
        return self._told(event, entry.job.jobspec.document)

    def _told(self, event: JobEvent, jobspec: Mapping[str, Any] | None = None) -> JobRecord:
        jobspecs = {} if jobspec is None else {event.id: jobspec}
        [recorded] = self._store.jobs.record([event], (), jobspecs)
        told = [event] if stands(event, recorded) else []
        self._broker.publish([*recorded_events(self._keys, told), *news(recorded)])
        return recorded.record


def _sum(counts: dict[str, int], states: Iterable[str]) -> int:
    return sum(counts.get(state, 0) for state in states)


def _end_of(counts: dict[str, int]) -> str:
    """How an array ends whose elements have ended so."""
    others = [state for state, count in counts.items() if count > 0 and state != "completed"]
    if not others:
        return "completed"
    return "cancelled" if others == ["cancelled"] else "failed"


def _summary(record: JobRecord) -> str:
    return ", ".join(f"{count} {state}" for state, count in record.elements.items())


def _taken(job_id: str) -> str:
    return f"job id {job_id} is taken: use a new UUID"
