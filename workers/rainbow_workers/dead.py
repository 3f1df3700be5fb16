"""Dead letters: what could not be processed, kept with its reason and without its secrets."""

from __future__ import annotations

import re
import time
from typing import Any

from rainbow import codec, topology
from rainbow.brokers.base import Delivery, Message
from rainbow.errors import InvalidInput
from rainbow.logs import redact

_MAX_BODY = 256 << 10
_HIDDEN = frozenset({"token", "tokens", "secret", "authorization"})
_TOKEN_FIELD = re.compile(r'("(?:token|secret|authorization)"\s*:\s*)"(?:[^"\\]|\\.)*"', re.IGNORECASE)


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
    return Message(
        topology.DEAD,
        code,
        _without_secrets(delivery),
        content_type=delivery.content_type or codec.JSON,
        message_id=delivery.message_id,
        correlation_id=delivery.correlation_id,
        headers=headers,
    )


def _without_secrets(delivery: Delivery) -> bytes:
    body = delivery.body[:_MAX_BODY]
    try:
        data = codec.decode(body, delivery.content_type)
    except InvalidInput:
        text = body.decode("utf-8", "replace")
        return redact(_TOKEN_FIELD.sub(r'\1"***"', text)).encode()
    if not _HIDDEN & data.keys():
        return body
    shown = {k: "***" if k in _HIDDEN else v for k, v in data.items()}
    binary = (delivery.content_type or "").startswith(codec.MSGPACK)
    return codec.encode_msgpack(shown) if binary else codec.encode_json(shown)
