"""The Broker for ``memory://NAME``."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rainbow.brokers.base import (
    REPLIES,
    Message,
    QueueStats,
    Receipt,
    Status,
    check_prefetch,
)
from rainbow.brokers.memory.consumer import PRIVATE, MemoryConsumer
from rainbow.brokers.memory.hub import HubQueue, hub_of
from rainbow.errors import (
    BrokerUnavailable,
    NotFound,
    PublishFailed,
    RainbowError,
    TooLarge,
    TopologyMismatch,
)
from rainbow.topology import Queue, Topology

if TYPE_CHECKING:
    from rainbow.brokers import ConnectOptions


class MemoryBroker:
    """The Broker for ``memory://NAME``."""

    def __init__(self, options: ConnectOptions) -> None:
        self._options = options
        self._hub = hub_of(options.url)
        self._consumers: list[MemoryConsumer] = []
        self._closed = False
        with self._hub.lock:
            self._hub.brokers += 1
            if self._hub.due and self._hub.sweeper is None:
                self._hub.start_sweeper()

    def declare(self, topology: Topology) -> None:
        with self._hub.lock:
            self._check_open()
            wrong = []
            for exchange in topology.exchanges:
                kind = self._hub.exchanges.setdefault(exchange.name, exchange.type)
                if kind != exchange.type:
                    wrong.append(f"exchange {exchange.name!r} is {kind}, wanted {exchange.type}")
            for spec in topology.queues:
                wrong += self._declare_queue(spec)
            if wrong:
                raise TopologyMismatch("; ".join(wrong) + ": delete them, or change the settings to match")

    def _declare_queue(self, spec: Queue) -> list[str]:
        queue = self._hub.queues.get(spec.name)
        if queue is None:
            queue = self._hub.queues[spec.name] = HubQueue(spec)
            queue.consumers.extend(self._hub.waiting.pop(spec.name, ()))
        else:
            have, want = queue.spec.arguments(), spec.arguments()
            wrong = [
                f"queue {spec.name!r} has {key}={have.get(key)!r}, wanted {want.get(key)!r}"
                for key in sorted(have.keys() | want.keys())
                if have.get(key) != want.get(key)
            ]
            if wrong:
                return wrong
        for exchange, key in spec.bindings:
            bindings = self._hub.bindings.setdefault(exchange, [])
            if (key, spec.name) not in bindings:
                bindings.append((key, spec.name))
        return []

    def delete(self, queues: Sequence[str]) -> None:
        with self._hub.lock:
            self._check_open()
            for name in queues:
                queue = self._hub.queues.pop(name, None)
                if queue is None:
                    continue
                for bindings in self._hub.bindings.values():
                    bindings[:] = [b for b in bindings if b[1] != name]
                for consumer in queue.consumers:
                    consumer.lost()
                    self._hub.waiting.setdefault(name, []).append(consumer)

    def publish(self, messages: Sequence[Message]) -> Receipt:
        receipt = Receipt(len(messages))
        limit = self._options.max_message_bytes
        with self._hub.lock:
            outcomes: list[RainbowError | None] = []
            for m in messages:
                if self._closed:
                    outcomes.append(PublishFailed("the broker connection is closed"))
                elif len(m.body) > limit:
                    outcomes.append(TooLarge(f"message of {len(m.body)} bytes: the limit is {limit}"))
                else:
                    outcomes.append(self._hub.publish(m))
        for index, outcome in enumerate(outcomes):
            receipt.settle(index, outcome)
        return receipt

    def consume(self, queue: str, *, prefetch: int) -> MemoryConsumer:
        with self._hub.lock:
            self._check_open()
            check_prefetch(prefetch)
            private = queue == REPLIES
            name = f"{PRIVATE}{uuid.uuid4().hex}" if private else queue
            if private:
                self._hub.queues[name] = HubQueue(Queue(name, kind="classic"), private=True)
            consumer = MemoryConsumer(self._hub, name, prefetch, name)
            self._consumers = [c for c in self._consumers if not c.cancelled] + [consumer]
            known = self._hub.queues.get(name)
            if known is None:
                self._hub.waiting.setdefault(name, []).append(consumer)
            else:
                known.consumers.append(consumer)
                self._hub.dispatch(known)
            return consumer

    def stats(self, queue: str) -> QueueStats:
        with self._hub.lock:
            self._check_open()
            found = self._hub.queues.get(queue)
            if found is None:
                raise NotFound(f"there is no queue {queue!r}")
            self._hub.expire(found)
            return QueueStats(len(found.ready), len(found.consumers))

    def close(self) -> None:
        with self._hub.lock:
            if self._closed:
                return
            self._closed = True
            for consumer in self._consumers:
                consumer.cancel()
            self._consumers.clear()
            self._hub.brokers -= 1
            self._hub.alarm.notify_all()

    @property
    def status(self) -> Status:
        return Status(connected=not self._closed)

    def _check_open(self) -> None:
        if self._closed:
            raise BrokerUnavailable("the broker connection is closed")
