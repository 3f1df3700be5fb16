"""The history of a dead-lettered message, in RabbitMQ's own form, for brokers that keep none themselves.

The header `x-death` is a list, newest first, with one entry for each pair of queue and reason:
``{queue, reason, count, exchange, routing-keys, time}`` (rabbitmq.com/docs/dlx#effects).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from rainbow.brokers.base import Delivery

log = logging.getLogger(__name__)

Reason = Literal["rejected", "expired", "maxlen", "delivery_limit"]


def with_death(
    headers: Mapping[str, Any] | None,
    *,
    queue: str,
    reason: Reason,
    exchange: str,
    routing_key: str,
    expiration: float | None = None,
) -> dict[str, Any]:
    """`headers` with one more death: of reason `reason` in `queue`, published to `exchange` with `routing_key`.

    `expiration` is the message's own time to live in seconds, which dead-lettering takes off it (else it would
    run out again where it is kept); RabbitMQ notes it in milliseconds as `original-expiration`.
    """
    out = dict(headers or {})
    deaths = _deaths(out)
    entry = next((d for d in deaths if d.get("queue") == queue and d.get("reason") == reason), None)
    if entry is None:
        entry = {
            "count": 1,
            "reason": reason,
            "queue": queue,
            "time": datetime.now(UTC).replace(microsecond=0),
            "exchange": exchange,
            "routing-keys": [routing_key],
        }
        if expiration is not None:
            entry["original-expiration"] = str(int(expiration * 1000))
    else:
        deaths.remove(entry)
        count = entry.get("count")
        entry["count"] = (count if isinstance(count, int) else 0) + 1
    out["x-death"] = [entry, *deaths]
    out.setdefault("x-first-death-queue", queue)
    out.setdefault("x-first-death-reason", reason)
    out.setdefault("x-first-death-exchange", exchange)
    return out


def is_cycle(headers: Mapping[str, Any] | None, queue: str) -> bool:
    """Whether RabbitMQ drops a dead-lettered message instead of putting it into `queue`.

    It does when the message was in that queue before and has died since then of nothing but time to live or
    length (rabbitmq.com/docs/dlx#automatic-dead-lettering-cycles): no consumer would ever see it.
    """
    for death in _deaths(headers or {}):
        if death.get("reason") == "rejected":
            return False
        if death.get("queue") == queue:
            return True
    return False


def is_forged(headers: Mapping[str, Any] | None) -> bool:
    """Whether the sender wrote a history that RabbitMQ cannot add to.

    RabbitMQ 3.10 reads `queue`, `reason` and `count` of each entry when it dead-letters a message at least once. Where
    the header has another shape, the process that does it ends, is started again with the same message, and then its
    supervisor ends for good: the node declares no queue of that kind until it is restarted.
    """
    found = (headers or {}).get("x-death", [])
    return not isinstance(found, list) or not all(
        isinstance(death, Mapping)
        and isinstance(death.get("queue"), str)
        and isinstance(death.get("reason"), str)
        and isinstance(count := death.get("count"), int)
        and not isinstance(count, bool)
        for death in found
    )


def dead_lettered(deliveries: Sequence[Delivery], queue: str) -> tuple[list[Delivery], list[Delivery]]:
    """Of deliveries that are refused: those that RabbitMQ may dead-letter, and those with a forged history.

    The second ones are dropped, with an error in the log: RabbitMQ must not come to dead-letter them, and what has
    such a header does not come from rainbow.
    """
    sound: list[Delivery] = []
    forged: list[Delivery] = []
    for delivery in deliveries:
        if not is_forged(delivery.headers):
            sound.append(delivery)
            continue
        forged.append(delivery)
        log.error(
            "dropped a refused message of %s (%d bytes): its header x-death was not written by the broker, "
            "and would end the broker's dead-lettering; find out who may write into that queue",
            queue,
            len(delivery.body),
        )
    return sound, forged


def _deaths(headers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The history so far; a sender may have written anything there."""
    found = headers.get("x-death")
    return [dict(d) for d in found if isinstance(d, Mapping)] if isinstance(found, list) else []
