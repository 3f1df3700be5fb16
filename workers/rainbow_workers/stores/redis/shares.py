"""The Shares on Redis, in hashes.

`usage:PERIOD` for each period, who -> sum; `run-times`, who -> mean seconds; `shares`, who -> what an administrator
set for them. Strings `submitted:WHO:WINDOW`: submissions in a window of time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rainbow_workers.stores.redis.codec import text
from rainbow_workers.stores.redis.connection import Connection


class RedisShares:
    """See `rainbow_workers.stores.base.Shares`. Plain commands: a charge that is sent twice does little harm."""

    def __init__(self, connection: Connection, prefix: str) -> None:
        self._connection = connection
        self._prefix = prefix

    def charge(self, amounts: Mapping[str, float], period: int, keep: float) -> None:
        """Each user's sum grows in one command; the whole period goes by itself."""
        key = f"{self._prefix}usage:{period}"
        for user, amount in amounts.items():
            self._connection.command("HINCRBYFLOAT", key, user.encode("utf-8", "surrogatepass"), repr(amount))
        if amounts:
            self._connection.command("EXPIRE", key, int(keep) + 1)

    def usage(self, periods: Sequence[int]) -> list[dict[str, float]]:
        return [self._numbers(f"usage:{period}") for period in periods]

    def ran(self, seconds: Mapping[str, float]) -> None:
        flat = [part for user, mean in seconds.items() for part in (user.encode("utf-8", "surrogatepass"), repr(mean))]
        if flat:
            self._connection.command("HSET", f"{self._prefix}run-times", *flat)

    def run_times(self) -> dict[str, float]:
        return self._numbers("run-times")

    def submitted(self, name: str, count: int, window: int, seconds: float) -> int:
        key = f"{self._prefix}submitted:{name}:{window}".encode("utf-8", "surrogatepass")
        total = self._connection.command("INCRBY", key, count)
        self._connection.command("EXPIRE", key, int(2 * seconds) + 1)
        return int(total)

    def put(self, name: str, terms: str | None) -> None:
        key, field = f"{self._prefix}shares", name.encode("utf-8", "surrogatepass")
        if terms is None:
            self._connection.command("HDEL", key, field)
        else:
            self._connection.command("HSET", key, field, terms)

    def terms(self) -> dict[str, str]:
        return {name: text(value) for name, value in self._hash("shares").items()}

    def _numbers(self, name: str) -> dict[str, float]:
        return {user: float(value) for user, value in self._hash(name).items()}

    def _hash(self, name: str) -> dict[str, bytes]:
        flat = self._connection.command("HGETALL", f"{self._prefix}{name}")
        return {text(field): value for field, value in zip(flat[::2], flat[1::2], strict=True)}
