"""Which of the agents of one cluster, on one state folder, is active: they share a lock, a stand-by waits for it."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from rainbow.errors import InvalidSettings
from rainbow_agents.state import NO_LOCKS, private_folder

log = logging.getLogger(__name__)


class Activation:
    """Active agents share the cluster's queue; a `stand_by` waits until it is alone."""

    def __init__(self, state_dir: Path, *, stand_by: bool) -> None:
        self._path = state_dir / "active.lock"
        self._kind = fcntl.LOCK_EX if stand_by else fcntl.LOCK_SH
        self._descriptor: int | None = None

    def acquire(self, stop: threading.Event, waiting: Callable[[], None]) -> bool:
        """Wait to be active, calling `waiting` meanwhile. False when `stop` was set first. Raises InvalidSettings."""
        with private_folder(self._path.parent):
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        logged = False
        while not stop.is_set():
            try:
                fcntl.flock(self._descriptor, self._kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if not logged:
                    log.info("another agent of this cluster is active: standing by", extra={"action": "stand-by"})
                    logged = True
                waiting()
                stop.wait(0.5)
            except OSError as exc:
                raise InvalidSettings(
                    f"state folder {self._path.parent} cannot be used: {exc.strerror}: {NO_LOCKS}"
                ) from None
            else:
                return True
        return False

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


__all__ = ["Activation"]
