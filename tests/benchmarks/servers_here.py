"""A RabbitMQ and a Redis of the benchmarks' own: nothing else on the machine disturbs them, or is disturbed."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servers import end_group, start_rabbit, start_redis


@contextmanager
def rabbitmq() -> Iterator[str]:
    """The URL of a fresh vhost on a private RabbitMQ."""
    with tempfile.TemporaryDirectory(prefix="rainbow-bench-", ignore_cleanup_errors=True) as folder:
        server = start_rabbit(Path(folder))
        try:
            vhost = f"bench-{uuid.uuid4().hex[:8]}"
            server.make_vhosts([vhost])
            yield server.vhost_url(vhost)
        finally:
            end_group(server.group, server.started)


@contextmanager
def redis() -> Iterator[str]:
    """The URL of a private Redis-protocol server."""
    with tempfile.TemporaryDirectory(prefix="rainbow-bench-", ignore_cleanup_errors=True) as folder:
        server = start_redis(Path(folder))
        try:
            yield server.url
        finally:
            end_group(server.group, server.started)
