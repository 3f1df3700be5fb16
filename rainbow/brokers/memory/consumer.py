"""A consumer of one queue of the hub."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Sequence

from rainbow.brokers.base import (
    CANCELLED_PAUSE,
    REPLIES,
    Delivery,
)
from rainbow.brokers.memory.hub import Entry, Hub

PRIVATE = "rainbow.reply."
"""What the names of private reply queues start with."""

#: As with RabbitMQ's channels, no two consumers have the same: what one got is nothing to the other.
_epochs = itertools.count(1)


class MemoryConsumer:
    """A Consumer of one queue of the hub. `held` is what it got and has not settled."""

    def __init__(self, hub: Hub, queue: str, prefetch: int, address: str) -> None:
        self._hub = hub
        self._queue = queue
        self._arrived = threading.Condition(hub.lock)
        self._buffer: deque[Delivery] = deque()
        self.cancelled = False
        self.prefetch = prefetch
        self.address = address
        self.held: dict[int, Entry] = {}
        self.epoch = next(_epochs)

    def receive(self, entry: Entry) -> None:
        """Called by the hub, under its lock."""
        m = entry.message
        headers = dict(m.headers or {})
        if entry.returned:
            headers["x-delivery-count"] = entry.returned
        self.held[entry.order] = entry
        self._buffer.append(
            Delivery(
                queue=REPLIES if self.address.startswith(PRIVATE) else self._queue,
                body=m.body,
                content_type=m.content_type,
                message_id=m.message_id,
                correlation_id=m.correlation_id,
                reply_to=m.reply_to,
                priority=m.priority,
                headers=headers,
                exchange=m.exchange,
                routing_key=m.routing_key,
                redelivered=entry.redelivered,
                tag=entry.order,
                epoch=self.epoch,
            )
        )
        self._arrived.notify()

    def lost(self) -> None:
        """Called by the hub, under its lock, when the queue is deleted: what is held went with it."""
        self.held.clear()
        self._buffer.clear()
        self.epoch = next(_epochs)

    def take(self, limit: int, timeout: float) -> list[Delivery]:
        if self.cancelled:
            time.sleep(min(timeout, CANCELLED_PAUSE))
            return []
        with self._hub.lock:
            self._arrived.wait_for(lambda: self._buffer or self.cancelled, timeout)
            if self.cancelled:
                return []
            return [self._buffer.popleft() for _ in range(min(limit, len(self._buffer)))]

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        with self._hub.lock:
            self._settled(deliveries)

    def reject(self, deliveries: Sequence[Delivery]) -> None:
        with self._hub.lock:
            queue = self._hub.queues.get(self._queue)
            for entry in self._settled(deliveries, dispatch=False):
                if queue is not None:
                    self._hub.bury(queue, entry, "rejected")
            if queue is not None:
                self._hub.dispatch(queue)

    def requeue(self, deliveries: Sequence[Delivery]) -> None:
        with self._hub.lock:
            queue = self._hub.queues.get(self._queue)
            entries = self._settled(deliveries, dispatch=False)
            if queue is not None:
                self._hub.give_back(queue, entries)

    def _settled(self, deliveries: Sequence[Delivery], *, dispatch: bool = True) -> list[Entry]:
        entries = []
        for d in deliveries:
            entry = self.held.pop(d.tag, None) if d.epoch == self.epoch else None
            if entry is not None:
                entries.append(entry)
        queue = self._hub.queues.get(self._queue)
        if dispatch and queue is not None:
            self._hub.dispatch(queue)
        return entries

    def cancel(self) -> None:
        with self._hub.lock:
            if self.cancelled:
                return
            self.cancelled = True
            queue = self._hub.queues.get(self._queue)
            entries = list(self.held.values())
            self.lost()
            self._arrived.notify_all()
            if queue is None:
                self._hub.waiting.get(self._queue, []).remove(self)
                return
            queue.consumers.remove(self)
            if queue.private:
                del self._hub.queues[self._queue]
            else:
                self._hub.give_back(queue, entries)
