"""What a virtual transport can do with a queue, beyond what kombu asks of it: two ways, one for Redis.

Other processes must know the topology too (an agent declares nothing, but its rejects must find the dead-letter
exchange), so it is kept beside the queues: in Redis under one key, else in this process.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from kombu.utils.json import dumps, loads

from rainbow.brokers.kombu import scripts
from rainbow.topology import Queue

#: A consumer is counted while it was heard of within this many seconds.
PRESENT_FOR = 30.0
#: How long answers that no client takes are kept, in seconds.
REPLY_LIFE = 600


@dataclass(slots=True)
class Known:
    """What was declared: exchange types and queue definitions by name, and which version of it this is."""

    exchanges: dict[str, str] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    version: int = 0


#: A payload for a queue, and whether the queue is the private one of somebody who waits for answers.
Put = tuple[str, dict[str, Any], bool]


class Queues(Protocol):
    """Queues of a virtual transport, used by one thread. Messages are kombu's payload dicts."""

    def known(self) -> Known: ...

    def remember(self, exchanges: dict[str, str], queues: dict[str, Queue]) -> None: ...

    def forget(self, queues: Iterable[str]) -> None: ...

    def put(self, puts: Sequence[Put]) -> None: ...

    def take(self, queue: str, limit: int, *, expired_only: bool) -> list[dict[str, Any]]:
        """Messages from the head of the queue, from now on held by us; `expired_only` stops at the first that lives."""

    def done(self, payloads: Sequence[dict[str, Any]]) -> None: ...

    def give_back(self, payloads: Sequence[dict[str, Any]]) -> None:
        """To the head of the queue, in order, marked as redelivered."""

    def size(self, queue: str) -> int: ...

    def keep(self, payloads: Sequence[dict[str, Any]]) -> None:
        """Say that we still work on what we hold."""

    def recover(self) -> None:
        """Give back what consumers held that are gone."""

    def present(self, queue: str, consumer: str, *, here: bool) -> None: ...

    def consumers(self, queue: str) -> int: ...

    def active(self, queue: str, consumer: str) -> bool:
        """Whether `consumer` is the one that gets the messages of a queue with `single_active`.

        Another one becomes it once this one is gone, and what it held was given back.
        """

    def expiring(self) -> set[str]:
        """Queues that hold messages with a time to live of their own."""

    def mark_expiring(self, queue: str) -> None: ...


def expires(payload: dict[str, Any]) -> float | None:
    """Seconds since the epoch at which a message's time is up."""
    at = payload["properties"]["rainbow"].get("expires")
    return None if at is None else float(at)


class LocalQueues:
    """For transports without a place for more than messages: all but the messages is kept in this process.

    Looking at the head of a queue is possible with kombu's memory transport only; with others a message runs
    out when it is about to be delivered.
    """

    _places: dict[str, LocalQueues._Place] = {}  # noqa: RUF012
    _places_lock = threading.Lock()

    class _Place:
        def __init__(self) -> None:
            self.lock = threading.RLock()
            self.known = Known()
            self.expiring: set[str] = set()
            self.present: dict[str, set[str]] = {}
            self.active: dict[str, str] = {}

    def __init__(self, channel: Any, url: str) -> None:
        self._channel = channel
        with self._places_lock:
            self._place = self._places.setdefault(url, self._Place())
        self._held: dict[str, Any] = {}

    def known(self) -> Known:
        return self._place.known

    def remember(self, exchanges: dict[str, str], queues: dict[str, Queue]) -> None:
        with self._place.lock:
            known = self._place.known
            self._place.known = Known(known.exchanges | exchanges, known.queues | queues, known.version + 1)
            for queue in queues:
                self._channel.queue_declare(queue=queue)

    def forget(self, queues: Iterable[str]) -> None:
        with self._place.lock:
            known = self._place.known
            gone = set(queues)
            left = {n: q for n, q in known.queues.items() if n not in gone}
            self._place.known = Known(known.exchanges, left, known.version + 1)
            for queue in gone:
                self._channel.queue_purge(queue)
                self._channel.queue_delete(queue)

    def put(self, puts: Sequence[Put]) -> None:
        for queue, payload, _private in puts:
            self._channel.basic_publish(payload, "", queue)

    def take(self, queue: str, limit: int, *, expired_only: bool) -> list[dict[str, Any]]:
        taken: list[dict[str, Any]] = []
        with self._place.lock:
            while len(taken) < limit:
                if expired_only:
                    head = self._head(queue)
                    at = None if head is None else expires(head)
                    if at is None or at > time.time():
                        break
                message = self._channel.basic_get(queue)
                if message is None:
                    break
                self._held[message.delivery_tag] = message
                raw = message._raw
                taken.append({**raw, "body": message.body, "plain": True})
        return taken

    def _head(self, queue: str) -> dict[str, Any] | None:
        """The oldest message of kombu's memory transport; None when there is none, or no way to look."""
        inner = getattr(self._channel, "queues", {}).get(queue)
        items = getattr(inner, "queue", None)
        return items[0] if items else None

    def done(self, payloads: Sequence[dict[str, Any]]) -> None:
        for p in payloads:
            if self._held.pop(p["properties"]["delivery_tag"], None) is not None:
                self._channel.basic_ack(p["properties"]["delivery_tag"])

    def give_back(self, payloads: Sequence[dict[str, Any]]) -> None:
        for p in payloads:
            tag = p["properties"]["delivery_tag"]
            message = self._held.pop(tag, None)
            if message is not None:
                message._raw["properties"]["delivery_info"]["redelivered"] = True
                self._channel.basic_reject(tag, requeue=True)

    def size(self, queue: str) -> int:
        return int(self._channel._size(queue))

    def keep(self, payloads: Sequence[dict[str, Any]]) -> None:
        """Nothing to do: they are ours while this process lives."""

    def recover(self) -> None:
        """Nothing to do: what a process held is gone with it, or the transport gives it back."""

    def present(self, queue: str, consumer: str, *, here: bool) -> None:
        with self._place.lock:
            there = self._place.present.setdefault(queue, set())
            (there.add if here else there.discard)(consumer)
            if not here and self._place.active.get(queue) == consumer:
                del self._place.active[queue]

    def active(self, queue: str, consumer: str) -> bool:
        with self._place.lock:
            return self._place.active.setdefault(queue, consumer) == consumer

    def consumers(self, queue: str) -> int:
        return len(self._place.present.get(queue, ()))

    def expiring(self) -> set[str]:
        return set(self._place.expiring)

    def mark_expiring(self, queue: str) -> None:
        self._place.expiring.add(queue)


#: Seconds that a lease outlives what its holder held.
_LEASE_MARGIN = 5.0


class RedisQueues:
    """Queues in Redis, in kombu's own form and under its keys; the topology in the hash ``rainbow.topology``."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._client = channel.client
        self._prefix = channel.global_keyprefix or ""
        self._known = Known(version=-1)

    def _key(self, name: str) -> str:
        return f"{self._prefix}{name}"

    def _lists(self, queue: str) -> list[str]:
        return [self._key(self._channel._q_for_pri(queue, pri)) for pri in self._channel.priority_steps]

    # -- topology

    def known(self) -> Known:
        raw = self._client.hget("rainbow.topology", "version")
        version = int(raw or 0)
        if version != self._known.version:
            self._known = self._load()
        return self._known

    def _load(self) -> Known:
        known = Known()
        for name, value in self._client.execute_command("HGETALL", self._key("rainbow.topology")).items():
            kind, _, own = _text(name).partition(":")
            if kind == "version":
                known.version = int(value)
            elif kind == "exchange":
                known.exchanges[own] = _text(value)
            elif kind == "queue":
                fields = json.loads(value)
                fields["bindings"] = tuple((e, k) for e, k in fields["bindings"])
                known.queues[own] = Queue(**fields)
        return known

    def remember(self, exchanges: dict[str, str], queues: dict[str, Queue]) -> None:
        fields = {f"exchange:{name}": kind for name, kind in exchanges.items()}
        fields |= {f"queue:{name}": json.dumps(asdict(queue)) for name, queue in queues.items()}
        key = self._key("rainbow.topology")
        with self._client.pipeline() as pipe:
            if fields:
                pipe.hset("rainbow.topology", mapping=fields)
            pipe.execute_command("HINCRBY", key, "version", 1)
            pipe.execute()

    def forget(self, queues: Iterable[str]) -> None:
        names = list(queues)
        with self._client.pipeline() as pipe:
            if names:
                pipe.hdel("rainbow.topology", *[f"queue:{n}" for n in names])
            pipe.execute_command("HINCRBY", self._key("rainbow.topology"), "version", 1)
            for name in names:
                for key in self._lists(name):
                    pipe.execute_command("UNLINK", key)
                pipe.execute_command("UNLINK", self._key(f"rainbow.consumers.{name}"))
            pipe.execute()

    # -- messages

    def put(self, puts: Sequence[Put]) -> None:
        """What kombu's `basic_publish` does, for many messages in one round trip."""
        if not puts:
            return
        channel = self._channel
        with self._client.pipeline(transaction=False) as pipe:
            for queue, payload, private in puts:
                channel._inplace_augment_message(payload, "", queue)
                key = channel._q_for_pri(queue, payload["properties"]["priority"])
                pipe.lpush(key, dumps(payload))  # type: ignore[no-untyped-call]
                if private:
                    pipe.execute_command("EXPIRE", self._key(key), REPLY_LIFE)
            pipe.execute()

    def take(self, queue: str, limit: int, *, expired_only: bool) -> list[dict[str, Any]]:
        keys = [
            self._key(self._channel.unacked_key),
            self._key(self._channel.unacked_index_key),
            self._key("rainbow.unreadable"),
            *self._lists(queue),
        ]
        items = self._client.execute_command(
            "EVAL", scripts.TAKE, len(keys), *keys, repr(time.time()), limit, "1" if expired_only else "0"
        )
        return [loads(_text(item)) for item in items]  # type: ignore[no-untyped-call]

    def done(self, payloads: Sequence[dict[str, Any]]) -> None:
        tags = [p["properties"]["delivery_tag"] for p in payloads]
        with self._client.pipeline() as pipe:
            pipe.zrem(self._channel.unacked_index_key, *tags)
            pipe.hdel(self._channel.unacked_key, *tags)
            pipe.execute()

    def give_back(self, payloads: Sequence[dict[str, Any]]) -> None:
        unacked, index = self._key(self._channel.unacked_key), self._key(self._channel.unacked_index_key)
        for p in reversed(payloads):
            properties = p["properties"]
            properties["delivery_info"]["redelivered"] = True
            text = dumps(p)  # type: ignore[no-untyped-call]
            queue = self._channel._q_for_pri(properties["delivery_info"]["routing_key"], properties["priority"])
            self._client.execute_command(
                "EVAL", scripts.GIVE_BACK, 3, unacked, index, self._key(queue), properties["delivery_tag"], text
            )

    def size(self, queue: str) -> int:
        return int(self._channel._size(queue))

    # -- who is there

    def keep(self, payloads: Sequence[dict[str, Any]]) -> None:
        tags = [p["properties"]["delivery_tag"] for p in payloads]
        if tags:
            key = self._key(self._channel.unacked_index_key)
            self._client.execute_command("EVAL", scripts.KEEP, 1, key, repr(time.time()), *tags)

    def recover(self) -> None:
        self._channel.qos.restore_visible(num=1000, interval=1)

    def present(self, queue: str, consumer: str, *, here: bool) -> None:
        key = f"rainbow.consumers.{queue}"
        if here:
            self._client.zadd(key, {consumer: time.time()})
        else:
            self._client.zrem(key, consumer)
            lease = self._key(f"rainbow.active.{queue}")
            self._client.execute_command("EVAL", scripts.LEAVE, 1, lease, consumer)

    def active(self, queue: str, consumer: str) -> bool:
        """By a lease that ends later than what its holder held is given back: both were renewed last in one turn."""
        lease = self._key(f"rainbow.active.{queue}")
        seconds = int(1000 * (self._channel.visibility_timeout + _LEASE_MARGIN))
        fresh, mine = self._client.execute_command("EVAL", scripts.LEASE, 1, lease, consumer, seconds)
        if fresh:
            self.recover()
        return bool(mine)

    def consumers(self, queue: str) -> int:
        key = self._key(f"rainbow.consumers.{queue}")
        self._client.execute_command("ZREMRANGEBYSCORE", key, "-inf", time.time() - 10 * PRESENT_FOR)
        return int(self._client.execute_command("ZCOUNT", key, time.time() - PRESENT_FOR, "+inf"))

    def expiring(self) -> set[str]:
        return {_text(name) for name in self._client.smembers("rainbow.expiring")}

    def mark_expiring(self, queue: str) -> None:
        self._client.sadd("rainbow.expiring", queue)


def _text(raw: Any) -> str:
    return raw.decode() if isinstance(raw, bytes) else str(raw)
