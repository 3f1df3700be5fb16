"""What the broker says of messages that it does not take: the error of each, read from its words."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from rainbow.brokers.base import Message
from rainbow.errors import Denied, PublishFailed, RainbowError, TooLarge, Unroutable

_EXCHANGE = re.compile(r"exchange '([^']*)'")
_MAX_SIZE = re.compile(r"max(?:imum)? size (?:of )?(\d+)")
_NO_ROUTE = 312


def returned(m: Message, method: Any) -> RainbowError:
    """The error of a message that came back by ``basic.return``."""
    if method.reply_code == _NO_ROUTE:
        return Unroutable(f"no queue takes {m.routing_key!r} from exchange {m.exchange!r}")
    return PublishFailed(f"returned by the broker: {method.reply_code} {method.reply_text}")


def alike(m: Message, method: Any, props: Any, body: bytes) -> bool:
    """Whether `m` may be the message that came back.

    A return carries no tag. Messages that are alike in all that is compared are the same to the sender, so it does not
    matter which is meant.
    """
    return (
        m.routing_key == method.routing_key
        and m.exchange == method.exchange
        and m.message_id == props.message_id
        and m.correlation_id == props.correlation_id
        and m.body == body
    )


def blamed(code: int, text: str) -> Callable[[Message], RainbowError | None] | None:
    """From the broker's reason for closing a channel: message -> its own error, or None when it is innocent."""
    exchange = _EXCHANGE.search(text)
    if code == 404 and exchange:
        name = exchange[1]
        return lambda m: (
            Unroutable(f"there is no exchange {name!r}: declare the topology first") if m.exchange == name else None
        )
    if code == 403 and exchange and "expired" not in text:
        name = exchange[1]
        return lambda m: Denied(f"no right to publish: {text}") if m.exchange == name else None
    size = _MAX_SIZE.search(text)
    if size:
        limit = int(size[1])
        return lambda m: (
            TooLarge(f"message of {len(m.body)} bytes: the broker's limit is {limit} bytes")
            if len(m.body) > limit
            else None
        )
    return None
