"""Servers of one test process, which tests may stop, freeze and kill."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from servers.process import answers, spawned, wait_until
from servers.rabbit import RabbitServer
from servers.redis_server import RedisServer

T = TypeVar("T", RabbitServer, RedisServer)


class Private(Generic[T]):
    """A server of one test process, which tests may stop, freeze and kill; `healed` makes it whole again."""

    def __init__(self, start: Callable[[Path], T], folder: Path) -> None:
        self._start: Callable[[Path], T] = start
        self.folder = folder
        self.server: T = start(folder)

    @property
    def pid(self) -> int:
        """The server itself (RabbitMQ: the Erlang VM), for signals."""
        noted = self.folder / "pid"
        return int(noted.read_text()) if noted.exists() else self.server.group

    @property
    def alive(self) -> bool:
        return answers(self.server.host, self.server.port)

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """As a power cut: no goodbye to anybody."""
        os.killpg(self.server.group, signal.SIGKILL)
        wait_until(lambda: not self.alive, what="the killed server is gone")
        self._reap()

    def _reap(self) -> None:
        process = spawned.pop(self.server.group, None)
        if process is not None:
            process.wait()

    def start(self) -> None:
        self.server = self._start(self.folder)

    def restart(self) -> None:
        self.kill()
        self.start()

    def healed(self) -> T:
        """The server, running, whatever the test before did to it."""
        with contextlib.suppress(OSError):
            self.thaw()
        if not self.alive:
            self.end()
            self.start()
        return self.server

    def replace(self) -> T:
        """Another server, with nothing of what was there before."""
        self.end()
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        self.start()
        return self.server

    def end(self) -> None:
        if self.server.group in spawned:  # our child, not waited for yet: the id is still its own
            with contextlib.suppress(OSError):
                os.killpg(self.server.group, signal.SIGKILL)
            self._reap()
