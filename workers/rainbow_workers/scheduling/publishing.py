"""Publishing, the third stage: `Committed` in, `Published` out: dispatches, answers, events, dead letters."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

from rainbow import topology, tracing
from rainbow.brokers.base import Broker, Message
from rainbow.errors import TooManyRequests
from rainbow.models.cluster import Revocation
from rainbow.models.dependencies import DEPENDENCY
from rainbow.models.job import JobEvent, JobRecord, State
from rainbow_workers import dead_letters
from rainbow_workers.clusters.cache import ClusterCache
from rainbow_workers.events import news, recorded_event, recorded_events, stands
from rainbow_workers.keys import ClusterKeys
from rainbow_workers.scheduling.answers import (
    answer,
    assigned,
    first_answer,
    happened,
    summed_up,
    to_submitter,
    told_of,
    which,
)
from rainbow_workers.scheduling.decide import Decision, Job
from rainbow_workers.scheduling.fair_share import FairShare
from rainbow_workers.scheduling.outgoing import Outgoing
from rainbow_workers.scheduling.pending_job import PendingJob, Refusal
from rainbow_workers.scheduling.stages import Committed, Published
from rainbow_workers.stores.base import Store
from rainbow_workers.stores.history import ARRAY

log = logging.getLogger(__name__)


class Publishing:
    """Makes the messages of a batch and publishes them. Outcomes other than assignments are recorded first."""

    def __init__(
        self,
        broker: Broker,
        store: Store,
        world: ClusterCache,
        keys: ClusterKeys,
        ring: Callable[[], Any],
        fair_share: FairShare | None = None,
        *,
        lives: float = 0.0,
        lane: Callable[[str], str] = topology.waiting_lane,
    ) -> None:
        self._broker = broker
        self._store = store
        self._world = world
        self._keys = keys
        self._fair_share = fair_share
        self._outgoing = Outgoing(world, keys, ring, lives=lives, lane=lane)
        #: How many jobs ended how, for the metrics.
        self.outcomes: Counter[str] = Counter()

    def publish(self, committed: Committed) -> Published:
        """Publish what was decided and committed.

        Raises:
            StoreUnavailable: An outcome could not be recorded. Nothing was published; the deliveries come again.
        """
        jobs, decisions, now = committed.decided.jobs, committed.decided.decisions, committed.decided.at
        self._recheck(jobs)
        outcomes = iter(committed.outcomes)
        in_doubt = {p.id for p, d in zip(jobs, decisions, strict=True) if d is not None and d.in_doubt}
        events: list[JobEvent] = []
        told: list[str] = []
        gone: list[PendingJob] = []
        parked: list[PendingJob] = []
        charged: list[tuple[Job, str]] = []
        for pending, decision in zip(jobs, decisions, strict=True):
            known = pending.refusal or decision
            if known is not None:
                self.outcomes[known.status] += 1
            if pending.refund and pending.job is not None and self._fair_share is not None:
                self._fair_share.refund(pending.job, pending.refund)
                pending.refund = ""
            if decision is not None and decision.status == "assigned":
                outcome = next(outcomes)
                if pending.refusal is not None:
                    pass
                elif outcome.standing is not None:
                    self._in_the_way(pending, outcome.standing, now, events, gone)
                elif decision.cluster not in self._world.clusters:
                    # It went with the store's data, or was deleted, since the decision.
                    gone.append(pending)
                else:
                    charged.append(self._dispatched(pending, decision, now, repeated=outcome.repeated))
                    if not outcome.repeated:
                        told.append(assigned(pending.job, decision.cluster, now))
            elif decision is not None and decision.waits and pending.parked and pending.refusal is None:
                parked.append(pending)
            elif decision is not None and pending.refusal is None:
                self._not_assigned(pending, decision, now, events)
            if pending.refusal is not None:
                self._refused(pending, now, events)
        if self._fair_share is not None:
            self._fair_share.charge(charged)
        extra = [recorded_event(self._keys, "assigned", told_of(told))] if told else []
        extra += self._record(events, jobs, in_doubt)
        unsettled = {id(p) for p in (*gone, *parked)}
        sent = [p for p in jobs if id(p) not in unsettled] if unsettled else jobs
        on = tracing.is_on()
        for pending, decision in zip(jobs, decisions, strict=True):
            if (on or tracing.HEADER in pending.delivery.headers) and id(pending) not in unsettled:
                _trace(pending, decision, now)
        return self._send(sent, extra, gone, parked)

    def _recheck(self, jobs: Sequence[PendingJob]) -> None:
        """Revocations may have come with the ledger's answer: who was revoked meanwhile is not dispatched."""
        revocations = self._world.revocations
        if not revocations:
            return
        for pending in jobs:
            if pending.job is not None and revoked(pending.job, revocations):
                pending.refusal = Refusal("denied", "the token was revoked: ask for a new one", "denied")

    # -- outcomes -------------------------------------------------------------------------------------------

    def _dispatched(self, pending: PendingJob, decision: Decision, now: float, *, repeated: bool) -> tuple[Job, str]:
        """Make its messages. Returns what is to be charged."""
        job = pending.job
        assert job is not None
        assert decision.cluster is not None
        pending.messages.append(self._outgoing.dispatch(job, decision.cluster, now, repeated=repeated))
        if pending.fence is not None:
            pending.messages.append(pending.fence)
        if pending.reply_to:
            self._reply(pending, answer(job.id, decision, job.attempt))
        if log.isEnabledFor(logging.INFO):
            told = {"action": "assign", "job": job.id, "attempt": job.attempt, "cluster": decision.cluster}
            log.info("job assigned", extra=told)
        return job, decision.cluster

    def _in_the_way(
        self, pending: PendingJob, record: JobRecord, now: float, events: list[JobEvent], gone: list[PendingJob]
    ) -> None:
        """The ledger has this job already, further on; or its id is of somebody else's."""
        job = pending.job
        assert job is not None
        if record.user is not None and record.user != job.user:
            nothing = answer(job.id, Decision("no-match"), 0)
            self._reply(pending, {**nothing, "status": "invalid", "error": f"job id {job.id} is taken: use a new UUID"})
            return
        if record.cancel_requested and not record.terminal and record.attempt < job.attempt:
            events.append(happened(job, "cancelled", now, code="cancel", detail="cancelled before it was assigned"))
            self._reply(pending, {**(record.answer or {}), "id": job.id, "status": "cancelled", "state": "cancelled"})
            return
        if record.state == "cancelled" and pending.parked:
            self._reply(pending, {**(record.answer or {}), "id": job.id, "status": "cancelled", "state": "cancelled"})
            return
        standing = record.state == "assigned" and record.attempt >= job.attempt
        if standing and pending.again:
            # The try before this one died between ledger and broker: its dispatch goes out (again).
            assert record.cluster is not None
            job.attempt = record.attempt
            if record.cluster not in self._world.clusters:
                gone.append(pending)
                return
            pending.messages.append(self._outgoing.dispatch(job, record.cluster, now, repeated=True))
            self._reply(pending, {**(record.answer or {}), "id": job.id, "status": "assigned"})
            return
        self._reply(pending, first_answer(job.id, record))

    def _not_assigned(self, pending: PendingJob, decision: Decision, now: float, events: list[JobEvent]) -> None:
        job = pending.job
        assert job is not None
        reply = answer(job.id, decision, job.attempt - 1)
        if decision.status == "satisfied" or job.satisfy_only:
            self._reply(pending, reply)
            return
        if decision.status == "bidding":
            pending.messages.append(self._outgoing.to_bidding(pending))
            events.append(happened(job, "held", now, code="bidding", detail="clusters are asked for bids"))
            return
        if decision.code == DEPENDENCY:
            # There it is looked whether these jobs are known, and its submitter is told.
            pending.messages.append(self._outgoing.to_dependents(pending))
            return
        if decision.code == ARRAY:
            pending.messages.append(self._outgoing.to_arrays(pending))
        elif decision.waits:
            pending.messages.append(self._outgoing.to_waiting(pending))
        elif decision.status == "held":
            pending.messages.append(self._outgoing.hold(pending, decision.retry_in))
        detail = decision.detail or summed_up(decision.reasons)
        code = decision.code or ("waiting" if decision.waits else decision.status)
        if decision.code:
            reply["error"] = detail
        events.append(happened(job, decision.status, now, code=code, detail=detail, answer=reply))
        self._reply(pending, reply)

    def _refused(self, pending: PendingJob, now: float, events: list[JobEvent]) -> None:
        refusal = pending.refusal
        assert refusal is not None
        pending.messages.clear()
        # The registry is not looked at for a message that says nothing we may act on: its counters stay 0.
        nothing = answer(pending.id, Decision("no-match"), 0)
        reply = {**nothing, "status": refusal.status, "code": refusal.code, "error": refusal.error}
        log.info(
            "submission refused",
            extra={"action": "refuse", "job": pending.id, "code": refusal.code, "detail": refusal.error},
        )
        known = pending.job.user if pending.job else pending.who.sub if pending.who else None
        if refusal.dead:
            pending.messages.append(dead_letters.letter(pending.delivery, refusal.code, refusal.error))
        elif refusal.code != TooManyRequests.code and (known is not None or not pending.fresh):
            # What nobody we know has sent leaves no record: it could be under the id of somebody's job.
            job = pending.job
            state: State = "denied" if refusal.status == "denied" else "invalid"
            events.append(
                JobEvent(
                    id=pending.id,
                    attempt=job.attempt if job else 0,
                    state=state,
                    at=now,
                    user=known,
                    code=refusal.code,
                    detail=refusal.error,
                    answer=reply,
                    **which(pending.element),
                )
            )
        self._reply(pending, reply)

    def _reply(self, pending: PendingJob, body: dict[str, Any]) -> None:
        if pending.reply_to:
            pending.messages.append(to_submitter(pending, body))

    # -- recording, publishing, settling ---------------------------------------------------------------------

    def _record(
        self, events: Sequence[JobEvent], jobs: Sequence[PendingJob], in_doubt: Collection[str]
    ) -> list[Message]:
        """Write outcomes other than assignments; repeats of an id get the first answer. Gives what there is to tell.

        The cancel of a job in doubt waits for the end of the doubt: until then a cluster may report that it has it.
        """
        if not events:
            return []
        by_id = {t.id: t for t in jobs}
        named = {event.id for event in events}
        jobspecs = {p.id: p.job.jobspec.document for p in jobs if p.job is not None and p.id in named}
        written = list(zip(events, self._store.jobs.record(events, (), jobspecs), strict=True))
        cancelled: list[JobEvent] = []
        for event, result in written:
            pending = by_id.get(event.id)
            if pending is None:
                continue
            if event.state == "held" and result.record.cancel_requested and event.id not in in_doubt:
                cancelled.append(
                    event.model_copy(
                        update={"state": "cancelled", "code": "cancel", "detail": "cancelled while it waited"}
                    )
                )
            elif not result.applied and (
                result.record.terminal or (event.state == "cancelled" and not stands(event, result))
            ):
                self._repeat(pending, result.record)
        if cancelled:
            ends = list(zip(cancelled, self._store.jobs.record(cancelled), strict=True))
            for event, result in ends:
                pending = by_id[event.id]
                if stands(event, result):
                    pending.messages.clear()
                    self._reply(pending, {**(event.answer or {}), "status": "cancelled", "state": "cancelled"})
                else:
                    self._repeat(pending, result.record)
            written += ends
        told = [event for event, result in written if stands(event, result)]
        return [*recorded_events(self._keys, told), *(m for _, result in written for m in news(result))]

    def _repeat(self, pending: PendingJob, record: JobRecord) -> None:
        """The job ended before: its sender gets the first answer, and nothing of it goes on."""
        pending.messages.clear()
        self._reply(pending, first_answer(pending.id, record))

    def _send(
        self,
        jobs: Sequence[PendingJob],
        extra: Sequence[Message],
        gone: Sequence[PendingJob],
        parked: Sequence[PendingJob],
    ) -> Published:
        messages: list[Message] = []
        owners: list[PendingJob | None] = []
        for pending in jobs:
            messages.extend(pending.messages)
            owners.extend([pending] * len(pending.messages))
        messages.extend(extra)
        owners.extend([None] * len(extra))
        return Published(jobs, owners, messages, self._broker.publish(messages), gone, parked)


#: Where a job's way goes on.
_ONWARD = frozenset({topology.JOBS, topology.HOLD, topology.WAITING, topology.BIDS})


def _trace(pending: PendingJob, decision: Decision | None, begun: float) -> None:
    """Record what was decided as a step of the job's trace, and let the trace go on with the job."""
    known = pending.refusal or decision
    trace = tracing.ended(
        "rainbow.schedule",
        tracing.parent_of(pending.delivery.headers),
        begun,
        time.time(),
        None if pending.refusal is None else pending.refusal.error,
        job=pending.id,
        attempt=pending.job.attempt if pending.job else None,
        cluster=decision.cluster if decision else None,
        status=known.status if known else None,
        code=(known.code or None) if known else None,
    )
    for message in pending.messages:
        if trace is not None and message.exchange in _ONWARD:
            message.headers = {**(message.headers or {}), tracing.HEADER: trace}


def revoked(job: Job, revocations: Sequence[Revocation]) -> bool:
    return any(
        (r.kind == "jti" and r.value == job.jti)
        or (r.kind == "sub" and r.value == job.user and job.token_issued_at <= r.before)
        for r in revocations
    )
