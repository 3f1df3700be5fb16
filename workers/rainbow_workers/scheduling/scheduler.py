"""The scheduler worker: submissions in, dispatches out."""

from __future__ import annotations

from collections.abc import Sequence

from rainbow import topology
from rainbow.brokers.base import Consumer, Delivery
from rainbow.errors import StoreUnavailable
from rainbow_workers.audit import Audit
from rainbow_workers.clusters.sync import CacheSync
from rainbow_workers.scheduling.committing import Commit
from rainbow_workers.scheduling.dispatcher import Dispatcher
from rainbow_workers.scheduling.pending_job import PendingJob, note_submission
from rainbow_workers.scheduling.submissions import SubmissionReader
from rainbow_workers.worker import Task


class Scheduler(Task):
    """While the ledger writes a batch, the next one is read and decided."""

    name = "scheduler"
    queue = topology.SCHEDULER_QUEUE

    def __init__(
        self, intake: SubmissionReader, dispatcher: Dispatcher, follower: CacheSync, audit: Audit | None = None
    ) -> None:
        self._intake = intake
        self._audit = audit or Audit()
        self._dispatcher = dispatcher
        self._follower = follower
        self._begun: Commit | None = None
        self._finishing: Commit | None = None
        self._tickets: list[PendingJob] = []

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
        read = [self._intake.read(delivery) for delivery in deliveries]
        self._tickets = [*self._dispatcher.pending(), *read]
        try:
            following = self._dispatcher.begin(self._tickets) if self._tickets else None
            self._finishing, self._begun, self._tickets = self._begun, following, []
            if self._finishing is not None:
                self._finish(self._finishing, consumer)
                self._finishing = None
        except StoreUnavailable:
            self._drop()
            raise

    def abandon(self) -> list[Delivery]:
        begun = [commit for commit in (self._finishing, self._begun) if commit is not None]
        tickets = [*(t for commit in begun for t in commit.decided.jobs), *self._tickets]
        self._tickets, self._finishing = [], None
        self._drop()
        return [ticket.delivery for ticket in tickets]

    def _finish(self, commit: Commit, consumer: Consumer) -> None:
        self._dispatcher.finish(commit, consumer)
        for ticket in commit.decided.jobs:
            # What was let in before, and is noted, is noted once more when it is refused after all.
            if ticket.fresh or ticket.refusal is not None:
                note_submission(self._audit, ticket)
                ticket.fresh = False

    def _drop(self) -> None:
        if self._begun is not None:
            self._dispatcher.drop(self._begun)
            self._begun = None
