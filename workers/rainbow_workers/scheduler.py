"""The scheduler worker: submissions in, dispatches out."""

from __future__ import annotations

from collections.abc import Sequence

from rainbow import topology
from rainbow.brokers.base import Consumer, Delivery
from rainbow_workers.following import Follower
from rainbow_workers.intake import Intake
from rainbow_workers.placing import Placer


class Scheduler:
    name = "scheduler"
    queue = topology.SCHEDULER_QUEUE

    def __init__(self, intake: Intake, placer: Placer, follower: Follower) -> None:
        self._intake = intake
        self._placer = placer
        self._follower = follower

    def ready(self) -> None:
        self._follower.follow()

    def handle(self, deliveries: Sequence[Delivery], consumer: Consumer) -> None:
        tickets = [self._intake.read(d) for d in deliveries]
        again = self._placer.pending()
        if tickets or again:
            self._placer.place([*again, *tickets], consumer)
