"""Dead letters: what could not be processed, kept with its reason and without its secrets."""

from __future__ import annotations

import time
from typing import Any

from rainbow import codec, hiding, topology
from rainbow.brokers.base import Delivery, Message
from rainbow.logs import redact

_MAX_BODY = 256 << 10
#: What a message was through before: put aside by the broker, delivered in vain, replayed by an operator.
_HISTORY = ("x-death", "x-delivery-count", "rainbow-replayed")


def letter(delivery: Delivery, code: str, detail: str) -> Message:
    """The dead letter for `delivery`. Its body is cut at 256 KiB, and tokens in it are taken out."""
    headers: dict[str, Any] = {
        "rainbow-reason": code,
        "rainbow-detail": redact(detail)[:1000],
        "rainbow-queue": delivery.queue,
        "rainbow-exchange": delivery.exchange,
        "rainbow-routing-key": delivery.routing_key,
        "rainbow-time": int(time.time()),  # AMQP 0-9-1 clients disagree about floats in headers
        "rainbow-bytes": len(delivery.body),
    }
    for name in _HISTORY:
        if delivery.headers.get(name):
            headers[f"rainbow-{name.removeprefix('rainbow-')}"] = delivery.headers[name]
    return Message(
        topology.DEAD,
        code,
        hiding.body(delivery.body, delivery.content_type, _MAX_BODY),
        content_type=delivery.content_type or codec.JSON,
        message_id=delivery.message_id,
        correlation_id=delivery.correlation_id,
        headers=headers,
    )
