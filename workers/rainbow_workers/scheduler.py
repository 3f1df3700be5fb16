"""The scheduler worker: submissions in, dispatches out."""

from __future__ import annotations

from collections.abc import Sequence

from rainbow import topology
from rainbow.brokers.base import Consumer, Delivery
from rainbow.errors import StoreUnavailable
from rainbow_workers.audit import DONE, Audit
from rainbow_workers.following import Follower
from rainbow_workers.intake import Intake
from rainbow_workers.placing import Batch, Placer
from rainbow_workers.ticket import Ticket
from rainbow_workers.worker import Task


class Scheduler(Task):
    """While the ledger writes a batch, the next one is read and decided."""

    name = "scheduler"
    queue = topology.SCHEDULER_QUEUE

    def __init__(self, intake: Intake, placer: Placer, follower: Follower, audit: Audit | None = None) -> None:
        self._intake = intake
        self._audit = audit or Audit()
        self._placer = placer
        self._follower = follower
        self._begun: Batch | None = None

    @property
    def under_way(self) -> bool:
        return self._begun is not None

    def ready(self) -> None:
        try:
            self._follower.follow()
        except StoreUnavailable:
            self._drop()
            raise

    def handle(self, deliveries: Sequence[Delivery], consumer: Consumer) -> None:
        tickets = [*self._placer.pending(), *map(self._intake.read, deliveries)]
        try:
            following = self._placer.begin(tickets, consumer) if tickets else None
            before, self._begun = self._begun, following
            if before is not None:
                self._finish(before)
        except StoreUnavailable:
            self._drop()
            raise

    def _finish(self, batch: Batch) -> None:
        self._placer.finish(batch)
        for ticket in batch.tickets:
            # What was let in before, and is noted, is noted once more when it is refused after all.
            if ticket.fresh or ticket.refusal is not None:
                self._note(ticket)
                ticket.fresh = False

    def _drop(self) -> None:
        if self._begun is not None:
            self._placer.drop(self._begun)
            self._begun = None

    def _note(self, ticket: Ticket) -> None:
        refusal = ticket.refusal
        result, detail = (DONE, None) if refusal is None else (refusal.code, refusal.error)
        who = {} if ticket.who or not ticket.job else {"sub": ticket.job.user, "jti": ticket.job.jti}
        self._audit.note(ticket.who, "submit", ticket.id, result, detail, **who)
