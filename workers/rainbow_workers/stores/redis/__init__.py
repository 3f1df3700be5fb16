"""The store on Redis (6.2 or newer) or Valkey: ``redis(s)://``, ``unix://``.

Each operation is one Lua script, which the server runs as a whole: one round trip, nothing half done, and no
lock to outlive its owner. Which keys there are is said at the head of the files in `lua/lib`; all of them begin
with the prefix.
"""

from __future__ import annotations

from rainbow_workers.stores import StoreOptions
from rainbow_workers.stores.redis.checks import warnings
from rainbow_workers.stores.redis.clusters import RedisClusters
from rainbow_workers.stores.redis.connection import Connection
from rainbow_workers.stores.redis.dependencies import RedisDependencies
from rainbow_workers.stores.redis.enrollments import RedisEnrollments
from rainbow_workers.stores.redis.ledger import RedisLedger
from rainbow_workers.stores.redis.shares import RedisShares


class RedisStore:
    """The Store for Redis and Valkey. Connects with the first call, and again by itself; safe in threads."""

    def __init__(self, options: StoreOptions) -> None:
        self._connection = Connection(options)
        self._clusters = RedisClusters(self._connection, options)
        self._jobs = RedisLedger(self._connection, options)
        self._enrollments = RedisEnrollments(self._connection, options.prefix)
        self._shares = RedisShares(self._connection, options.prefix)
        self._dependencies = RedisDependencies(self._connection, options.prefix)

    @property
    def clusters(self) -> RedisClusters:
        return self._clusters

    @property
    def jobs(self) -> RedisLedger:
        return self._jobs

    @property
    def enrollments(self) -> RedisEnrollments:
        return self._enrollments

    @property
    def shares(self) -> RedisShares:
        return self._shares

    @property
    def dependencies(self) -> RedisDependencies:
        return self._dependencies

    def warnings(self) -> list[str]:
        return warnings(self._connection)

    def close(self) -> None:
        self._connection.close()


__all__ = ["RedisStore"]
