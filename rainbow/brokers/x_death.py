"""The history of a dead-lettered message, in RabbitMQ's own form, for brokers that keep none themselves.

The header `x-death` is a list, newest first, with one entry for each pair of queue and reason:
``{queue, reason, count, exchange, routing-keys, time}`` (rabbitmq.com/docs/dlx#effects).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

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


def _deaths(headers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The history so far; a sender may have written anything there."""
    found = headers.get("x-death")
    return [dict(d) for d in found if isinstance(d, Mapping)] if isinstance(found, list) else []
