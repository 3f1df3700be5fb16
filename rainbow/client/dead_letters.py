"""Dead letters as they lie in the queue `rainbow.dead`: read, told apart, and put back to where they came from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rainbow import codec, redaction, topology
from rainbow.brokers.base import Delivery, Message
from rainbow.client.waiting import take
from rainbow.errors import BadSignature, InvalidInput, NotFound
from rainbow.security import signing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rainbow.brokers.base import Broker, Consumer
    from rainbow.security.tokens import KeyRing

#: Fields a dead letter no longer has the value of.
_HIDDEN = ("token", "tokens", "secret", "authorization")
#: Headers of a message that the broker put aside which the workers verify, each by a signature or as a token.
_VERIFIED = ("authorization", "rainbow-kind", "rainbow-route", "rainbow-origin", "rainbow-registration", signing.HEADER)
#: As many bytes of a body the workers keep.
_KEPT = 256 << 10
#: A quorum queue drops a message that came back to it too often (`Queue.delivery_limit`, 20): one that was looked at
#: so often is written anew.
_OFTEN = 10


@dataclass(frozen=True)
class Letter:
    """A message that could not be processed. The workers say why in headers `rainbow-…`, which they sign: they count
    where `ring` verifies that. A message that the broker itself put aside has its history `x-death` instead, and
    whatever else its headers say is what its sender wrote."""

    delivery: Delivery
    ring: KeyRing | None = None

    @cached_property
    def signed(self) -> bool:
        """Did a worker write this letter?"""
        if self.ring is None:
            return False
        d = self.delivery
        text = signing.letter_text(d.headers, d.body)
        try:
            signing.check(signing.letter_keys(self.ring), text, d.headers.get(signing.HEADER))
        except BadSignature:
            return False
        return True

    @cached_property
    def key(self) -> str:
        """A short name, the same at each look."""
        d = self.delivery
        parts = (self.at, self.exchange, self.routing_key, d.message_id, d.correlation_id, self.replayed)
        return hashlib.sha256(repr(parts).encode() + d.body).hexdigest()[:10]

    @property
    def reason(self) -> str:
        return str(self._header("rainbow-reason") or self._death.get("reason") or "unknown")

    @property
    def detail(self) -> str | None:
        text = self._header("rainbow-detail")
        return None if text is None else str(text)

    @property
    def queue(self) -> str:
        return str(self._origin("rainbow-queue") or self._death.get("queue") or "")

    @property
    def exchange(self) -> str:
        return str(self._origin("rainbow-exchange") or self._death.get("exchange") or "")

    @property
    def routing_key(self) -> str:
        keys = self._death.get("routing-keys")
        return str(self._origin("rainbow-routing-key") or (keys[0] if isinstance(keys, list) and keys else ""))

    @property
    def at(self) -> float | None:
        """When it died, in seconds since 1970."""
        when = self._header("rainbow-time") or self._death.get("time")
        if isinstance(when, int | float):
            return float(when)
        stamp = getattr(when, "timestamp", None)
        return float(stamp()) if stamp is not None else None

    @property
    def cut(self) -> bool:
        """Was its body too long to be kept whole?"""
        size = self._header("rainbow-bytes")
        return isinstance(size, int) and size > _KEPT

    @property
    def replayed(self) -> int:
        """How often it was replayed, and died again."""
        count = self._header("rainbow-replayed")
        return count if isinstance(count, int) else 0

    @property
    def history(self) -> list[str]:
        """What it was through before, newest first, a line each."""
        lines = []
        for death in self._header("rainbow-x-death") or self.delivery.headers.get("x-death") or []:
            if isinstance(death, dict):
                times = (
                    f", {death['count']} times" if isinstance(death.get("count"), int) and death["count"] > 1 else ""
                )
                lines.append(f"{death.get('reason')} in {death.get('queue')}{times}")
        returned = self._header("rainbow-x-delivery-count") or 0
        if isinstance(returned, int) and returned:
            lines.insert(0, f"delivered {returned + 1} times")
        if self.replayed:
            lines.insert(0, f"replayed {self.replayed} time{'s' if self.replayed > 1 else ''}")
        return lines

    def body(self) -> Any:
        """The body as a mapping where it is one, else as text. Without secrets, also where the broker itself put the
        message aside."""
        d = self.delivery
        data = redaction.body(d.body, d.content_type, max(len(d.body), 1))
        try:
            return codec.decode(data, d.content_type)
        except InvalidInput:
            return data.decode("utf-8", "replace")

    def replay(self, token: str | None = None) -> Message:
        """The message to publish to where it came from. Its token was taken out when it died: `token` stands in, in a
        submission only.

        Raises InvalidInput when it cannot be sent again as it was.
        """
        d = self.delivery
        if not self.exchange:
            raise InvalidInput(
                f"{self.key} does not prove which exchange it came from: replay it where the key ring is (`keyring`)"
            )
        if not self.signed and self.exchange != topology.SUBMIT:
            raise InvalidInput(
                f"{self.key} came from {self.exchange[:80]}, and no worker signed it: "
                f"what RabbitMQ put aside is replayed to {topology.SUBMIT} only"
            )
        if self.cut:
            raise InvalidInput(f"{self.key} was too long to be kept whole: it cannot be replayed")
        body = d.body
        fields = self._fields()
        if any(fields.get(name) == redaction.HIDDEN for name in _HIDDEN):
            if token is None:
                raise InvalidInput(f"{self.key} has lost its token: add --with-my-token to send it as yours")
            if self.exchange != topology.SUBMIT:
                raise InvalidInput(f"{self.key} has lost its token, and is no submission: it cannot be replayed")
            data = {k: v for k, v in fields.items() if k not in _HIDDEN} | {"token": token}
            binary = (d.content_type or "").startswith(codec.MSGPACK)
            body = codec.encode_msgpack(data) if binary else codec.encode_json(data)
        # Of a sender's headers only those that are verified where they are read: none can name a place to go to.
        kept = {name: d.headers[name] for name in _VERIFIED if not self.signed and name in d.headers}
        kept["rainbow-replayed"] = self.replayed + 1
        return Message(
            self.exchange,
            self.routing_key,
            body,
            content_type=d.content_type or codec.JSON,
            message_id=d.message_id,
            correlation_id=d.correlation_id,
            priority=d.priority,
            headers=kept,
        )

    def plain(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "reason": self.reason,
            "detail": self.detail,
            "time": self.at,
            "queue": self.queue,
            "exchange": self.exchange,
            "routing_key": self.routing_key,
            "message_id": self.delivery.message_id,
            "content_type": self.delivery.content_type,
            "bytes": self._header("rainbow-bytes") or len(self.delivery.body),
            "history": self.history,
            "signed": self.signed,
        }

    def _header(self, name: str) -> Any:
        return self.delivery.headers.get(name)

    def _origin(self, name: str) -> Any:
        """What a worker says of where the message was; None in a letter that no worker signed."""
        return self._header(name) if self.signed else None

    @property
    def _death(self) -> dict[str, Any]:
        deaths = self.delivery.headers.get("x-death")
        return deaths[0] if isinstance(deaths, list) and deaths and isinstance(deaths[0], dict) else {}

    def _fields(self) -> dict[str, Any]:
        """The body as it lies there; empty where it cannot be read."""
        try:
            return codec.decode(self.delivery.body, self.delivery.content_type)
        except InvalidInput:
            return {}


@contextmanager
def held(broker: Broker, limit: int, ring: KeyRing | None) -> Iterator[tuple[Consumer, list[Letter]]]:
    """The oldest letters, held while the block runs; those still in the list afterwards go back to the queue."""
    wanted = min(limit, broker.stats(topology.DEAD_QUEUE).messages)
    consumer = broker.consume(topology.DEAD_QUEUE, prefetch=max(1, wanted))
    try:
        letters = [Letter(delivery, ring) for delivery in take(broker, consumer, wanted)]
        letters.sort(key=lambda letter: letter.at or 0.0)
        yield consumer, letters
        keep(broker, consumer, letters)
    finally:
        consumer.cancel()


def chosen(letters: Sequence[Letter], keys: Sequence[str], reason: str | None = None) -> list[Letter]:
    """Those with these keys (all without any) that died of `reason`. Raises NotFound for a key that none has."""
    known = {letter.key for letter in letters}
    for key in keys:
        if key not in known:
            raise NotFound(f"no dead letter {key} among the oldest {len(letters)} (`rainbow dead list`)")
    return [
        letter for letter in letters if (not keys or letter.key in keys) and (reason is None or letter.reason == reason)
    ]


def keep(broker: Broker, consumer: Consumer, letters: Sequence[Letter]) -> None:
    """Give letters back to their queue; those that came back often are written anew first, so that looking at them
    never makes the broker drop them."""
    worn = [x for x in letters if int(x.delivery.headers.get("x-delivery-count") or 0) >= _OFTEN]
    if worn:
        broker.publish([_copy(x.delivery) for x in worn]).check(30.0)
        consumer.ack([x.delivery for x in worn])
    consumer.requeue([x.delivery for x in letters if x not in worn])


def _copy(d: Delivery) -> Message:
    return Message(
        topology.DEAD,
        d.routing_key or "dead",
        d.body,
        content_type=d.content_type or codec.JSON,
        message_id=d.message_id,
        correlation_id=d.correlation_id,
        priority=d.priority,
        headers={k: v for k, v in d.headers.items() if k not in ("x-delivery-count", "x-acquired-count")},
    )
