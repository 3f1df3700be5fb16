"""Answers to what a client publishes, handed by correlation id to whoever waits for them.

RabbitMQ allows one consumer of direct reply-to a channel, so all that a client asks shares this one.
"""

from __future__ import annotations

import queue
import threading
import uuid
from collections.abc import Callable
from typing import Protocol
from weakref import WeakValueDictionary

from rainbow.brokers.base import REPLIES, Broker, Consumer, Delivery
from rainbow.errors import RainbowError

_PREFETCH = 1000


class _Arrived(Protocol):
    """Where the answers to a slot go."""

    def put(self, item: Delivery, /) -> None: ...

    def get(self, block: bool = True, timeout: float | None = None) -> Delivery: ...


class _Sink:
    """Hands each answer to a function: nobody waits for it."""

    def __init__(self, put: Callable[[Delivery], None]) -> None:
        self.put = put

    def get(self, block: bool = True, timeout: float | None = None) -> Delivery:
        raise queue.Empty


class Slot:
    """Where answers with one correlation id arrive. Forgotten by the mailbox when nobody holds it any more.

    `address` goes into `reply_to`, `id` into `correlation_id`. Several slots may share one queue (`into`), for
    waiting on all of them at once.
    """

    __slots__ = ("__weakref__", "_arrived", "address", "id")

    def __init__(self, correlation_id: str, address: str, arrived: _Arrived) -> None:
        self.id = correlation_id
        self.address = address
        self._arrived = arrived

    def put(self, delivery: Delivery) -> None:
        self._arrived.put(delivery)

    def wait(self, timeout: float) -> Delivery | None:
        """The next answer, None when there is none within `timeout` seconds."""
        try:
            return self._arrived.get(timeout=max(0.0, timeout))
        except queue.Empty:
            return None


class Mailbox:
    """The one consumer of answers on `broker`, started when first needed. May be used from several threads."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._lock = threading.Lock()
        self._slots: WeakValueDictionary[str, Slot] = WeakValueDictionary()
        self._consumer: Consumer | None = None
        self._closed = threading.Event()

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    @property
    def reconnects(self) -> int:
        """How often the connection was made anew: what was on its way to us then is lost."""
        return self._broker.status.reconnects

    def open(
        self,
        correlation_id: str | None = None,
        *,
        into: Slot | None = None,
        sink: Callable[[Delivery], None] | None = None,
    ) -> Slot:
        """A slot for `correlation_id` (a new one if None).

        Args:
            correlation_id: what the answers carry.
            into: a slot whose queue takes what arrives here.
            sink: is called with what arrives, in the thread of the mailbox.
        """
        name = correlation_id or str(uuid.uuid4())
        with self._lock:
            if self._closed.is_set():
                raise RainbowError("the client is closed")
            if self._consumer is None:
                self._consumer = self._broker.consume(REPLIES, prefetch=_PREFETCH)
                threading.Thread(
                    target=self._receive, args=(self._consumer,), name="rainbow-answers", daemon=True
                ).start()
            arrived = _Sink(sink) if sink is not None else queue.SimpleQueue() if into is None else into._arrived
            slot = Slot(name, self._consumer.address, arrived)
            self._slots[name] = slot
            return slot

    def close(self) -> None:
        """Stop listening. The broker stays open. Idempotent."""
        self._closed.set()
        with self._lock:
            consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.cancel()

    def _receive(self, consumer: Consumer) -> None:
        while not self._closed.is_set():
            try:
                deliveries = consumer.take(_PREFETCH, 1.0)
            except RainbowError:  # the broker refused us for good: publishing raises it to who asks
                return
            for delivery in deliveries:
                with self._lock:
                    slot = self._slots.get(delivery.correlation_id or "")
                if slot is not None:
                    slot.put(delivery)
            consumer.ack(deliveries)
