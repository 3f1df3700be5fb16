"""From the cluster's queue into the executor: each job started exactly once, whatever happens in between.

Two threads share the work, so that many jobs are under way at a time:

- `run_taking` takes deliveries, checks them, writes them down as taken, and submits them, held;
- `run_settling` takes what came of them, writes it down with its event, has the event confirmed by the broker, then
  lets the jobs start and acks their deliveries.

A job is released only while its delivery is still ours after `accepted` was confirmed: a delivery that went back to
the queue may have been placed elsewhere by now. It then stays held until the delivery comes again (or a cancel, or the
ledger's word; see `limbo`). What is refused has its event confirmed before the delivery is rejected.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rainbow import topology
from rainbow.backoff import Backoff
from rainbow.brokers.base import Broker, Consumer, Delivery
from rainbow.errors import BadCredentials, RainbowError
from rainbow.models.job import JobEvent, RejectCode
from rainbow_agents.admission import Load, Policy, Refusal
from rainbow_agents.checks import Checks, Job, NotADispatch
from rainbow_agents.events import Publisher
from rainbow_agents.executors.base import Executor, Held, Mark, Refused, Submitted, Undecided, Work
from rainbow_agents.journal import ELSEWHERE, Journal, JournalDown, Pending, Row, View, new_claim
from rainbow_agents.pace import Pace
from rainbow_agents.registration import Registrar

log = logging.getLogger(__name__)

#: Tries without an outcome after which a job is refused: it takes its agent down each time.
MAX_TRIES = 3
#: Seconds that a try to submit may stay without an answer. Far below any `consumer_timeout` (RabbitMQ: 30 min).
SETTLE_WITHIN = 60.0
#: Seconds that a delivery whose signature does not hold waits for newer keys.
KEYS_WITHIN = 20.0
_CONFIRM = 30.0


@dataclass(slots=True, eq=False)
class Flight:
    """A job on its way into the executor."""

    job: Job
    mark: Mark
    since: float
    #: Further deliveries of the same job that came meanwhile: a copy, or the same again after its channel was lost.
    more: list[Delivery] = field(default_factory=list)

    @property
    def deliveries(self) -> list[Delivery]:
        return [self.job.delivery, *self.more]


@dataclass(slots=True)
class _Batch:
    """What one round of settling does, gathered before anything is written."""

    submitted: list[Submitted] = field(default_factory=list)
    refused: list[tuple[Job, Mark | None, JobEvent]] = field(default_factory=list)
    undecided: list[Mark] = field(default_factory=list)
    again: list[tuple[Job, Row]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.submitted) + len(self.refused) + len(self.undecided) + len(self.again)


_Outcome = Submitted | Refused | Undecided | tuple[Job, Refusal | JobEvent] | tuple[Job, Row]


class Intake:
    """See the module. `executor` is set by the agent; `up`/`down` say whether it can be used."""

    def __init__(
        self,
        *,
        cluster: str,
        broker: Broker,
        journal: Journal,
        checks: Checks,
        policy: Policy,
        registrar: Registrar,
        publisher: Publisher,
        prefetch: int = 64,
        settle_within: float = SETTLE_WITHIN,
        keys_within: float = KEYS_WITHIN,
        load: Callable[[], Load],
        on_accept: Callable[[Sequence[Mark]], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.policy = policy
        self.executor: Executor | None = None
        self.last_take = 0.0
        self.last_settle = 0.0
        self._paused: str | None = "the executor is not up yet"
        self._cluster = cluster
        self._broker = broker
        self._journal = journal
        self._checks = checks
        self._registrar = registrar
        self._publisher = publisher
        self._prefetch = prefetch
        self._settle_within = settle_within
        self._keys_within = keys_within
        self._load = load
        self._on_accept = on_accept
        self._clock = clock
        self._up = False
        self._down_reason = "the executor is not up yet"
        self._trouble = Backoff(1.0, 30.0)
        self._pause_until = 0.0
        self._pause_reason: str | None = None
        self._lock = threading.Lock()
        self._flights: dict[Mark, Flight] = {}
        self._by_key: dict[tuple[str, int], Flight] = {}
        self._taking, self._settling = Pace(), Pace()
        self._outcomes: queue.SimpleQueue[_Outcome | None] = queue.SimpleQueue()
        self._consumer: Consumer | None = None
        self._suspects: deque[Job] = deque()
        self._unsigned: list[tuple[float, int, Job]] = []
        self._unsettled = 0
        self._landed = threading.Condition(self._lock)
        self._room = threading.Event()

    # -- from the executor -----------------------------------------------------------------------------------

    def up(self) -> None:
        self._up = True
        self._room.set()

    def down(self, reason: str) -> None:
        self._up = False
        self._down_reason = reason
        self._room.set()

    def tell(self, outcome: Submitted | Refused | Undecided) -> None:
        self._outcomes.put(outcome)

    @property
    def paused(self) -> str | None:
        """Why no jobs are taken: ours not to, or the broker that gives us none. None while they are."""
        return self._paused or self.trouble

    @property
    def trouble(self) -> str | None:
        """Why the broker gives us nothing from the queue, while it does not."""
        return getattr(self._consumer, "trouble", None)

    @property
    def in_flight(self) -> int:
        with self._lock:
            return self._unsettled

    def close(self) -> None:
        """At the end: what is still under way goes back, as if it had not been taken; the queue is let go of."""
        with self._lock:
            flights = list(self._flights.values())
            self._flights.clear()
            self._by_key.clear()
        if flights:
            log.warning("%d jobs are given back unsubmitted", len(flights), extra={"action": "stop"})
            try:
                self._journal.returned([f.mark for f in flights])
            except JournalDown as exc:
                log.error("%s", exc, extra={"action": "stop"})  # noqa: TRY400
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.cancel()  # what is not settled goes back to the queue

    # -- taking ------------------------------------------------------------------------------------------------

    def run_taking(self, stop: threading.Event) -> None:
        while not stop.is_set():
            reason = self._why_not()
            if reason is not None:
                self._let_go(reason)
                self._room.wait(0.2)
                self._room.clear()
                continue
            if self._paused is not None:
                log.info("taking jobs", extra={"action": "take"})
                self._paused = None
            try:
                self._step()
            except JournalDown as exc:
                self._pause(str(exc))
        self._let_go("stopping")

    def _why_not(self) -> str | None:
        if not self._up or self.executor is None:
            return self._down_reason
        if time.monotonic() < self._pause_until:
            return self._pause_reason
        if not self._registrar.registered:
            return "not registered yet"
        return None

    def _pause(self, reason: str) -> None:
        """Stop taking for a while: something is wrong that is no fault of the jobs."""
        log.warning("taking no jobs for a while: %s", reason, extra={"action": "pause"})
        self._pause_reason = reason
        self._pause_until = time.monotonic() + self._trouble.next()

    def _let_go(self, reason: str) -> None:
        """Stop consuming. What is under way is finished first (see `run_settling`), the rest goes back."""
        if self._paused != reason:
            log.info("taking no jobs: %s", reason, extra={"action": "untake"})
            self._paused = reason
        consumer = self._consumer
        if consumer is None:
            return
        back = [job.delivery for job in self._suspects] + [job.delivery for _, _, job in self._unsigned]
        self._suspects.clear()
        self._unsigned.clear()
        if back:
            consumer.requeue(back)
            self._settled(len(back))
        if self.in_flight == 0:
            consumer.cancel()
            self._consumer = None

    def _step(self) -> None:
        assert self.executor is not None
        if self._consumer is None:
            self._consumer = self._broker.consume(topology.jobs_queue(self._cluster), prefetch=self._prefetch)
        jobs = self._signed_now()
        if self._suspects:
            # One at a time, and nothing else meanwhile: if it takes us down, it alone is to blame.
            self._one_suspect()
            return
        deliveries = self._consumer.take(self._prefetch, 0.0 if jobs else 0.2)
        if deliveries:
            self._taking.gather()
            if len(deliveries) < self._prefetch:
                deliveries += self._consumer.take(self._prefetch - len(deliveries), 0.0)
            self.last_take = self._clock()
            with self._lock:
                self._unsettled += len(deliveries)
        for delivery in deliveries:
            try:
                job = self._checks.open(delivery)
            except NotADispatch as exc:
                log.warning("not a dispatch: %s", exc, extra={"action": "reject", "code": exc.code})
                self._consumer.reject([delivery])
                self._settled(1)
                continue
            if job.signed is not None:
                serial = self._registrar.request("a dispatch is signed with a key that is not known here")
                self._unsigned.append((time.monotonic() + self._keys_within, serial, job))
            else:
                jobs.append(job)
        if jobs:
            self._submit(self._sort(jobs))

    def _signed_now(self) -> list[Job]:
        """Of those that wait for newer keys: what holds now, or has waited long enough (and will be refused)."""
        out, still = [], []
        for until, serial, job in self._unsigned:
            if self._registrar.serial > serial or time.monotonic() >= until:
                self._checks.verify(job)
                out.append(job)
            else:
                still.append((until, serial, job))
        self._unsigned = still
        return out

    def _sort(self, jobs: Sequence[Job]) -> list[Job]:
        """Decide what can be decided without the executor; gives the jobs to submit."""
        views = self._journal.look([job.key for job in jobs])
        load = self._load()
        queued, running = load.queued, load.running
        fresh: list[Job] = []
        for job in jobs:
            view = views[job.key]
            if job.signed is None and self._known(job, view):
                continue
            refusal = self._checks.refuse(job)
            if refusal is None and view.older is not None:
                refusal = self._supersede(job, view.older)
            if refusal is None and view.tries >= MAX_TRIES:
                refusal = Refusal("error", f"it was taken {view.tries} times and took its agent down each time")
            if refusal is None and job.spec is not None:
                refusal = self.policy.check(job.dispatch, job.spec, Load(queued, running))
            if refusal is not None:
                self._outcomes.put((job, refusal))
            elif view.tries > 0:
                log.warning(
                    "job was taken before without an outcome: it is tried alone",
                    extra={"action": "suspect", "id": job.dispatch.id, "tries": view.tries},
                )
                self._suspects.append(job)
            else:
                queued += 1
                fresh.append(job)
        return fresh

    def _known(self, job: Job, view: View) -> bool:
        """Deal with a delivery whose job the journal knows already. False when it is to be taken."""
        with self._lock:
            flight = self._by_key.get(job.key)
            if flight is not None:
                flight.more.append(job.delivery)
                return True
        if view.newest > job.dispatch.attempt:
            log.info(
                "dropped a dispatch of an older attempt",
                extra={"action": "stale", "id": job.dispatch.id, "attempt": job.dispatch.attempt, "new": view.newest},
            )
            self._ack([job.delivery])
            return True
        row = view.row
        if view.cancel == ELSEWHERE:
            self._ack([job.delivery])
            return True
        if row is None or row.state in ("taken", "returned"):
            if view.cancel is not None:
                self._outcomes.put((job, self._event(job, "cancelled", "cancelled", view.cancel)))
                return True
            return False
        if row.state in ("rejected", "cancelled") or (row.state == "accepted" and not row.released):
            self._outcomes.put((job, row))
        else:
            self._ack([job.delivery])
        return True

    def _supersede(self, job: Job, older: Row) -> Refusal | None:
        """An older attempt is still here: it ends, and the new one does not start before it has."""
        assert self.executor is not None
        self._journal.cancel([(older.id, older.attempt, ELSEWHERE)])
        self.executor.cancel([older.held], ELSEWHERE)
        if not older.released:
            return None  # it never started, and never will
        return Refusal("busy", f"attempt {older.attempt} of this job still runs here and is being cancelled")

    def _one_suspect(self) -> None:
        with self._lock:
            if self._flights:
                self._landed.wait(0.2)
                if self._flights:
                    return
        job = self._suspects.popleft()
        views = self._journal.look([job.key])
        if not self._known(job, views[job.key]):
            self._submit([job])
        with self._lock:
            self._landed.wait_for(lambda: not self._flights, 0.5)

    def _submit(self, jobs: Sequence[Job]) -> None:
        assert self.executor is not None
        if not jobs:
            return
        flights = []
        now = time.monotonic()
        first: dict[tuple[str, int], Job] = {}
        for job in jobs:
            first.setdefault(job.key, job)
        # A copy in the same batch would count as a try of its own: it comes again, and finds this one under way.
        copies = [job.delivery for job in jobs if first[job.key] is not job]
        for job in first.values():
            mark = Mark(job.dispatch.id, job.dispatch.attempt, new_claim())
            flights.append(Flight(job, mark, now))
        try:
            taken = self._journal.take(
                [(f.mark, f.job.dispatch.user, f.job.dispatch.name, f.job.dispatch.priority) for f in flights]
            )
        except JournalDown:
            self._requeue([*copies, *(f.job.delivery for f in flights)])
            raise
        works = []
        for flight in flights:
            if flight.mark not in taken or flight.job.key in self._by_key:
                # Another agent, or a second delivery in the same batch, brought it further: look at it anew.
                self._requeue([flight.job.delivery])
                continue
            with self._lock:
                self._flights[flight.mark] = flight
                self._by_key[flight.job.key] = flight
            works.append(_work(flight))
        if copies:
            self._requeue(copies)
        self.executor.submit(works)

    # -- settling -----------------------------------------------------------------------------------------------

    def run_settling(self, stop: threading.Event) -> None:
        """Until `stop`, and then for as long as something is under way (the agent ends the wait when it must)."""
        while not stop.is_set() or self.in_flight:
            outcomes = self._next_outcomes()
            self._time_out()
            if outcomes:
                try:
                    self._settle(outcomes)
                except JournalDown as exc:
                    self._give_back(outcomes)
                    self._pause(str(exc))
                except BadCredentials:
                    raise

    def _next_outcomes(self) -> list[_Outcome]:
        out: list[_Outcome] = []
        try:
            first = self._outcomes.get(timeout=0.1)
            self._settling.gather()
            while True:
                if first is not None:
                    out.append(first)
                if len(out) >= 500:
                    break
                first = self._outcomes.get_nowait()
        except queue.Empty:
            pass
        return out

    def _time_out(self) -> None:
        """Tries without an answer for too long: their deliveries go back, and what comes of them later is dropped."""
        limit = time.monotonic() - self._settle_within
        with self._lock:
            late = [f.mark for f in self._flights.values() if f.since < limit]
        for mark in late:
            self._outcomes.put(Undecided(mark, f"the executor did not answer within {self._settle_within:g} s"))
        if late:
            self._pause(f"the executor did not answer within {self._settle_within:g} s")

    def _settle(self, outcomes: Sequence[_Outcome]) -> None:
        batch = self._gather(outcomes)
        decided = self._journal.decide(batch.submitted, [(event, mark) for _, mark, event in batch.refused])
        if batch.undecided:
            self._journal.returned(batch.undecided)
        resent = self._journal.again([row for _, row in batch.again])
        assert self.executor is not None
        if decided.superseded:
            log.info(
                "stood down: somebody else has %d of these jobs", len(decided.superseded), extra={"action": "stale"}
            )
            self.executor.cancel([_held(s) for s in decided.superseded], "submitted twice")
        if decided.cancelled:
            self.executor.cancel([_held(s) for s, _ in decided.cancelled], "cancelled before it was accepted")
        sent = [*(p for _, p in decided.accepted), *(p for _, p in decided.cancelled), *decided.refused, *resent]
        confirmed = self._confirm(sent)
        self._finish(batch, {*(s.mark for s in decided.superseded), *decided.lapsed}, sent, confirmed)

    def _gather(self, outcomes: Sequence[_Outcome]) -> _Batch:
        batch = _Batch()
        for outcome in outcomes:
            if isinstance(outcome, tuple):
                job, what = outcome
                if isinstance(what, Row):
                    batch.again.append((job, what))
                elif isinstance(what, Refusal):
                    batch.refused.append((job, None, self._event(job, "rejected", what.code, what.detail)))
                else:
                    batch.refused.append((job, None, what))
                continue
            with self._lock:
                flight = self._flights.get(outcome.mark)
            if flight is None:
                if isinstance(outcome, Submitted):
                    batch.submitted.append(outcome)  # too late: the journal will say that it is superseded
                continue
            if isinstance(outcome, Submitted):
                batch.submitted.append(outcome)
            elif isinstance(outcome, Refused):
                event = self._event(flight.job, "rejected", outcome.code, outcome.detail)
                batch.refused.append((flight.job, outcome.mark, event))
            else:
                log.info("job given back: %s", outcome.detail, extra={"action": "undecided", "id": outcome.mark.id})
                batch.undecided.append(outcome.mark)
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
            self._pause(f"events are not confirmed: {exc}")
            return False
        return True

    def _finish(self, batch: _Batch, gone: set[Mark], sent: Sequence[Pending], confirmed: bool) -> None:
        """Release and settle. The deliveries are settled last, each by its own word."""
        assert self.executor is not None
        marks = [s.mark for s in batch.submitted] + [m for _, m, _ in batch.refused if m is not None] + batch.undecided
        landed = {mark: flight for mark in marks if (flight := self._land(mark)) is not None}
        back = [d for mark in batch.undecided if mark in landed for d in landed[mark].deliveries]
        acks: list[Delivery] = []
        rejects: list[Delivery] = []
        started: set[Mark] | None = None
        if confirmed:
            started = self._release(batch, landed, gone, sent)
        if started is None:
            # Nothing may start or be settled on events that may not have arrived: all of it comes again.
            back += [d for mark, f in landed.items() if mark not in batch.undecided for d in f.deliveries]
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
            self._pause("the executor could not take jobs")
        elif started is not None:
            self._trouble.reset()
        self.last_settle = self._clock()
        consumer = self._consumer
        if consumer is not None:
            consumer.ack(acks)
            consumer.reject(rejects)
            consumer.requeue(back)
        self._settled(len(acks) + len(rejects) + len(back))

    def _release(
        self, batch: _Batch, landed: Mapping[Mark, Flight], gone: set[Mark], sent: Sequence[Pending]
    ) -> set[Mark] | None:
        """Let start what may: what was accepted, its delivery still ours. None when that cannot be written down."""
        assert self.executor is not None
        may = [
            s.mark
            for s in batch.submitted
            if s.mark in landed and s.mark not in gone and any(map(self._ours, landed[s.mark].deliveries))
        ]
        may += [row.mark for job, row in batch.again if row.state == "accepted" and self._ours(job.delivery)]
        try:
            rows = self._journal.release(may, sent)
        except JournalDown as exc:
            self._pause(str(exc))
            return None
        self.executor.release([row.held for row in rows if row.cancel is None])
        self.executor.cancel([row.held for row in rows if row.cancel is not None], "cancelled")
        self._on_accept([row.mark for row in rows])
        return {row.mark for row in rows}

    def _open(self, mark: Mark, started: set[Mark]) -> bool:
        """Whether a job that was not let start is to be taken again, since what was submitted is gone."""
        if mark in started:
            return False
        row = self._journal.get(mark.id, mark.attempt)
        return row is None or row.state in ("returned", "taken")

    def _land(self, mark: Mark) -> Flight | None:
        with self._lock:
            flight = self._flights.pop(mark, None)
            if flight is not None:
                self._by_key.pop(flight.job.key, None)
            if not self._flights:
                self._landed.notify_all()
            return flight

    def _ours(self, delivery: Delivery) -> bool:
        """Whether the broker still counts `delivery` as taken by us, and so gives it to nobody else."""
        if not self._broker.status.connected:
            return False
        epoch = getattr(self._consumer, "epoch", None)
        return epoch is None or epoch == delivery.epoch

    def _give_back(self, outcomes: Sequence[_Outcome]) -> None:
        """The journal cannot be written: nothing was decided, nothing starts, all deliveries come again."""
        deliveries = []
        held = []
        for outcome in outcomes:
            if isinstance(outcome, tuple):
                deliveries.append(outcome[0].delivery)
                continue
            flight = self._land(outcome.mark)
            if flight is not None:
                deliveries.extend(flight.deliveries)
            if isinstance(outcome, Submitted):
                held.append(_held(outcome))
        if held and self.executor is not None:
            self.executor.cancel(held, "it could not be written down")
        self._requeue(deliveries)

    def _ack(self, deliveries: Sequence[Delivery]) -> None:
        if self._consumer is not None:
            self._consumer.ack(deliveries)
        self._settled(len(deliveries))

    def _requeue(self, deliveries: Sequence[Delivery]) -> None:
        if self._consumer is not None:
            self._consumer.requeue(deliveries)
        self._settled(len(deliveries))

    def _settled(self, count: int) -> None:
        with self._lock:
            self._unsettled -= count
            self._landed.notify_all()

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


def _work(flight: Flight) -> Work:
    job = flight.job
    assert job.spec is not None
    d = job.dispatch
    return Work(
        mark=flight.mark,
        units=job.units,
        demand=job.spec.demand,
        name=d.name or job.spec.name,
        user=d.user,
        priority=d.priority,
        image=d.image,
    )


def _held(submitted: Submitted) -> Held:
    return Held(submitted.mark, submitted.handle)
