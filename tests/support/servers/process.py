"""Ports, processes and containers of servers, and waiting for them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

START_LIMIT = 120.0
VHOST_PREFIX = "rainbow-test-"


class NoServer(Exception):
    """Why there is none to test with."""


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nothing listens on, and that no other test process is given while this one lives: a
    server that is killed and started again finds its port free. Below the range of outgoing connections."""
    found: list[int] = []
    folder = Path(tempfile.gettempdir()) / f"{VHOST_PREFIX}ports-{os.getuid()}"
    folder.mkdir(exist_ok=True, mode=0o700)
    while len(found) < count:
        port = random.SystemRandom().randrange(20000, 32000)
        lock = os.open(folder / str(port), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as s:
                s.bind(("127.0.0.1", port))
        except OSError:
            os.close(lock)
            continue
        found.append(port)  # the lock is held until this process ends
    return found


def answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=2):
            return True
    except OSError:
        return False


def wait_until(check: Callable[[], object], limit: float = 60.0, every: float = 0.05, what: str = "") -> None:
    """Poll until `check()` is true; the limit only guards against a hang."""
    end = time.monotonic() + limit
    while not check():
        if time.monotonic() > end:
            raise AssertionError(f"still not so after {limit:g} s: {what or check}")
        time.sleep(every)


def started_at(pid: int) -> str:
    """When a process started, in clock ticks since boot: with its id it names one process for good."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def end_group(group: int, started: str) -> None:
    """Kill a process group that we started, unless its id belongs to another process by now."""
    if started and started_at(group) == started:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)


#: Kept until waited for: what is started for the whole run outlives the process that started it.
spawned: dict[int, subprocess.Popen[bytes]] = {}


def spawn(command: list[str], folder: Path, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start `command` in a process group of its own, in `folder`, its output kept there."""
    with open(folder / "output", "ab") as out:
        process = subprocess.Popen(
            command,
            env={**os.environ, **(env or {})},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    spawned[process.pid] = process
    return process


def await_start(process: subprocess.Popen[bytes], name: str, folder: Path, ready: Callable[[], bool]) -> None:
    """Wait until a server that was spawned is ready. Raises NoServer with its last words when it does not get there."""
    started = started_at(process.pid)
    end = time.monotonic() + START_LIMIT
    while not ready():
        if process.poll() is not None or time.monotonic() > end:
            end_group(process.pid, started)
            spawned.pop(process.pid).wait()
            raise NoServer(f"{name} did not start: {(folder / 'output').read_text(errors='replace')[-500:]}")
        time.sleep(0.05)


def container_of(kind: str, make: Callable[[Any], Any], port: int) -> tuple[str, str, int]:
    """(id, host, port) of a container through testcontainers, or NoServer."""
    if shutil.which("docker") is None:
        raise NoServer(f"no Docker for a {kind} container")
    if subprocess.run(["docker", "info"], capture_output=True, timeout=30, check=False).returncode:
        raise NoServer(f"no Docker engine answers for a {kind} container")
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
    from testcontainers.core.container import DockerContainer

    container = make(DockerContainer)
    try:
        container.start()
    except Exception as exc:
        raise NoServer(f"the {kind} container did not start: {exc}") from exc
    host = container.get_container_host_ip()
    return (
        container.get_wrapped_container().id,
        "127.0.0.1" if host == "localhost" else host,
        int(container.get_exposed_port(port)),
    )
