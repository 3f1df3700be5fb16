"""The queues and exchanges of one ``memory://NAME``: routing, handing out, dead-lettering and time to live."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

from rainbow.brokers.base import (
    Message,
)
from rainbow.brokers.routing import matches
from rainbow.brokers.x_death import Reason, is_cycle, with_death
from rainbow.errors import (
    QueueFull,
    RainbowError,
    Unroutable,
)
from rainbow.topology import Queue

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Entry:
    """A message in a queue. `expires_at` is on the monotonic clock; `returned` counts how often it came back."""

    message: Message
    order: int
    expires_at: float | None
    returned: int = 0
    redelivered: bool = False


class Subscriber(Protocol):
    """A consumer, as the hub sees it. `held` is what it got and has not settled, by order."""

    prefetch: int
    held: dict[int, Entry]

    def receive(self, entry: Entry) -> None:
        """Called under the hub's lock."""

    def lost(self) -> None:
        """Called under the hub's lock when the queue is deleted: what is held went with it."""


@dataclass(slots=True, eq=False)
class HubQueue:
    """A queue, its ready messages and its consumers. `turn`: the consumer that is served next."""

    spec: Queue
    ready: deque[Entry] = field(default_factory=deque)
    consumers: list[Subscriber] = field(default_factory=list)
    private: bool = False
    turn: int = 0


class Hub:
    """Exchanges and queues of one ``memory://NAME``. All fields are guarded by `lock`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = threading.RLock()
        self.alarm = threading.Condition(self.lock)
        self.exchanges: dict[str, str] = {}
        self.bindings: dict[str, list[tuple[str, str]]] = {}
        self.queues: dict[str, HubQueue] = {}
        #: Consumers of queues that do not exist (yet, or any more).
        self.waiting: dict[str, list[Subscriber]] = {}
        self.order = itertools.count()
        self.due: list[tuple[float, int, str]] = []
        self.brokers = 0
        self.sweeper: threading.Thread | None = None

    # -- routing -----------------------------------------------------------------------------------

    def route(self, exchange: str, key: str) -> list[HubQueue]:
        if exchange == "":
            queue = self.queues.get(key)
            return [queue] if queue else []
        kind = self.exchanges.get(exchange)
        found: dict[str, HubQueue] = {}
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

    def put(self, queue: HubQueue, message: Message) -> None:
        lives = [t for t in (queue.spec.message_ttl, message.expiration) if t is not None]
        entry = Entry(message, next(self.order), time.monotonic() + min(lives) if lives else None)
        queue.ready.append(entry)
        self.watch(queue, entry)
        self.dispatch(queue)

    # -- handing out and taking back -----------------------------------------------------------------

    def dispatch(self, queue: HubQueue) -> None:
        self.expire(queue)
        while queue.ready:
            count = min(len(queue.consumers), 1 if queue.spec.single_active else len(queue.consumers))
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

    def give_back(self, queue: HubQueue, entries: Sequence[Entry]) -> None:
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

    def bury(self, queue: HubQueue, entry: Entry, reason: Reason) -> None:
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

    def expire(self, queue: HubQueue) -> None:
        """Dead-letter what has run out at the head of `queue` (only there, as RabbitMQ does)."""
        now = time.monotonic()
        while queue.ready:
            at = queue.ready[0].expires_at
            if at is None or at > now:
                return
            self.bury(queue, queue.ready.popleft(), "expired")

    def watch(self, queue: HubQueue, entry: Entry) -> None:
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


_hubs: dict[str, Hub] = {}
_hubs_lock = threading.Lock()


def hub_of(url: str) -> Hub:
    """The hub of a URL, made on first use."""
    parts = urlsplit(url)
    name = parts.netloc + parts.path
    with _hubs_lock:
        if name not in _hubs:
            _hubs[name] = Hub(name)
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
