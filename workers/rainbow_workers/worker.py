"""A worker: a thread that takes deliveries from one queue until it is told to stop.

What all workers share: batches, giving everything back while the store is away, and ending the process when
a thread dies for a reason nobody foresaw.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from rainbow.backoff import Backoff
from rainbow.brokers.base import Broker, Consumer, Delivery
from rainbow.errors import StoreUnavailable

log = logging.getLogger(__name__)


class Task(Protocol):
    """What a worker does. `handle` settles every delivery, now or when its own messages are confirmed."""

    name: str
    queue: str

    @property
    def under_way(self) -> bool:
        """Something was begun that the next call of `handle` ends, with deliveries or without: it comes at once."""
        return False

    def ready(self) -> None:
        """Before each batch, also an empty one. Raises StoreUnavailable when nothing can be handled now."""

    def handle(self, deliveries: Sequence[Delivery], consumer: Consumer) -> None:
        """Raises StoreUnavailable when nothing of the batch was done."""


class Patient:
    """A consumer that gives a delivery back only after a pause, so that what cannot be handled now does not spin
    through the broker, nor use up its delivery limit. None goes back while the broker takes no messages (`blocked`):
    it could not be handled then either."""

    def __init__(self, consumer: Consumer, pause: float = 1.0, blocked: Callable[[], bool] = lambda: False) -> None:
        self.consumer = consumer
        self._blocked = blocked
        self.address = consumer.address
        self._pause = pause
        self._lock = threading.Lock()
        self._held: list[tuple[float, Delivery]] = []

    def take(self, limit: int, timeout: float) -> list[Delivery]:
        self.give_back(time.monotonic())
        return self.consumer.take(limit, timeout)

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        self.consumer.ack(deliveries)

    def reject(self, deliveries: Sequence[Delivery]) -> None:
        self.consumer.reject(deliveries)

    def requeue(self, deliveries: Sequence[Delivery]) -> None:
        due = time.monotonic() + self._pause
        with self._lock:
            self._held.extend((due, d) for d in deliveries)

    def cancel(self) -> None:
        """The broker gives back what is held: it was never settled."""
        self.consumer.cancel()

    def give_back(self, now: float) -> None:
        if self._held and self._blocked():
            return
        with self._lock:
            due = [d for at, d in self._held if at <= now]
            self._held = [(at, d) for at, d in self._held if at > now]
        if due:
            self.consumer.requeue(due)


class Worker(threading.Thread):
    """Runs one task. `error` holds what ended it, if it did not end because it was told to."""

    def __init__(self, task: Task, broker: Broker, *, batch: int, prefetch: int, poll: float = 0.5) -> None:
        super().__init__(name=f"rainbow-{task.name}", daemon=True)
        self._task = task
        self._broker = broker
        self._batch = batch
        self._prefetch = prefetch
        self._poll = poll
        self._stopping = threading.Event()
        self.error: BaseException | None = None
        self.handled = 0
        self.looked_at = time.monotonic()

    @property
    def task_name(self) -> str:
        return self._task.name

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        try:
            self._run()
        except BaseException as exc:
            self.error = exc
            log.exception("worker ended", extra={"action": "worker-ended", "worker": self._task.name})

    def _run(self) -> None:
        backoff = Backoff(first=0.2, most=5.0)
        consumer: Consumer | None = None
        try:
            while not self._stopping.is_set():
                self.looked_at = time.monotonic()
                try:
                    self._task.ready()
                    if consumer is None:
                        made = self._broker.consume(self._task.queue, prefetch=self._prefetch)
                        consumer = Patient(made, blocked=lambda: self._broker.status.blocked is not None)
                        log.info("worker consumes", extra={"action": "consume", "queue": self._task.queue})
                    deliveries = consumer.take(self._batch, 0.0 if self._task.under_way else self._poll)
                    self._task.handle(deliveries, consumer)
                    self.handled += len(deliveries)
                    backoff.reset()
                except StoreUnavailable as exc:
                    log.warning("store unavailable", extra={"action": "store-unavailable", "detail": exc.message})
                    if consumer is not None:
                        # Nothing is held while nothing can be decided; other workers may reach the store.
                        consumer.cancel()
                        consumer = None
                    backoff.wait(self._stopping)
            if consumer is not None:
                self._end(consumer)
        finally:
            if consumer is not None:
                consumer.cancel()

    def _end(self, consumer: Consumer) -> None:
        """Let what was begun end."""
        try:
            while self._task.under_way:
                self._task.handle((), consumer)
        except StoreUnavailable:
            pass  # it comes again, here or elsewhere
