"""Dead letters: what could not be processed, kept with its reason and without its secrets."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from rainbow import codec, redaction, topology
from rainbow.brokers.base import Delivery, Message
from rainbow.logs import redact

_MAX_BODY = 256 << 10


def letter(delivery: Delivery, code: str, detail: str) -> Message:
    """The dead letter for `delivery`. Its body is cut at 256 KiB, and tokens in it are taken out."""
    made = bare(delivery, code, detail)
    made.body = redaction.body(delivery.body, delivery.content_type, _MAX_BODY)
    made.content_type = delivery.content_type or codec.JSON
    made.message_id, made.correlation_id = delivery.message_id, delivery.correlation_id
    assert made.headers is not None
    for name, read in _HISTORY.items():
        if value := read(delivery.headers.get(name)):
            made.headers[f"rainbow-{name.removeprefix('rainbow-')}"] = value
    return made


def bare(delivery: Delivery, code: str, detail: str) -> Message:
    """A dead letter with nothing in it that the sender wrote but where it was sent to."""
    headers: dict[str, Any] = {
        "rainbow-reason": code,
        "rainbow-detail": redact(detail)[:1000],
        "rainbow-queue": delivery.queue,
        "rainbow-exchange": delivery.exchange,
        "rainbow-routing-key": delivery.routing_key,
        "rainbow-time": int(time.time()),  # AMQP 0-9-1 clients disagree about floats in headers
        "rainbow-bytes": len(delivery.body),
    }
    return Message(topology.DEAD, code, b"", headers=headers)


def _count(value: Any) -> int:
    return value if type(value) is int and 0 < value < 1 << 31 else 0


def _deaths(value: Any) -> list[dict[str, Any]]:
    """As RabbitMQ writes them; a sender may write anything."""
    return [
        {k: v for k, v in death.items() if k in _OF_DEATH and isinstance(v, str | int | datetime)}
        for death in (value[:_MAX_DEATHS] if isinstance(value, list) else ())
        if isinstance(death, dict)
    ]


_MAX_DEATHS = 10
_OF_DEATH = frozenset({"reason", "queue", "exchange", "count", "time"})
#: What a message was through before: put aside by the broker, delivered in vain, replayed by an operator.
_HISTORY: Mapping[str, Callable[[Any], Any]] = {
    "x-death": _deaths,
    "x-delivery-count": _count,
    "rainbow-replayed": _count,
}
