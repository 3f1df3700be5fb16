"""The returns worker: dispatches that came back, rejected by their agent or timed out, go to the next best cluster.

A dispatch may be in its queue twice (a confirm was lost, and it was sent again): one copy comes back while the job of
the other runs. The ledger knows that once it has all events that the agent published before. So a barrier goes the way
of the events (`rainbow_workers.barriers`), and only when it has passed is the job given to another cluster. While no
recorder runs, what came back waits, and nothing is charged to it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rainbow import topology
from rainbow.brokers.base import Broker, Consumer, Delivery, Message
from rainbow.client.mailbox import Mailbox
from rainbow.errors import RainbowError
from rainbow.models.control import AgentCommand
from rainbow.models.job import BEGUN, Dispatch, JobRecord, Reason
from rainbow_workers import barriers, commands
from rainbow_workers.audit import Audit
from rainbow_workers.barriers import Barrier
from rainbow_workers.clusters.cache import ClusterCache
from rainbow_workers.clusters.sync import CacheSync
from rainbow_workers.headers import KIND, REBOUND
from rainbow_workers.keys import ClusterKeys
from rainbow_workers.scheduling.dispatcher import Dispatcher
from rainbow_workers.scheduling.pending_job import PendingJob
from rainbow_workers.scheduling.rebinding import UNREACHABLE, Rebinding
from rainbow_workers.scheduling.submissions import SubmissionReader
from rainbow_workers.stores.base import Store
from rainbow_workers.worker import Task

log = logging.getLogger(__name__)

#: How long, in seconds, a rejection may run ahead of the event that says why.
_EVENT_GRACE = 3.0


@dataclass(slots=True, eq=False)
class _Return:
    """A dispatch that came back. `due`: from when on it is not waited for the event that says why, on the monotonic
    clock. `barrier` was sent after it had come back."""

    delivery: Delivery
    dispatch: Dispatch
    due: float
    barrier: Barrier | None = None

    @property
    def settled(self) -> bool:
        """Whether the ledger has all that its agent published before."""
        return self.barrier is not None and self.barrier.passed


class Returns(Task):
    name = "returns"
    queue = topology.REJECTED_QUEUE

    def __init__(
        self,
        broker: Broker,
        intake: SubmissionReader,
        dispatcher: Dispatcher,
        follower: CacheSync,
        store: Store,
        world: ClusterCache,
        keys: ClusterKeys,
        mailbox: Mailbox,
        rebinding: Rebinding,
        audit: Audit | None = None,
    ) -> None:
        self._rebinding = rebinding
        self._audit = audit or Audit()
        self._broker = broker
        self._intake = intake
        self._dispatcher = dispatcher
        self._follower = follower
        self._store = store
        self._world = world
        self._keys = keys
        self._mailbox = mailbox
        self._waiting: list[_Return] = []

    def ready(self) -> None:
        self._follower.follow()
        self._rebinding.look()

    def handle(self, deliveries: Sequence[Delivery], consumer: Consumer) -> None:
        tickets: list[PendingJob] = self._dispatcher.pending()
        due, self._waiting = self._waiting, []
        now = time.monotonic()
        for delivery in deliveries:
            dispatch = self._open(delivery)
            if dispatch is None:
                tickets.append(self._intake.returned(delivery, Reason(code="error")))
            else:
                unseen = _death(delivery.headers) or delivery.headers.get(KIND) == REBOUND
                due.append(_Return(delivery, dispatch, now if unseen else now + _EVENT_GRACE))
        settled = [back.settled for back in due]  # looked at before the records are read
        records = self._store.jobs.get([back.dispatch.id for back in due]) if due else []
        unasked: list[_Return] = []
        begun: list[Delivery] = []
        for back, record, known in zip(due, records, settled, strict=True):
            if record is not None and _went_on(record, back.dispatch.attempt):
                begun.append(back.delivery)
                continue
            reason = self._reason(back, record, settled=known)
            if reason is not None:
                ticket = self._intake.returned(back.delivery, reason)
                ticket.fence = self._fence(back.dispatch)
                ticket.back, ticket.refund = True, back.dispatch.cluster
                tickets.append(ticket)
                continue
            self._waiting.append(back)
            if now >= back.due and (back.barrier is None or back.barrier.overdue):
                unasked.append(back)
        if begun:
            log.info("%d copies of jobs that went on came back", len(begun), extra={"action": "return"})
            consumer.ack(begun)
        if unasked:
            barrier = barriers.send(self._broker, self._mailbox, self._keys)
            for back in unasked:
                back.barrier = barrier
        if tickets:
            # Turns are limited when a cluster is lost: the most urgent take them.
            tickets.sort(key=lambda t: -t.job.priority if t.job else 0)
            self._dispatcher.dispatch(tickets, consumer)
        for ticket in tickets:
            if ticket.refusal is not None:
                who = {"sub": ticket.job.user, "jti": ticket.job.jti} if ticket.job else {}
                self._audit.note(None, "return", ticket.id or None, ticket.refusal.code, ticket.refusal.error, **who)

    def _open(self, delivery: Delivery) -> Dispatch | None:
        try:
            return self._intake.open_dispatch(delivery)[0]
        except RainbowError:  # intake says what is wrong when it makes the dead letter
            return None

    def _reason(self, back: _Return, record: JobRecord | None, *, settled: bool) -> Reason | None:
        """Why it came back; None while that is not known for sure."""
        dispatch = back.dispatch
        if record is not None and record.attempt > dispatch.attempt:
            # Placing knows whether that attempt was ever sent.
            return Reason(code="error", detail="there is a later attempt")
        if record is not None and record.state == "rejected" and record.attempt == dispatch.attempt:
            return Reason(code=record.code or "error", detail=record.detail or "")
        if not settled:
            return None
        death = _death(back.delivery.headers)
        if death == "delivery_limit":
            return Reason(code="error", detail="delivered too often without an answer: its agent keeps dying on it")
        if death == "expired":
            return Reason(code="timed-out", detail="its agent did not take it in time")
        if back.delivery.headers.get(KIND) == REBOUND:
            return UNREACHABLE
        if dispatch.cluster not in self._world.clusters:
            return Reason(code="deleted", detail="its cluster was deleted")
        return Reason(code="error", detail="rejected without a reason")

    def _fence(self, dispatch: Dispatch) -> Message | None:
        """Tell the old cluster that this attempt is off: its agent may wake up with it in its hands.

        It cannot have started unnoticed: an agent has `accepted` confirmed by the broker before it lets a job start.
        """
        cluster = self._world.clusters.get(dispatch.cluster)
        if cluster is None:
            return None
        command = AgentCommand(
            command="cancel", id=dispatch.id, attempt=dispatch.attempt, reason="it came back", moved=True
        )
        return commands.message(self._keys, dispatch.cluster, cluster.record.registration, command)


def _went_on(record: JobRecord, attempt: int) -> bool:
    """Did this attempt begin, or is all over?"""
    return record.terminal or (record.attempt == attempt and record.state in BEGUN)


def _death(headers: Mapping[str, Any]) -> str:
    """The reason of the newest death that was not the agent's own word (rabbitmq.com/docs/dlx#effects); else empty."""
    deaths = headers.get("x-death")
    newest = deaths[0] if isinstance(deaths, list) and deaths else {}
    reason = str(newest.get("reason", "")) if isinstance(newest, dict) else ""
    return "" if reason == "rejected" else reason
