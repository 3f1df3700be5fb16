"""Dead letters as they lie in the queue `rainbow.dead`: read, told apart, and put back to where they came from."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rainbow import codec, hiding, topology
from rainbow.brokers.base import Delivery, Message
from rainbow.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rainbow.brokers.base import Broker, Consumer

#: Fields a dead letter no longer has the value of.
_HIDDEN = ("token", "tokens", "secret", "authorization")
#: As many bytes of a body the workers keep.
_KEPT = 256 << 10
#: A quorum queue drops a message that came back to it too often (`Queue.delivery_limit`, 20): one that was looked at
#: so often is written anew.
_OFTEN = 10


@dataclass(frozen=True)
class Letter:
    """A message that could not be processed. The workers say why in headers `rainbow-…`; a message that the broker
    itself put aside has its history `x-death` instead."""

    delivery: Delivery

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
        return str(self._header("rainbow-queue") or self._death.get("queue") or "")

    @property
    def exchange(self) -> str:
        return str(self._header("rainbow-exchange") or self._death.get("exchange") or "")

    @property
    def routing_key(self) -> str:
        keys = self._death.get("routing-keys") or [""]
        return str(self._header("rainbow-routing-key") or keys[0])

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
        for death in self._header("rainbow-x-death") or self._header("x-death") or []:
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
        data = hiding.body(d.body, d.content_type, max(len(d.body), 1))
        try:
            return codec.decode(data, d.content_type)
        except InvalidInput:
            return data.decode("utf-8", "replace")

    def replay(self, token: str | None) -> Message:
        """The message to publish to where it came from. Its token was taken out when it died: `token` stands in.

        Raises InvalidInput when it cannot be sent again as it was.
        """
        d = self.delivery
        if not self.exchange:
            raise InvalidInput(f"{self.key} does not say which exchange it came from: it cannot be replayed")
        if self.cut:
            raise InvalidInput(f"{self.key} was too long to be kept whole: it cannot be replayed")
        body = d.body
        fields = self._fields()
        if any(fields.get(name) == hiding.HIDDEN for name in _HIDDEN):
            if token is None:
                raise InvalidInput(f"{self.key} has lost its token: give one to send it with (--token)")
            data = {k: v for k, v in fields.items() if k not in _HIDDEN} | {"token": token}
            binary = (d.content_type or "").startswith(codec.MSGPACK)
            body = codec.encode_msgpack(data) if binary else codec.encode_json(data)
        kept = {k: v for k, v in d.headers.items() if not k.startswith(("x-", "rainbow-reason", "rainbow-detail"))}
        for name in ("queue", "exchange", "routing-key", "time", "bytes", "x-death", "x-delivery-count"):
            kept.pop(f"rainbow-{name}", None)
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
        }

    def _header(self, name: str) -> Any:
        return self.delivery.headers.get(name)

    @property
    def _death(self) -> dict[str, Any]:
        deaths = self.delivery.headers.get("x-death") or [{}]
        return deaths[0] if isinstance(deaths[0], dict) else {}

    def _fields(self) -> dict[str, Any]:
        """The body as it lies there; empty where it cannot be read."""
        try:
            return codec.decode(self.delivery.body, self.delivery.content_type)
        except InvalidInput:
            return {}


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
