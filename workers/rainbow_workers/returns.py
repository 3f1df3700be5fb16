"""The returns worker: dispatches that came back, rejected by their agent or timed out, go to the next best cluster."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rainbow import topology
from rainbow.brokers.base import Consumer, Delivery, Message
from rainbow.errors import RainbowError
from rainbow.models.control import AgentCommand
from rainbow.models.job import Dispatch, JobRecord, Reason
from rainbow_workers import commands
from rainbow_workers.audit import Audit
from rainbow_workers.following import Follower
from rainbow_workers.intake import Intake
from rainbow_workers.keys import ClusterKeys
from rainbow_workers.placing import Placer
from rainbow_workers.stores.base import Store
from rainbow_workers.ticket import Ticket
from rainbow_workers.world import World

#: How long, in seconds, a rejection may run ahead of the event that says why.
_EVENT_GRACE = 3.0


class Returns:
    name = "returns"
    queue = topology.REJECTED_QUEUE

    def __init__(
        self,
        intake: Intake,
        placer: Placer,
        follower: Follower,
        store: Store,
        world: World,
        keys: ClusterKeys,
        audit: Audit | None = None,
    ) -> None:
        self._audit = audit or Audit()
        self._intake = intake
        self._placer = placer
        self._follower = follower
        self._store = store
        self._world = world
        self._keys = keys
        self._waiting: list[tuple[float, Delivery]] = []

    def ready(self) -> None:
        self._follower.follow()

    def handle(self, deliveries: Sequence[Delivery], consumer: Consumer) -> None:
        now = time.monotonic()
        due = [*self._waiting, *((now + _EVENT_GRACE, d) for d in deliveries)]
        self._waiting = []
        again = self._placer.pending()
        if not due and not again:
            return
        opened = [self._open(d) for _, d in due]
        records = iter(self._store.jobs.get([x.id for x in opened if x is not None]))
        tickets: list[Ticket] = [*again]
        for (deadline, delivery), dispatch in zip(due, opened, strict=True):
            record = next(records) if dispatch is not None else None
            if dispatch is None:
                tickets.append(self._intake.returned(delivery, Reason(code="error")))
                continue
            reason = self._reason(delivery, dispatch, record, last_try=now >= deadline)
            if reason is None:
                self._waiting.append((deadline, delivery))
            else:
                ticket = self._intake.returned(delivery, reason)
                fence = self._fence(dispatch) if reason.code == "timed-out" else None
                if fence is not None:
                    ticket.messages.append(fence)
                tickets.append(ticket)
        if tickets:
            # Turns are limited when a cluster is lost: the most urgent take them.
            tickets.sort(key=lambda t: -t.job.priority if t.job else 0)
            self._placer.place(tickets, consumer)
        for ticket in tickets:
            if ticket.refusal is not None:
                who = {"sub": ticket.job.user, "jti": ticket.job.jti} if ticket.job else {}
                self._audit.note(None, "return", ticket.id or None, ticket.refusal.code, ticket.refusal.error, **who)

    def _open(self, delivery: Delivery) -> Dispatch | None:
        try:
            return self._intake.open_dispatch(delivery)[0]
        except RainbowError:  # intake says what is wrong when it makes the dead letter
            return None

    def _reason(
        self, delivery: Delivery, dispatch: Dispatch, record: JobRecord | None, *, last_try: bool
    ) -> Reason | None:
        """Why it came back; None when the agent's event is still on its way."""
        death = _death(delivery.headers)
        if death == "delivery_limit":
            return Reason(code="error", detail="delivered too often without an answer: its agent keeps dying on it")
        if death == "expired":
            return Reason(code="timed-out", detail="its agent did not take it in time")
        current = record is not None and record.attempt == dispatch.attempt
        if current and record is not None and record.state == "rejected":
            return Reason(code=record.code or "error", detail=record.detail or "")
        if dispatch.cluster not in self._world.clusters:
            return Reason(code="deleted", detail="its cluster was deleted")
        if (record is not None and not current) or last_try:
            return Reason(code="error", detail="rejected without a reason")
        return None

    def _fence(self, dispatch: Dispatch) -> Message | None:
        """Tell the old cluster that this attempt is off: its agent may wake up with it in its hands.

        It cannot have started unnoticed: an agent has `accepted` confirmed by the broker before it lets a job start.
        """
        cluster = self._world.clusters.get(dispatch.cluster)
        if cluster is None:
            return None
        return commands.message(
            self._keys,
            dispatch.cluster,
            cluster.record.registration,
            AgentCommand(command="cancel", id=dispatch.id, attempt=dispatch.attempt, reason="timed out"),
        )


def _death(headers: Mapping[str, Any]) -> str:
    """The reason of the newest death (rabbitmq.com/docs/dlx#effects)."""
    deaths = headers.get("x-death")
    newest = deaths[0] if isinstance(deaths, list) and deaths else {}
    return str(newest.get("reason", "")) if isinstance(newest, dict) else ""
