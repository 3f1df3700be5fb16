"""What one run of the tests found or started, written down in one folder, and ended with it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from servers.process import VHOST_PREFIX, NoServer, answers, end_group, started_at
from servers.rabbit import RabbitServer, check_handles, rabbit_container, start_rabbit
from servers.redis_server import RedisServer, redis_container, start_redis

RUN_PREFIX = "rainbow-tests-"

T = TypeVar("T")


class Run:
    """One run of pytest: a folder with what was started, guarded by a file lock between its processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._notes = folder / "started.json"

    @classmethod
    def begin(cls) -> Run:
        """A new one, owned by this process. Ends those whose owner was killed before it could."""
        for old in Path(tempfile.gettempdir()).glob(f"{RUN_PREFIX}*"):
            with contextlib.suppress(OSError, ValueError):
                pid, started = (old / "owner").read_text().split()
                if started_at(int(pid)) != started:
                    cls(old).end()
        run = cls(Path(tempfile.mkdtemp(prefix=RUN_PREFIX)))
        (run.folder / "owner").write_text(f"{os.getpid()} {started_at(os.getpid())}")
        return run

    @property
    def name(self) -> str:
        return self.folder.name.removeprefix(RUN_PREFIX)

    @contextlib.contextmanager
    def locked(self) -> Iterator[dict[str, Any]]:
        """The notes of the run, written back at the end."""
        with open(self.folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            notes: dict[str, Any] = json.loads(self._notes.read_text()) if self._notes.exists() else {}
            try:
                yield notes
            finally:
                self._notes.write_text(json.dumps(notes))

    def end(self) -> None:
        """Take away our vhosts, end what was started (and nothing else), remove the folder.

        A broker too busy to drop the vhosts keeps the folder there: the next run does it.
        """
        done = True
        with self.locked() as notes:
            server = notes.get("rabbitmq") or notes.get("probed")
            if server and not server["group"]:
                try:
                    RabbitServer.from_json(server).drop_vhosts(f"{VHOST_PREFIX}{self.name}-")
                except (NoServer, OSError, subprocess.SubprocessError):
                    done = "rabbitmq" not in notes  # one that never let us in has nothing of ours
            for server in notes.values():
                if server.get("group"):
                    end_group(server["group"], server["started"])
                if server.get("container"):
                    subprocess.run(["docker", "rm", "-f", server["container"]], capture_output=True, check=False)
        if done:
            shutil.rmtree(self.folder, ignore_errors=True)


def find_rabbit(run: Run) -> RabbitServer:
    """The RabbitMQ of this run, found or started once for all of its processes. Raises NoServer."""
    with run.locked() as notes:
        if "rabbitmq" in notes:
            return RabbitServer.from_json(notes["rabbitmq"])
        server = _find_rabbit(run, notes)
        notes["rabbitmq"] = server.to_json()
        return server


def _find_rabbit(run: Run, notes: dict[str, Any]) -> RabbitServer:
    why = []
    given = os.environ.get("RAINBOW_TEST_AMQP_URL")
    for url in [given] if given else ["amqp://guest:guest@127.0.0.1:5672"]:
        server = RabbitServer(url)
        if not answers(server.host, server.port):
            why.append(f"nothing answers on {server.host}:{server.port}")
            continue
        try:
            return _with_control(server, run, notes)
        except NoServer as exc:
            why.append(str(exc))
    if given:
        raise NoServer(f"RAINBOW_TEST_AMQP_URL: {'; '.join(why)}")
    return _first_that_starts((start_rabbit, rabbit_container), "rabbitmq-", run, why)


def _first_that_starts(starts: Sequence[Callable[[Path], T]], prefix: str, run: Run, why: list[str]) -> T:
    """Raises NoServer with all reasons, `why` first."""
    for start in starts:
        try:
            return start(Path(tempfile.mkdtemp(prefix=prefix, dir=run.folder)))
        except NoServer as exc:
            why.append(str(exc))
    raise NoServer("; ".join(why))


def _with_control(server: RabbitServer, run: Run, notes: dict[str, Any]) -> RabbitServer:
    """`server` with a way to make vhosts: rabbitmqctl if it may, else the management API."""
    why = []
    api = os.environ.get("RAINBOW_TEST_AMQP_MANAGEMENT_URL", f"http://{server.host}:15672").rstrip("/")
    for tried in (RabbitServer(server.url, ctl_env={}), RabbitServer(server.url, api=api)):
        if tried.ctl_env is not None and server.host not in ("127.0.0.1", "localhost", "::1"):
            continue
        try:
            notes["probed"] = tried.to_json()  # a probe that fails may have made its vhost all the same
            tried.make_vhosts([f"{VHOST_PREFIX}{run.name}-probe"])
            check_handles(tried)
        except (NoServer, OSError, subprocess.SubprocessError) as exc:
            why.append(str(exc))
        else:
            return tried
    raise NoServer(
        f"cannot make vhosts on {server.host}:{server.port}, which keep the tests apart ({'; '.join(why)}): "
        "run as root beside it, or enable its management API"
    )


def find_redis(run: Run) -> RedisServer:
    """The Redis of this run, found or started once for all of its processes. Raises NoServer."""
    with run.locked() as notes:
        if "redis" in notes:
            return RedisServer(**notes["redis"])
        server = _find_redis(run)
        notes["redis"] = server.to_json()
        return server


def _find_redis(run: Run) -> RedisServer:
    given = os.environ.get("RAINBOW_TEST_REDIS_URL")
    if given:
        server = RedisServer(given)
        if not answers(server.host, server.port):
            raise NoServer(f"RAINBOW_TEST_REDIS_URL: nothing answers on {server.host}:{server.port}")
        return server
    server = RedisServer("redis://127.0.0.1:6379/0")
    if server.ping():
        return server
    return _first_that_starts((start_redis, redis_container), "redis-", run, ["nothing answers on 127.0.0.1:6379"])
