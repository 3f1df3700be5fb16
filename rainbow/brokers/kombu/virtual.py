"""What RabbitMQ does and kombu's virtual transports do not.

Routing that every connection knows, mandatory messages, dead letters, time to live, bounded queues. A message goes to
each of its queues by name; the exchange and routing key it was published with travel in it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

from rainbow.brokers.base import REPLIES, Delivery, Message, QueueStats
from rainbow.brokers.kombu.queues import Known, Put, Queues, expires
from rainbow.brokers.routing import matches
from rainbow.brokers.topology_mismatch import WHAT_TO_DO
from rainbow.brokers.x_death import Reason, with_death
from rainbow.errors import NotFound, QueueFull, RainbowError, TopologyMismatch, Unroutable
from rainbow.topology import Queue, Topology

#: Answers go to a queue of this name and a random part.
PRIVATE = "rainbow.reply."
#: Urgency 0 … 31 of ours becomes 9 … 0 of kombu's, where less is more urgent.
_MOST_URGENT, _LEAST = 31, 9
#: Most messages moved by one look at a queue.
_BATCH = 100


class VirtualSession:
    """A Session on queues that only hold messages."""

    keeps_deliveries = True
    batch = 100

    def __init__(self, queues: Queues, channel: Any, connection: Any, *, idle: float) -> None:
        self._queues = queues
        self._channel = channel
        self._connection = connection
        self._name = uuid.uuid4().hex
        self._queue = ""
        self._private = False
        self._next_recover = 0.0
        self.idle: float | None = idle

    # -- topology ------------------------------------------------------------------------------------

    def declare(self, topology: Topology) -> None:
        known = self._queues.known()
        wrong: list[str] = []
        exchanges: dict[str, str] = {}
        queues: dict[str, Queue] = {}
        for exchange in topology.exchanges:
            have = known.exchanges.get(exchange.name)
            if have is None:
                exchanges[exchange.name] = exchange.type
            elif have != exchange.type:
                wrong.append(f"exchange {exchange.name!r} has type={have}, wanted {exchange.type}")
        for queue in topology.queues:
            old = known.queues.get(queue.name)
            if old is None:
                queues[queue.name] = queue
                continue
            differ = _differences(old, queue)
            wrong += differ
            if not differ and not set(queue.bindings) <= set(old.bindings):
                more = tuple(dict.fromkeys((*old.bindings, *queue.bindings)))
                queues[queue.name] = _with_bindings(old, more)
        if exchanges or queues:
            self._queues.remember(exchanges, queues)
        if wrong:
            raise TopologyMismatch(f"{'; '.join(wrong)}: {WHAT_TO_DO}")

    def delete(self, queues: Sequence[str]) -> None:
        self._queues.forget(queues)

    def stats(self, queue: str) -> QueueStats:
        if queue not in self._queues.known().queues:
            raise NotFound(f"there is no queue {queue!r}")
        return QueueStats(self._queues.size(queue), self._queues.consumers(queue))

    # -- publishing ----------------------------------------------------------------------------------

    def publish(self, messages: Sequence[Message]) -> list[RainbowError | None]:
        known = self._queues.known()
        outcomes: list[RainbowError | None] = []
        puts: list[Put] = []
        sizes: dict[str, int] = {}
        for m in messages:
            if m.exchange == "" and m.routing_key.startswith(PRIVATE):
                outcomes.append(self._answer(m, puts))
            else:
                outcomes.append(self._route(known, m, puts, sizes))
        self._queues.put(puts)
        return outcomes

    def _answer(self, m: Message, puts: list[Put]) -> RainbowError | None:
        if not self._queues.consumers(m.routing_key):
            return Unroutable("the client that asked is gone")
        puts.append((m.routing_key, self._payload(m, None), True))
        return None

    def _route(self, known: Known, m: Message, puts: list[Put], sizes: dict[str, int]) -> RainbowError | None:
        """Add what `m` is to become to `puts`; `sizes` are the lengths of bounded queues with what is in `puts`."""
        if m.exchange and m.exchange not in known.exchanges:
            return Unroutable(f"there is no exchange {m.exchange!r}: declare the topology first")
        queues = _route(known, m.exchange, m.routing_key)
        if not queues:
            if m.mandatory:
                return Unroutable(f"no queue takes {m.routing_key!r} from exchange {m.exchange!r}")
            return None
        full: QueueFull | None = None
        for queue in queues:
            if queue.max_length is not None:
                if queue.name not in sizes:
                    sizes[queue.name] = self._queues.size(queue.name)
                if sizes[queue.name] >= queue.max_length:
                    full = full or QueueFull(f"queue {queue.name!r} is full")
                    continue
                sizes[queue.name] += 1
            puts.append(self._put(queue, m))
        return full

    def _put(self, queue: Queue, m: Message) -> Put:
        if m.expiration is not None and queue.message_ttl is None:
            self._queues.mark_expiring(queue.name)
        return queue.name, self._payload(m, queue.message_ttl), False

    def _payload(self, m: Message, queue_ttl: float | None) -> dict[str, Any]:
        lives = [t for t in (queue_ttl, m.expiration) if t is not None]
        own = {
            "exchange": m.exchange,
            "routing_key": m.routing_key,
            "expires": time.time() + min(lives) if lives else None,
            "expiration": m.expiration,
            "priority": m.priority,
        }
        properties: dict[str, Any] = {"rainbow": own, "delivery_mode": 2}
        for name in ("message_id", "correlation_id", "reply_to"):
            if (value := getattr(m, name)) is not None:
                properties[name] = value
        urgency = min(max(m.priority or 0, 0), _MOST_URGENT)
        payload: dict[str, Any] = self._channel.prepare_message(
            m.body,
            priority=_LEAST - urgency * _LEAST // _MOST_URGENT,
            content_type=m.content_type,
            headers=dict(m.headers or {}),
            properties=properties,
        )
        return payload

    # -- consuming -----------------------------------------------------------------------------------

    def subscribe(self, queue: str, prefetch: int, *, private: bool) -> bool:
        self._queue, self._private = queue, private
        if not private and queue not in self._queues.known().queues:
            return False
        self._queues.present(queue, self._name, here=True)
        return True

    def poll(self, room: int, timeout: float) -> list[Delivery]:
        spec = self._queues.known().queues.get(self._queue)
        if spec is not None and spec.single_active and not self._queues.active(self._queue, self._name):
            time.sleep(min(timeout, 0.05))
            return []
        payloads = self._queues.take(self._queue, min(room, _BATCH), expired_only=False)
        now = time.time()
        late = [p for p in payloads if (at := expires(p)) is not None and at <= now]
        if late and not self._private:
            self._bury(self._queue, late, "expired")
            payloads = [p for p in payloads if p not in late]
        return [self._delivery(p) for p in payloads]

    def _delivery(self, payload: dict[str, Any]) -> Delivery:
        properties = payload["properties"]
        own = properties["rainbow"]
        return Delivery(
            queue=REPLIES if self._private else self._queue,
            body=self._body(payload),
            content_type=payload.get("content-type"),
            message_id=properties.get("message_id"),
            correlation_id=properties.get("correlation_id"),
            reply_to=properties.get("reply_to"),
            priority=own["priority"],
            headers=_headers(payload),
            exchange=own["exchange"],
            routing_key=own["routing_key"],
            redelivered=bool(properties["delivery_info"].get("redelivered")),
            tag=payload,
        )

    def _body(self, payload: dict[str, Any]) -> bytes:
        body = payload["body"]
        if body and not payload.get("plain"):
            body = self._channel.decode_body(body, payload["properties"].get("body_encoding"))
        return body.encode() if isinstance(body, str) else bytes(body or b"")

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        if deliveries:
            self._queues.done([d.tag for d in deliveries])

    def reject(self, deliveries: Sequence[Delivery]) -> None:
        if deliveries and not self._private:
            self._bury(self._queue, [d.tag for d in deliveries], "rejected")

    def requeue(self, deliveries: Sequence[Delivery]) -> None:
        if deliveries:
            self._queues.give_back([d.tag for d in deliveries])

    def unsubscribe(self, held: Sequence[Delivery]) -> None:
        if not self._private:
            self.requeue(held)  # before anybody else becomes active
        self._queues.present(self._queue, self._name, here=False)
        if self._private:
            self._queues.forget([self._queue])

    def _bury(self, queue: str, payloads: Sequence[dict[str, Any]], reason: Reason) -> None:
        known = self._queues.known()
        spec = known.queues.get(queue)
        exchange = spec.dead_letter if spec is not None else None
        if exchange is not None:
            dead = [self._dead(queue, exchange, payload, reason) for payload in payloads]
            self._queues.put([self._put(target, m) for m in dead for target in _route(known, exchange, m.routing_key)])
        self._queues.done(payloads)

    def _dead(self, queue: str, exchange: str, payload: dict[str, Any], reason: Reason) -> Message:
        properties = payload["properties"]
        own = properties["rainbow"]
        return Message(
            exchange=exchange,
            routing_key=own["routing_key"],
            body=self._body(payload),
            content_type=payload.get("content-type") or "",
            message_id=properties.get("message_id"),
            correlation_id=properties.get("correlation_id"),
            reply_to=properties.get("reply_to"),
            priority=own["priority"],
            headers=with_death(
                _headers(payload),
                queue=queue,
                reason=reason,
                exchange=own["exchange"],
                routing_key=own["routing_key"],
                expiration=own["expiration"],
            ),
        )

    # -- keeping up ----------------------------------------------------------------------------------

    def tick(self, held: Sequence[Delivery]) -> None:
        if self._queue:
            self._queues.present(self._queue, self._name, here=True)
            self._queues.keep([d.tag for d in held])
        now = time.monotonic()
        if now >= self._next_recover:
            self._next_recover = now + 5.0
            self._queues.recover()

    def sweep(self) -> None:
        known = self._queues.known()
        expiring = self._queues.expiring()
        for name, queue in known.queues.items():
            if queue.message_ttl is None and name not in expiring:
                continue
            while late := self._queues.take(name, _BATCH, expired_only=True):
                self._bury(name, late, "expired")

    def close(self) -> None:
        self._connection.release()


def _headers(payload: dict[str, Any]) -> dict[str, Any]:
    """The headers as published: kombu marks what it restores in them."""
    return {k: v for k, v in (payload.get("headers") or {}).items() if k != "redelivered"}


def _route(known: Known, exchange: str, key: str) -> list[Queue]:
    if exchange == "":
        queue = known.queues.get(key)
        return [queue] if queue is not None else []
    kind = known.exchanges.get(exchange)
    return [
        queue
        for queue in known.queues.values()
        if any(name == exchange and matches(kind, pattern, key) for name, pattern in queue.bindings)
    ]


def _differences(old: Queue, new: Queue) -> list[str]:
    have, want = old.arguments(), new.arguments()
    return [
        f"queue {new.name!r} has {key}={have.get(key)!r}, wanted {want.get(key)!r}"
        for key in sorted(have.keys() | want.keys())
        if have.get(key) != want.get(key)
    ]


def _with_bindings(queue: Queue, bindings: tuple[tuple[str, str], ...]) -> Queue:
    return Queue(
        queue.name,
        bindings,
        queue.message_ttl,
        queue.dead_letter,
        queue.max_length,
        queue.delivery_limit,
        queue.kind,
        queue.single_active,
    )
