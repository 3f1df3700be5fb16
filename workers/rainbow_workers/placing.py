"""Placing: a batch of tickets is decided, written to the ledger, published and settled.

The order that loses nothing: decide (pure) -> compare-and-set in the ledger, one round trip -> publish, confirmed
-> ack. A crash between any two steps leaves the delivery with the broker; when it comes again the ledger holds
the same assignment, which is published again under the same attempt, and the agent runs an attempt once.
"""

from __future__ import annotations

import logging
import queue
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rainbow import codec, signing, topology
from rainbow.brokers.base import Broker, Consumer, Message, Receipt
from rainbow.errors import QueueFull, StoreUnavailable, TooLarge, Unroutable
from rainbow.models.cluster import Revocation
from rainbow.models.job import JobEvent, JobRecord, Reason, State
from rainbow_workers import dead
from rainbow_workers.answers import answer, assigned, first_answer, happened, looked, summed_up, terms, told_of
from rainbow_workers.decide import Decider, Decision, Job
from rainbow_workers.failover import AGAIN, Turns
from rainbow_workers.keys import ClusterKeys
from rainbow_workers.outgoing import Outgoing
from rainbow_workers.stores.base import Assigning, Assignment, Changes, Store
from rainbow_workers.ticket import DOUBTFUL, RECORDED, Refusal, Ticket
from rainbow_workers.world import World

log = logging.getLogger(__name__)

#: Decisions that are not revised later.
_FINAL = frozenset({"no-match", "unsatisfiable", "satisfied"})

#: How often a batch is decided anew because others took the room meanwhile; then it goes where it may have to wait.
OVERTAKEN = 5


@dataclass(slots=True, eq=False)
class Batch:
    """Tickets that were decided, while the ledger has their assignments: `Placer.finish` or `Placer.drop` ends it."""

    tickets: Sequence[Ticket]
    decisions: Sequence[Decision | None]
    assignments: Sequence[Assignment]
    assigning: Assigning | None
    consumer: Consumer
    now: float
    overtaken: int = 0


class Placer:
    """Places tickets of one consumer. One thread calls it; receipts settle in the broker's thread."""

    def __init__(
        self,
        broker: Broker,
        store: Store,
        world: World,
        decider: Decider,
        keys: ClusterKeys,
        ring: Callable[[], Any],
        *,
        turns: Turns | None = None,
        reserve_s: float = 60.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._broker = broker
        self._store = store
        self._world = world
        self._decider = decider
        self._keys = keys
        self._outgoing = Outgoing(world, keys, ring)
        self._turns = turns or Turns(100.0)
        self._reserve_s = reserve_s
        self._clock = clock
        #: Jobs whose dispatch found no queue, or a full one: they are placed anew with the next batch.
        self._again: queue.SimpleQueue[Ticket] = queue.SimpleQueue()
        #: How many jobs ended how, for the metrics.
        self.outcomes: Counter[str] = Counter()

    def pending(self) -> list[Ticket]:
        """Tickets to be placed once more."""
        out: list[Ticket] = []
        while not self._again.empty():
            out.append(self._again.get_nowait())
        return out

    def place(self, tickets: Sequence[Ticket], consumer: Consumer) -> None:
        """Decide and hand over. Raises StoreUnavailable when nothing was decided: the caller gives the batch back."""
        self.finish(self.begin(tickets, consumer))

    def begin(self, tickets: Sequence[Ticket], consumer: Consumer) -> Batch:
        """Decide, and send what was decided to the ledger. Nothing was done when this raises StoreUnavailable."""
        now = self._clock()
        with self._world.lock:
            decisions = self._decide_all(tickets, now)
        return self._send(tickets, decisions, consumer, now)

    def _send(
        self,
        tickets: Sequence[Ticket],
        decisions: Sequence[Decision | None],
        consumer: Consumer,
        now: float,
        overtaken: int = 0,
    ) -> Batch:
        assignments = [self._assignment(job, d, now) for _, job, d in _given(tickets, decisions)]
        with self._world.lock:
            version = self._world.version
            room = {} if overtaken == OVERTAKEN else self._world.room({a.cluster for a in assignments})
        try:
            assigning = self._store.jobs.assigning(assignments, version, room) if assignments else None
        except StoreUnavailable:
            self._settled(assignments)
            raise
        return Batch(tickets, decisions, assignments, assigning, consumer, now, overtaken)

    def drop(self, batch: Batch) -> None:
        """Nothing more is done for a batch that was begun: its deliveries come again, and find what the ledger has."""
        if batch.assigning is not None:
            batch.assigning.drop()
        self._settled(batch.assignments)

    def finish(self, batch: Batch) -> None:
        """Take the ledger's word, publish and settle. Raises StoreUnavailable when that cannot be had."""
        tickets, decisions, now = batch.tickets, batch.decisions, batch.now
        outcomes = self._outcomes(batch)
        if outcomes is None:
            self.finish(self._anew(batch))
            return
        with self._world.lock:
            self._recheck(tickets)
        for ticket, decision in zip(tickets, decisions, strict=True):
            known = ticket.refusal or decision
            if known is not None:
                self.outcomes[known.status] += 1
        standing = iter(outcomes)
        events: list[JobEvent] = []
        told: list[str] = []
        gone: list[Ticket] = []
        for ticket, decision in zip(tickets, decisions, strict=True):
            if decision is not None and decision.status == "assigned":
                record, repeated = next(standing)
                if ticket.refusal is None and record is None and decision.cluster not in self._world.clusters:
                    # It went with the store's data, or was deleted, since the decision.
                    gone.append(ticket)
                elif ticket.refusal is None and record is None:
                    self._dispatched(ticket, decision, now)
                    if not repeated:
                        told.append(assigned(ticket.job, decision.cluster, now))
                elif ticket.refusal is None and record is not None:
                    self._in_the_way(ticket, record, now, events, gone)
            elif decision is not None and ticket.refusal is None:
                self._not_assigned(ticket, decision, now, events)
            if ticket.refusal is not None:
                self._refused(ticket, now, events)
        news = self._tell(told, self._record(events, tickets))
        self._publish([t for t in tickets if t not in gone] if gone else tickets, batch.consumer, news)
        for ticket in gone:
            self._place_again(ticket)

    def _anew(self, batch: Batch) -> Batch:
        """Other schedulers were faster where there was room: what was assigned is decided on the numbers of now."""
        now = self._clock()
        decisions = list(batch.decisions)
        with self._world.lock:
            for at, job, _ in _given(batch.tickets, batch.decisions):
                decisions[at] = self._decider.decide(job, now)
        return self._send(batch.tickets, decisions, batch.consumer, now, batch.overtaken + 1)

    # -- deciding -------------------------------------------------------------------------------------------

    def _decide_all(self, tickets: Sequence[Ticket], now: float) -> list[Decision | None]:
        """A decision for each ticket. No is only said with the newest view of the clusters: one that was registered a
        moment ago may be known to the store alone."""
        doubtful = self._doubtful(tickets, now)
        decisions = [self._wait(t, now) if t.id in doubtful else self._decide(t, now) for t in tickets]
        final = [at for at, d in enumerate(decisions) if d is not None and d.status in _FINAL]
        if final:
            before = self._world.generation
            try:
                self._world.apply(self._store.clusters.changes(self._world.version))
            except StoreUnavailable:
                for _, job, d in _given(tickets, decisions):
                    assert d.cluster is not None
                    self._world.settle(d.cluster, job.jobspec.demand)
                raise
            if self._world.generation != before:
                for at in final:
                    decisions[at] = self._decide(tickets[at], now)
        return decisions

    def _doubtful(self, tickets: Sequence[Ticket], now: float) -> frozenset[str]:
        """Those that were taken before and not settled, or came back from a cluster, while the store lost its data:
        they may run, or have run. Agents tell what they have when their cluster comes back: these wait."""
        again = [
            t
            for t in tickets
            if t.job and not t.job.satisfy_only and (t.back or t.delivery.redelivered or DOUBTFUL in t.delivery.headers)
        ]
        if not again:
            return frozenset()
        self._world.apply(self._store.clusters.changes(self._world.version))
        if not self._world.remembering(now):
            return frozenset()
        records = self._store.jobs.get([t.id for t in again])
        return frozenset(
            t.id
            for t, known in zip(again, records, strict=True)
            if t.job and (known is None or (not known.terminal and known.attempt < t.job.attempt))
        )

    def _wait(self, ticket: Ticket, now: float) -> Decision:
        ticket.hold_headers = {**ticket.hold_headers, DOUBTFUL: True}
        why = "the store lost its data: it waits until the clusters have said whether one of them has it"
        return Decision("held", retry_in=self._world.remembering(now), detail=why)

    def _decide(self, ticket: Ticket, now: float) -> Decision | None:
        if ticket.job is None:
            return None
        if ticket.failover and not self._turns.take():
            why = "waits for its turn: its cluster is lost, and what waited there is placed elsewhere bit by bit"
            return Decision("held", retry_in=AGAIN, detail=why)
        return self._decider.decide(ticket.job, now)

    def _assignment(self, job: Job, decision: Decision, now: float) -> Assignment:
        assert decision.cluster is not None
        return Assignment(
            id=job.id,
            attempt=job.attempt,
            cluster=decision.cluster,
            user=job.user,
            name=job.name,
            demand=job.jobspec.demand,
            at=now,
            submitted_at=job.submitted_at,
            answer=terms(job.id, decision, job.attempt),
            reserve_s=self._reserve_s,
            looked=looked(decision),
        )

    def _outcomes(self, batch: Batch) -> Iterable[tuple[JobRecord | None, bool]] | None:
        """For each assignment what stands in its way, and whether it stood before; None when all is to be decided
        again."""
        if batch.assigning is None:
            return []
        changes = None
        try:
            assigned = batch.assigning.wait()
            changes = assigned.changes
        finally:
            self._settled(batch.assignments, changes)
        if assigned.crowded:
            return None
        return [(record, at in assigned.repeated) for at, record in enumerate(assigned.outcomes)]

    def _settled(self, assignments: Sequence[Assignment], changes: Changes | None = None) -> None:
        """What was deducted for them is in the store's own sums from these changes on, or was given up."""
        with self._world.lock:
            for assignment in assignments:
                self._world.settle(assignment.cluster, assignment.demand)
            if changes is not None:
                self._world.apply(changes)

    def _recheck(self, tickets: Sequence[Ticket]) -> None:
        """Revocations may have come with the ledger's answer: who was revoked meanwhile is not dispatched."""
        revocations = self._world.revocations
        if not revocations:
            return
        for ticket in tickets:
            if ticket.job is not None and _revoked(ticket.job, revocations):
                ticket.refusal = Refusal("denied", "the token was revoked: ask for a new one", "denied")

    # -- outcomes -------------------------------------------------------------------------------------------

    def _dispatched(self, ticket: Ticket, decision: Decision, now: float) -> None:
        job = ticket.job
        assert job is not None
        assert decision.cluster is not None
        ticket.messages.append(self._outgoing.dispatch(job, decision.cluster, now))
        if ticket.fence is not None:
            ticket.messages.append(ticket.fence)
        if ticket.reply_to:
            self._reply(ticket, answer(job.id, decision, job.attempt))
        if log.isEnabledFor(logging.INFO):
            told = {"action": "assign", "job": job.id, "attempt": job.attempt, "cluster": decision.cluster}
            log.info("job assigned", extra=told)

    def _in_the_way(
        self, ticket: Ticket, record: JobRecord, now: float, events: list[JobEvent], gone: list[Ticket]
    ) -> None:
        """The ledger has this job already, further on; or its id is of somebody else's."""
        job = ticket.job
        assert job is not None
        if record.user is not None and record.user != job.user:
            nothing = answer(job.id, Decision("no-match"), 0)
            self._reply(ticket, {**nothing, "status": "invalid", "error": f"job id {job.id} is taken: use a new UUID"})
            return
        if record.cancel_requested and not record.terminal and record.attempt < job.attempt:
            events.append(happened(job, "cancelled", now, detail="cancelled before it was assigned"))
            self._reply(ticket, {**(record.answer or {}), "id": job.id, "status": "cancelled", "state": "cancelled"})
            return
        standing = record.state == "assigned" and record.attempt >= job.attempt
        if standing and ticket.delivery.redelivered:
            # The try before this one died between ledger and broker: its dispatch goes out (again).
            assert record.cluster is not None
            job.attempt = record.attempt
            if record.cluster not in self._world.clusters:
                gone.append(ticket)
                return
            ticket.messages.append(self._outgoing.dispatch(job, record.cluster, now))
            self._reply(ticket, {**(record.answer or {}), "id": job.id, "status": "assigned"})
            return
        self._reply(ticket, first_answer(job.id, record))

    def _not_assigned(self, ticket: Ticket, decision: Decision, now: float, events: list[JobEvent]) -> None:
        job = ticket.job
        assert job is not None
        reply = answer(job.id, decision, job.attempt - 1)
        if decision.status == "satisfied" or job.satisfy_only:
            self._reply(ticket, reply)
            return
        if decision.status == "bidding":
            ticket.messages.append(self._outgoing.to_bidding(ticket))
            events.append(happened(job, "held", now, code="bidding", detail="clusters are asked for bids"))
            return
        if decision.status == "held":
            ticket.messages.append(self._outgoing.hold(ticket, decision.retry_in))
        detail = decision.detail or summed_up(decision.reasons)
        events.append(happened(job, decision.status, now, code=decision.status, detail=detail, answer=reply))
        self._reply(ticket, reply)

    def _refused(self, ticket: Ticket, now: float, events: list[JobEvent]) -> None:
        refusal = ticket.refusal
        assert refusal is not None
        ticket.messages.clear()
        # The registry is not looked at for a message that says nothing we may act on: its counters stay 0.
        nothing = answer(ticket.id, Decision("no-match"), 0)
        reply = {**nothing, "status": refusal.status, "error": refusal.error}
        log.info(
            "submission refused",
            extra={"action": "refuse", "job": ticket.id, "code": refusal.code, "detail": refusal.error},
        )
        known = ticket.job.user if ticket.job else ticket.who.sub if ticket.who else None
        if refusal.dead:
            ticket.messages.append(dead.letter(ticket.delivery, refusal.code, refusal.error))
        elif known is not None or not ticket.fresh:
            # What nobody we know has sent leaves no record: it could be under the id of somebody's job.
            job = ticket.job
            state: State = "denied" if refusal.status == "denied" else "invalid"
            events.append(
                JobEvent(
                    id=ticket.id,
                    attempt=job.attempt if job else 0,
                    state=state,
                    at=now,
                    user=known,
                    code=refusal.code,
                    detail=refusal.error,
                    answer=reply,
                )
            )
        self._reply(ticket, reply)

    def _reply(self, ticket: Ticket, body: dict[str, Any]) -> None:
        if ticket.reply_to:
            ticket.messages.append(
                Message(
                    "",
                    ticket.reply_to,
                    codec.encode_json(body),
                    correlation_id=ticket.correlation_id or ticket.id,
                    mandatory=False,
                )
            )

    # -- recording, publishing, settling ---------------------------------------------------------------------

    def _record(self, events: list[JobEvent], tickets: Sequence[Ticket]) -> list[dict[str, Any]]:
        """Write outcomes other than assignments; repeats of an id get the first answer. Gives what there is to tell."""
        if not events:
            return []
        by_id = {t.id: t for t in tickets}
        cancelled: list[JobEvent] = []
        for event, result in zip(events, self._store.jobs.record(events), strict=True):
            ticket = by_id.get(event.id)
            if ticket is None:
                continue
            if event.state == "held" and result.record.cancel_requested:
                cancelled.append(event.model_copy(update={"state": "cancelled", "detail": "cancelled while it waited"}))
                ticket.messages.clear()
                self._reply(ticket, {**(event.answer or {}), "status": "cancelled", "state": "cancelled"})
            elif not result.applied and (record := result.record).terminal:
                self._repeat(ticket, record)
        if cancelled:
            self._store.jobs.record(cancelled)
            events = [*events, *cancelled]
        return [e.model_dump(exclude_none=True) for e in events]

    def _tell(self, assigned: Sequence[str], others: Sequence[dict[str, Any]]) -> list[Message]:
        """Events for whoever listens, a message for each state: the ledger has them already."""
        bodies = {"assigned": told_of(assigned)} if assigned else {}
        for state in dict.fromkeys(e["state"] for e in others):
            bodies[state] = codec.encode_json({"version": 1, "events": [e for e in others if e["state"] == state]})
        return [
            Message(
                topology.EVENTS,
                topology.event_key(None, state),
                body,
                headers={signing.HEADER: signing.sign(self._keys.own, body), RECORDED: True},
            )
            for state, body in bodies.items()
        ]

    def _repeat(self, ticket: Ticket, record: JobRecord) -> None:
        """The job ended before: its sender gets the first answer, and nothing of it goes on."""
        ticket.messages.clear()
        self._reply(ticket, first_answer(ticket.id, record))

    def _publish(self, tickets: Sequence[Ticket], consumer: Consumer, extra: list[Message]) -> None:
        messages: list[Message] = []
        owners: list[Ticket | None] = []
        for ticket in tickets:
            messages.extend(ticket.messages)
            owners.extend([ticket] * len(ticket.messages))
        messages.extend(extra)
        owners.extend([None] * len(extra))

        def settle(receipt: Receipt) -> None:
            self._settle(tickets, owners, messages, receipt, consumer)

        self._broker.publish(messages).then(settle)

    def _settle(
        self,
        tickets: Sequence[Ticket],
        owners: Sequence[Ticket | None],
        messages: Sequence[Message],
        receipt: Receipt,
        consumer: Consumer,
    ) -> None:
        elsewhere: list[Ticket] = []
        for owner, message, outcome in zip(owners, messages, receipt.outcomes, strict=True):
            if outcome is None or owner is None or not message.mandatory:
                continue
            code = _placement_failure(outcome)
            if code is not None and message.exchange == topology.JOBS and owner.job is not None:
                owner.job.tried[message.routing_key] = Reason(code=code, detail=str(outcome))
                elsewhere.append(owner)
            else:
                owner.failed = True
                log.warning("publish failed", extra={"action": "publish", "job": owner.id, "detail": str(outcome)})
        for owner in elsewhere:
            self._place_again(owner)
        waiting = {id(t) for t in elsewhere}
        consumer.ack([t.delivery for t in tickets if not t.failed and id(t) not in waiting])
        failed = [t.delivery for t in tickets if t.failed]
        if failed:
            consumer.requeue(failed)

    def _place_again(self, ticket: Ticket) -> None:
        """With the next batch: its attempt stands in the ledger, and was not sent."""
        assert ticket.job is not None
        ticket.job.attempt += 1
        ticket.messages.clear()
        self._again.put(ticket)


def _given(tickets: Sequence[Ticket], decisions: Sequence[Decision | None]) -> Iterator[tuple[int, Job, Decision]]:
    """Those that were given to a cluster, with their places."""
    for at, (ticket, decision) in enumerate(zip(tickets, decisions, strict=True)):
        if ticket.job is not None and decision is not None and decision.status == "assigned":
            yield at, ticket.job, decision


def _placement_failure(outcome: Exception) -> str | None:
    """The code for a dispatch that this cluster's queue did not take; None when it is the broker that fails."""
    if isinstance(outcome, Unroutable):
        return "no-queue"
    if isinstance(outcome, QueueFull):
        return "queue-full"
    if isinstance(outcome, TooLarge):
        return "too-large"
    return None


def _revoked(job: Job, revocations: Sequence[Revocation]) -> bool:
    return any(
        (r.kind == "jti" and r.value == job.jti)
        or (r.kind == "sub" and r.value == job.user and job.token_issued_at <= r.before)
        for r in revocations
    )
