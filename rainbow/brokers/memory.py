"""A broker inside this process: the reference for what a plugin does, and what tests of other parts run on.

Brokers made with the same ``memory://NAME`` share one hub, which keeps its queues when they close, as a durable
broker does. It behaves like RabbitMQ quorum queues: time to live ends at the head of a queue, messages go back
to where they were, a message dead-lettered in a circle by time alone is dropped.
Two things are simpler: the priority of a message is kept but does not change the order (as on RabbitMQ before
4.0), and a dead-lettered message enters a full queue.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rainbow.brokers.base import (
    CANCELLED_PAUSE,
    REPLIES,
    Delivery,
    Message,
    QueueStats,
    Receipt,
    Status,
    check_prefetch,
)
from rainbow.brokers.deaths import Reason, is_cycle, with_death
from rainbow.brokers.routing import matches
from rainbow.errors import (
    BrokerUnavailable,
    NotFound,
    PublishFailed,
    QueueFull,
    RainbowError,
    TooLarge,
    TopologyMismatch,
    Unroutable,
)
from rainbow.topology import Queue, Topology

if TYPE_CHECKING:
    from rainbow.brokers import ConnectOptions

log = logging.getLogger(__name__)

#: As with RabbitMQ's channels, no two consumers have the same: what one got is nothing to the other.
_epochs = itertools.count(1)


@dataclass(slots=True, eq=False)
class _Entry:
    """A message in a queue. `expires_at` is on the monotonic clock; `returned` counts how often it came back."""

    message: Message
    order: int
    expires_at: float | None
    returned: int = 0
    redelivered: bool = False


@dataclass(slots=True, eq=False)
class _Queue:
    spec: Queue
    ready: deque[_Entry] = field(default_factory=deque)
    consumers: list[MemoryConsumer] = field(default_factory=list)
    private: bool = False
    turn: int = 0


class _Hub:
    """Exchanges and queues of one ``memory://NAME``. All fields are guarded by `lock`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = threading.RLock()
        self.alarm = threading.Condition(self.lock)
        self.exchanges: dict[str, str] = {}
        self.bindings: dict[str, list[tuple[str, str]]] = {}
        self.queues: dict[str, _Queue] = {}
        #: Consumers of queues that do not exist (yet, or any more).
        self.waiting: dict[str, list[MemoryConsumer]] = {}
        self.order = itertools.count()
        self.due: list[tuple[float, int, str]] = []
        self.brokers = 0
        self.sweeper: threading.Thread | None = None

    # -- routing -----------------------------------------------------------------------------------

    def route(self, exchange: str, key: str) -> list[_Queue]:
        if exchange == "":
            queue = self.queues.get(key)
            return [queue] if queue else []
        kind = self.exchanges.get(exchange)
        found: dict[str, _Queue] = {}
        for pattern, name in self.bindings.get(exchange, ()):
            if name in self.queues and matches(kind, pattern, key):
                found[name] = self.queues[name]
        return list(found.values())

    def publish(self, message: Message) -> RainbowError | None:
        if message.exchange and message.exchange not in self.exchanges:
            return Unroutable(f"there is no exchange {message.exchange!r}: declare the topology first")
        queues = self.route(message.exchange, message.routing_key)
        if not queues:
            if message.mandatory:
                return Unroutable(f"no queue takes {message.routing_key!r} from exchange {message.exchange!r}")
            return None
        full = [q.spec.name for q in queues if q.spec.max_length is not None and len(q.ready) >= q.spec.max_length]
        for queue in queues:
            if queue.spec.name not in full:
                self.put(queue, message)
        return QueueFull(f"queue {full[0]!r} is full") if full else None

    def put(self, queue: _Queue, message: Message) -> None:
        lives = [t for t in (queue.spec.message_ttl, message.expiration) if t is not None]
        entry = _Entry(message, next(self.order), time.monotonic() + min(lives) if lives else None)
        queue.ready.append(entry)
        self.watch(queue, entry)
        self.dispatch(queue)

    # -- handing out and taking back -----------------------------------------------------------------

    def dispatch(self, queue: _Queue) -> None:
        self.expire(queue)
        while queue.ready:
            count = len(queue.consumers)
            consumer = next(
                (
                    c
                    for c in (queue.consumers[(queue.turn + i) % count] for i in range(count))
                    if len(c.held) < c.prefetch
                ),
                None,
            )
            if consumer is None:
                return
            queue.turn = (queue.consumers.index(consumer) + 1) % count
            consumer.receive(queue.ready.popleft())

    def give_back(self, queue: _Queue, entries: Sequence[_Entry]) -> None:
        """Put entries back to where they were; those that came back too often are dead-lettered."""
        limit = queue.spec.delivery_limit if queue.spec.kind == "quorum" else None
        for entry in sorted(entries, key=lambda e: e.order, reverse=True):
            entry.redelivered = True
            entry.returned += 1
            if limit is not None and entry.returned > limit:
                self.bury(queue, entry, "delivery_limit")
            else:
                queue.ready.appendleft(entry)
                self.watch(queue, entry)
        self.dispatch(queue)

    def bury(self, queue: _Queue, entry: _Entry, reason: Reason) -> None:
        exchange = queue.spec.dead_letter
        if exchange is None:
            log.info(
                "dropped a message of %s (%s): it has no dead-letter exchange",
                queue.spec.name,
                reason,
                extra={"action": "broker.dropped", "queue": queue.spec.name, "reason": reason},
            )
            return
        old = entry.message
        headers = with_death(
            old.headers,
            queue=queue.spec.name,
            reason=reason,
            exchange=old.exchange,
            routing_key=old.routing_key,
            expiration=old.expiration,
        )
        new = _copy(old, exchange=exchange, headers=headers)
        for target in self.route(exchange, old.routing_key):
            if is_cycle(headers, target.spec.name):
                log.warning(
                    "dropped a message that went round from %s to %s by time alone",
                    queue.spec.name,
                    target.spec.name,
                    extra={"action": "broker.cycle", "queue": target.spec.name},
                )
                continue
            self.put(target, new)

    # -- time to live --------------------------------------------------------------------------------

    def expire(self, queue: _Queue) -> None:
        """Dead-letter what has run out at the head of `queue` (only there, as RabbitMQ does)."""
        now = time.monotonic()
        while queue.ready:
            at = queue.ready[0].expires_at
            if at is None or at > now:
                return
            self.bury(queue, queue.ready.popleft(), "expired")

    def watch(self, queue: _Queue, entry: _Entry) -> None:
        if entry.expires_at is None:
            return
        soonest = self.due[0][0] if self.due else None
        heapq.heappush(self.due, (entry.expires_at, entry.order, queue.spec.name))
        if self.sweeper is None:
            self.start_sweeper()
        elif soonest is None or entry.expires_at < soonest:
            self.alarm.notify()

    def start_sweeper(self) -> None:
        self.sweeper = threading.Thread(target=self.sweep, name=f"memory-broker-{self.name}", daemon=True)
        self.sweeper.start()

    def sweep(self) -> None:
        """Expire queues on time, for as long as a broker is open."""
        with self.lock:
            while self.brokers:
                now = time.monotonic()
                while self.due and self.due[0][0] <= now:
                    queue = self.queues.get(heapq.heappop(self.due)[2])
                    if queue is not None:
                        # An entry behind one that lives longer is due again when that one has gone.
                        self.dispatch(queue)
                self.alarm.wait(self.due[0][0] - now if self.due else None)
            self.sweeper = None


_hubs: dict[str, _Hub] = {}
_hubs_lock = threading.Lock()


def _hub(url: str) -> _Hub:
    parts = urlsplit(url)
    name = parts.netloc + parts.path
    with _hubs_lock:
        if name not in _hubs:
            _hubs[name] = _Hub(name)
        return _hubs[name]


def _copy(m: Message, *, exchange: str, headers: dict[str, object]) -> Message:
    return Message(
        exchange=exchange,
        routing_key=m.routing_key,
        body=m.body,
        content_type=m.content_type,
        message_id=m.message_id,
        correlation_id=m.correlation_id,
        reply_to=m.reply_to,
        priority=m.priority,
        headers=headers,
    )


class MemoryConsumer:
    """A Consumer of one queue of the hub. `held` is what it got and has not settled."""

    def __init__(self, hub: _Hub, queue: str, prefetch: int, address: str) -> None:
        self._hub = hub
        self._queue = queue
        self._arrived = threading.Condition(hub.lock)
        self._buffer: deque[Delivery] = deque()
        self.cancelled = False
        self.prefetch = prefetch
        self.address = address
        self.held: dict[int, _Entry] = {}
        self.epoch = next(_epochs)

    def receive(self, entry: _Entry) -> None:
        """Called by the hub, under its lock."""
        m = entry.message
        headers = dict(m.headers or {})
        if entry.returned:
            headers["x-delivery-count"] = entry.returned
        self.held[entry.order] = entry
        self._buffer.append(
            Delivery(
                queue=REPLIES if self.address.startswith(_PRIVATE) else self._queue,
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

    def _settled(self, deliveries: Sequence[Delivery], *, dispatch: bool = True) -> list[_Entry]:
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


_PRIVATE = "rainbow.reply."


class MemoryBroker:
    """The Broker for ``memory://NAME``."""

    def __init__(self, options: ConnectOptions) -> None:
        self._options = options
        self._hub = _hub(options.url)
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
            queue = self._hub.queues[spec.name] = _Queue(spec)
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
            name = f"{_PRIVATE}{uuid.uuid4().hex}" if private else queue
            if private:
                self._hub.queues[name] = _Queue(Queue(name, kind="classic"), private=True)
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
