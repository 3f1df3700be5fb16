"""The Enrollments on Redis: one small hash, `enrolments`, with a field for each cluster and mark, its value JSON."""

from __future__ import annotations

import logging

from pydantic import ValidationError

from rainbow.models.cluster import Enrollment
from rainbow_workers.stores.redis.connection import Connection

log = logging.getLogger(__name__)


class RedisEnrollments:
    """See `rainbow_workers.stores.base.Enrollments`. Plain commands: each write is whole, and is the last word."""

    def __init__(self, connection: Connection, prefix: str) -> None:
        self._connection = connection
        self._key = f"{prefix}enrolments"  # the key of releases before

    def put(self, enrollment: Enrollment) -> None:
        field = f"{enrollment.cluster}:{enrollment.mark}"
        self._connection.command("HSET", self._key, field, enrollment.model_dump_json())

    def get(self, cluster: str, mark: str, now: float) -> Enrollment | None:
        found = _read(self._connection.command("HGET", self._key, f"{cluster}:{mark}"))
        return found if found is not None and found.until > now else None

    def all(self, now: float) -> list[Enrollment]:
        flat: list[bytes] = self._connection.command("HGETALL", self._key)
        out: list[Enrollment] = []
        for field, value in zip(flat[::2], flat[1::2], strict=True):
            found = _read(value)
            if found is not None and found.until > now:
                out.append(found)
            else:
                # One that is put again at this very moment is lost with it: its agent asks every few seconds.
                self._connection.command("HDEL", self._key, field)
        return out


def _read(value: bytes | None) -> Enrollment | None:
    if value is None:
        return None
    try:
        return Enrollment.model_validate_json(value)
    except ValidationError:
        log.warning("an enrollment in the store cannot be read", extra={"action": "store"})
        return None
