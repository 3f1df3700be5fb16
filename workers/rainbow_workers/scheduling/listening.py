"""What the workers share that hold messages until the store says that something happened to other jobs."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from rainbow.brokers.base import Broker, Consumer, Delivery
from rainbow_workers.clusters.cache import ClusterCache
from rainbow_workers.clusters.sync import CacheSync
from rainbow_workers.keys import ClusterKeys
from rainbow_workers.scheduling.outgoing import Outgoing
from rainbow_workers.scheduling.pending_job import PendingJob
from rainbow_workers.scheduling.submissions import SubmissionReader
from rainbow_workers.stores.base import Store
from rainbow_workers.worker import Task

#: Seconds that one wait for news lasts at most: new arrivals are taken in between.
LISTEN = 0.1
#: Seconds that a delivery is held: RabbitMQ ends a channel that holds one for 30 minutes (`consumer_timeout`).
HELD_MOST = 600.0


class Window(Protocol):
    """The jobs that are held, by id."""

    def __len__(self) -> int: ...

    def clear(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Parts:
    """What such a worker works with. `window`: messages that it holds at most."""

    broker: Broker
    store: Store
    world: ClusterCache
    reader: SubmissionReader
    outgoing: Outgoing
    sync: CacheSync
    keys: ClusterKeys
    window: int = 20_000
    clock: Callable[[], float] = time.time


W = TypeVar("W", bound=Window)


class ListeningTask(Task, Generic[W]):
    """Holds a window of its queue, unacknowledged, and hears of jobs that moved (`stores.base.Dependencies.moved`).

    Attributes:
        arrays: Of which jobs it hears: of arrays, or of those that others wait for.
    """

    arrays = False

    def __init__(self, parts: Parts, held: W) -> None:
        self._broker = parts.broker
        self._store = parts.store
        self._world = parts.world
        self._reader = parts.reader
        self._outgoing = parts.outgoing
        self._sync = parts.sync
        self._keys = parts.keys
        self._window = held
        self._size = parts.window
        self._clock = parts.clock
        self._consumer: Consumer | None = None
        self._since = ""
        self._moved: list[str] = []
        #: What was read of the deliveries at hand.
        self._at_hand: list[PendingJob] = []
        self._epoch = parts.world.epoch
        self._tidy_at = 0.0

    def consume(self, broker: Broker, prefetch: int) -> Consumer:
        return broker.consume(self.queue, prefetch=self._size)

    @property
    def listens(self) -> bool:
        return bool(self._window)

    def ready(self) -> None:
        self._sync.follow()
        if self._window and not self._moved:
            self._since, self._moved = self._store.dependencies.moved(self._since, LISTEN, arrays=self.arrays)

    def handle(self, deliveries: Sequence[Delivery], consumer: Consumer) -> None:
        if consumer is not self._consumer:
            # What the consumer before this one had taken is with the broker again, and comes again.
            self._window.clear()
            self._moved = []
            self._consumer = consumer
        if deliveries and not self._window:
            # From before they are looked at.
            self._since, self._moved = self._store.dependencies.moved("", 0.0, arrays=self.arrays)
        self._at_hand = []
        self._work(deliveries, consumer, self._clock())
        self._at_hand = []

    def abandon(self) -> list[Delivery]:
        jobs, self._at_hand = self._at_hand, []
        for pending in jobs:
            self._drop(pending.id)
        return [pending.delivery for pending in jobs]

    def _heard(self) -> list[str]:
        """The jobs that moved, since this was called last."""
        moved, self._moved = self._moved, []
        return moved

    @abstractmethod
    def _work(self, deliveries: Sequence[Delivery], consumer: Consumer, now: float) -> None:
        """Take deliveries in, each read into `_at_hand` first, and look at what is due."""

    @abstractmethod
    def _drop(self, job_id: str) -> None:
        """Forget a job of the window. One that is not there is fine."""
