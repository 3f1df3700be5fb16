"""What an operator should mend about the server."""

from __future__ import annotations

import logging

from rainbow.errors import BadCredentials
from rainbow_workers.stores.redis.connection import Connection, fields

log = logging.getLogger(__name__)

OLDEST = (6, 2)


def warnings(connection: Connection) -> list[str]:
    """One line for each: an old version, an evicting policy, no persistence. Raises StoreUnavailable.

    What we have no right to look at (INFO and CONFIG are often closed to users) is not judged.
    """
    out: list[str] = []
    info = _info(connection)
    version = info.get("redis_version", "")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if len(numbers) == 2 and numbers < OLDEST:
        out.append(f"the store is Redis {version}: use 6.2 or newer, or Valkey")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        out.append(
            f"the store may evict live records (maxmemory-policy is {policy}): set maxmemory-policy noeviction, and "
            "enough maxmemory"
        )
    if info.get("aof_enabled") == "0" and _config(connection, "save") == "":
        out.append(
            "the store keeps nothing on disk: after its restart every cluster has to register again and job records "
            "are gone; set appendonly yes"
        )
    return out


def _info(connection: Connection) -> dict[str, str]:
    try:
        return fields(connection.command("INFO"))
    except BadCredentials:
        log.info("no right to INFO: the store is not checked", extra={"action": "store.unchecked"})
        return {}


def _config(connection: Connection, name: str) -> str | None:
    try:
        reply: list[bytes] = connection.command("CONFIG", "GET", name)
    except BadCredentials:
        return None
    return reply[1].decode() if len(reply) == 2 else None
