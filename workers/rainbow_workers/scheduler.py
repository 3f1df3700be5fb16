"""The scheduler worker: submissions in, dispatches out."""

from __future__ import annotations

from collections.abc import Sequence

from rainbow import topology
from rainbow.brokers.base import Consumer, Delivery
from rainbow_workers.audit import DONE, Audit
from rainbow_workers.following import Follower
from rainbow_workers.intake import Intake
from rainbow_workers.placing import Placer
from rainbow_workers.ticket import Ticket


class Scheduler:
    name = "scheduler"
    queue = topology.SCHEDULER_QUEUE

    def __init__(self, intake: Intake, placer: Placer, follower: Follower, audit: Audit | None = None) -> None:
        self._intake = intake
        self._audit = audit or Audit()
        self._placer = placer
        self._follower = follower

    def ready(self) -> None:
        self._follower.follow()

    def handle(self, deliveries: Sequence[Delivery], consumer: Consumer) -> None:
        tickets = [self._intake.read(d) for d in deliveries]
        again = self._placer.pending()
        if tickets or again:
            self._placer.place([*again, *tickets], consumer)
        for ticket in tickets:
            if ticket.fresh or ticket.refusal is not None:
                self._note(ticket)
        # What was let in is noted once more when it is refused after all: its token was revoked meanwhile.
        for ticket in again:
            if ticket.refusal is not None:
                self._note(ticket)

    def _note(self, ticket: Ticket) -> None:
        refusal = ticket.refusal
        result, detail = (DONE, None) if refusal is None else (refusal.code, refusal.error)
        who = {} if ticket.who or not ticket.job else {"sub": ticket.job.user, "jti": ticket.job.jti}
        self._audit.note(ticket.who, "submit", ticket.id, result, detail, **who)
