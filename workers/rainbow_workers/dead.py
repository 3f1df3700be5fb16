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
#: As far as a body is read to find secrets in it: the largest that any consumer takes.
_MAX_READ = 64 << 20
#: In what cannot be read: the value after such a name, in JSON, YAML or msgpack (its head of a text, then the text).
_SECRET = re.compile(
    r"((?:tokens?|secret|authorization)[\"']?"
    r"(?:\s*[:=]\s*\[?\s*[\"']?|[\xa0-\xbf]|\xd9.|\xda..|\xdb....))[^\s\"',\]}]+",
    re.IGNORECASE | re.DOTALL,
)


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
    try:
        data = codec.decode(delivery.body, delivery.content_type, max_bytes=_MAX_READ)
        if not _HIDDEN & data.keys():
            return delivery.body[:_MAX_BODY]
        shown = {k: "***" if k in _HIDDEN else v for k, v in data.items()}
        binary = (delivery.content_type or "").startswith(codec.MSGPACK)
        return (codec.encode_msgpack(shown) if binary else codec.encode_json(shown))[:_MAX_BODY]
    except InvalidInput:
        # Latin-1 keeps every byte as it was. A little more than is kept is read, so that no secret is cut in two.
        text = delivery.body[: 2 * _MAX_BODY].decode("latin-1")
        return redact(_SECRET.sub(r"\1***", text)).encode("latin-1")[:_MAX_BODY]
