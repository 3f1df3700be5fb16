"""The Enrolments on Redis: one small hash, `enrolments`, with a field for each cluster and mark, its value JSON."""

from __future__ import annotations

import logging

from pydantic import ValidationError

from rainbow.models.cluster import Enrolment
from rainbow_workers.stores.redis.connection import Connection

log = logging.getLogger(__name__)


class RedisEnrolments:
    """See `rainbow_workers.stores.base.Enrolments`. Plain commands: each write is whole, and is the last word."""

    def __init__(self, connection: Connection, prefix: str) -> None:
        self._connection = connection
        self._key = f"{prefix}enrolments"

    def put(self, enrolment: Enrolment) -> None:
        field = f"{enrolment.cluster}:{enrolment.mark}"
        self._connection.command("HSET", self._key, field, enrolment.model_dump_json())

    def get(self, cluster: str, mark: str, now: float) -> Enrolment | None:
        found = _read(self._connection.command("HGET", self._key, f"{cluster}:{mark}"))
        return found if found is not None and found.until > now else None

    def all(self, now: float) -> list[Enrolment]:
        flat: list[bytes] = self._connection.command("HGETALL", self._key)
        out: list[Enrolment] = []
        for field, value in zip(flat[::2], flat[1::2], strict=True):
            found = _read(value)
            if found is not None and found.until > now:
                out.append(found)
            else:
                # One that is put again at this very moment is lost with it: its agent asks every few seconds.
                self._connection.command("HDEL", self._key, field)
        return out


def _read(value: bytes | None) -> Enrolment | None:
    if value is None:
        return None
    try:
        return Enrolment.model_validate_json(value)
    except ValidationError:
        log.warning("an enrolment in the store cannot be read", extra={"action": "store"})
        return None
