"""Deliveries are taken from the cluster's queue, checked, written down as taken, and submitted, held.

What can be decided without the executor is (see `finalizer`). A job that was taken before without an outcome is tried
alone, since it may be what took its agent down.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from rainbow import tracing
from rainbow.brokers.base import Consumer
from rainbow_agents.batcher import Batcher
from rainbow_agents.executors.base import Executor, SubmissionKey, Work
from rainbow_agents.intake.admission.policies import Load, Policy, Refusal
from rainbow_agents.intake.finalizer import Cancelled, Finalizer
from rainbow_agents.intake.gate import IntakeGate
from rainbow_agents.intake.in_flight import Flight, InFlight
from rainbow_agents.intake.validation import Checks, Job, NotADispatch
from rainbow_agents.journal import ELSEWHERE, Journal, JournalDown, Row, View, new_claim
from rainbow_agents.registration.client import RegistrationClient

log = logging.getLogger(__name__)

#: Tries without an outcome after which a job is refused: it takes its agent down each time.
MAX_TRIES = 3
#: Seconds that a delivery whose signature does not hold waits for newer keys.
KEYS_WITHIN = 20.0


class Receiver:
    """See the module. `paused` says why no jobs are taken, None while they are."""

    def __init__(
        self,
        *,
        journal: Journal,
        checks: Checks,
        policy: Callable[[], Policy],
        registrar: RegistrationClient,
        in_flight: InFlight,
        gate: IntakeGate,
        executor: Executor,
        finalizer: Finalizer,
        load: Callable[[], Load],
        keys_within: float = KEYS_WITHIN,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._policy = policy
        self.last = 0.0
        self.paused: str | None = "the executor is not up yet"
        self.keys_within = keys_within
        self._journal = journal
        self._checks = checks
        self._registrar = registrar
        self._in_flight = in_flight
        self._gate = gate
        self._executor = executor
        self._finalizer = finalizer
        self._load = load
        self._clock = clock
        self._pace = Batcher()
        self._suspects: deque[Job] = deque()
        self._unsigned: list[tuple[float, int, Job]] = []

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            reason = self._why_not()
            if reason is not None:
                self._let_go(reason)
                self._gate.wait(0.2)
                continue
            if self.paused is not None:
                log.info("taking jobs", extra={"action": "take"})
                self.paused = None
            try:
                self._step()
            except JournalDown as exc:
                self._gate.pause(str(exc))
        self._let_go("stopping")

    def _why_not(self) -> str | None:
        return self._gate.why_not() or (None if self._registrar.registered else "not registered yet")

    def _let_go(self, reason: str) -> None:
        """Stop consuming. What is under way is finished first (see `finalizer`), the rest goes back."""
        if self.paused != reason:
            log.info("taking no jobs: %s", reason, extra={"action": "untake"})
            self.paused = reason
        if self._in_flight.consumer is None:
            return
        back = [job.delivery for job in self._suspects] + [job.delivery for _, _, job in self._unsigned]
        self._suspects.clear()
        self._unsigned.clear()
        if back:
            self._in_flight.settle(requeue=back)
        if self._in_flight.unsettled == 0:
            self._in_flight.close()

    def _step(self) -> None:
        consumer = self._in_flight.open()
        jobs = self._signed_now()
        if self._suspects:
            # One at a time, and nothing else meanwhile: if it takes us down, it alone is to blame.
            self._one_suspect()
            return
        jobs += self._read(consumer, 0.0 if jobs else 0.2)
        if jobs:
            self._submit(self._sort(jobs))

    def _read(self, consumer: Consumer, seconds: float) -> list[Job]:
        """Deliveries that come within `seconds`, and whose signature holds."""
        most = self._in_flight.prefetch
        deliveries = consumer.take(most, seconds)
        if deliveries:
            self._pace.gather()
            if len(deliveries) < most:
                deliveries += consumer.take(most - len(deliveries), 0.0)
            self.last = self._clock()
            self._in_flight.received(len(deliveries))
        jobs = []
        for delivery in deliveries:
            try:
                job = self._checks.open(delivery)
            except NotADispatch as exc:
                log.warning("not a dispatch: %s", exc, extra={"action": "reject", "code": exc.code})
                self._in_flight.settle(reject=[delivery])
                continue
            if job.signed is not None:
                serial = self._registrar.request("a dispatch is signed with a key that is not known here")
                self._unsigned.append((time.monotonic() + self.keys_within, serial, job))
            else:
                jobs.append(job)
        return jobs

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
                refusal = self._policy().check(job.dispatch, job.spec, Load(queued, running))
            if refusal is not None:
                self._finalizer.decided(job, refusal)
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
        if self._in_flight.joins(job):
            return True
        if view.newest > job.dispatch.attempt:
            log.info(
                "dropped a dispatch of an older attempt",
                extra={"action": "stale", "id": job.dispatch.id, "attempt": job.dispatch.attempt, "new": view.newest},
            )
            self._in_flight.settle(ack=[job.delivery])
            return True
        row = view.row
        if view.cancel == ELSEWHERE:
            self._in_flight.settle(ack=[job.delivery])
            return True
        if row is None or row.state in ("taken", "returned"):
            if view.cancel is not None:
                self._finalizer.decided(job, Cancelled(view.cancel))
                return True
            return False
        if row.state in ("rejected", "cancelled") or (row.state == "accepted" and not row.released):
            self._finalizer.decided(job, row)
        else:
            self._in_flight.settle(ack=[job.delivery])
        return True

    def _supersede(self, job: Job, older: Row) -> Refusal | None:
        """An older attempt is still here: it ends, and the new one does not start before it has."""
        self._journal.cancel([(older.id, older.attempt, ELSEWHERE)])
        self._executor.cancel([older.held], ELSEWHERE)
        if not older.released:
            return None  # it never started, and never will
        return Refusal("busy", f"attempt {older.attempt} of this job still runs here and is being cancelled")

    def _one_suspect(self) -> None:
        if not self._in_flight.wait_empty(0.2):
            return
        job = self._suspects.popleft()
        views = self._journal.look([job.key])
        if not self._known(job, views[job.key]):
            self._submit([job])
        self._in_flight.wait_empty(0.5)

    def _submit(self, jobs: Sequence[Job]) -> None:
        if not jobs:
            return
        now = time.monotonic()
        first: dict[tuple[str, int], Job] = {}
        for job in jobs:
            first.setdefault(job.key, job)
        # A copy in the same batch would count as a try of its own: it comes again, and finds this one under way.
        back = [job.delivery for job in jobs if first[job.key] is not job]
        flights = [
            Flight(job, SubmissionKey(job.dispatch.id, job.dispatch.attempt, new_claim()), now)
            for job in first.values()
        ]
        try:
            taken = self._journal.take(
                [(f.mark, f.job.dispatch.user, f.job.dispatch.name, f.job.dispatch.priority) for f in flights],
                {f.mark: f.job.dispatch.grant for f in flights if f.job.dispatch.grant},
                {f.mark: trace for f in flights if (trace := tracing.parent_of(f.job.delivery.headers))},
            )
        except JournalDown:
            self._in_flight.settle(requeue=[*back, *(f.job.delivery for f in flights)])
            raise
        works = []
        for flight in flights:
            if flight.mark not in taken or self._in_flight.flies(flight.job.key):
                # Another agent, or a second delivery in the same batch, brought it further: look at it anew.
                back.append(flight.job.delivery)
                continue
            self._in_flight.start(flight)
            works.append(_work(flight))
        if back:
            self._in_flight.settle(requeue=back)
        self._executor.submit(works)


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
        element=d.element,
    )


__all__ = ["KEYS_WITHIN", "MAX_TRIES", "Receiver"]
