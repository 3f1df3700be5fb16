"""Whether jobs may be taken now, and why not: the executor is away, or something is wrong that is no fault of the jobs.

Shared by the threads that take and that settle.
"""

from __future__ import annotations

import logging
import threading
import time

from rainbow.backoff import Backoff

log = logging.getLogger(__name__)


class IntakeGate:
    """Closed until the executor is up."""

    def __init__(self) -> None:
        self._up = False
        self._down_reason = "the executor is not up yet"
        self._trouble = Backoff(1.0, 30.0)
        self._pause_until = 0.0
        self._pause_reason: str | None = None
        self._room = threading.Event()

    @property
    def is_up(self) -> bool:
        return self._up

    def up(self) -> None:
        self._up = True
        self._room.set()

    def down(self, reason: str) -> None:
        self._up = False
        self._down_reason = reason
        self._room.set()

    def pause(self, reason: str) -> None:
        """Stop taking for a while, each time longer until `well`."""
        log.warning("taking no jobs for a while: %s", reason, extra={"action": "pause"})
        self._pause_reason = reason
        self._pause_until = time.monotonic() + self._trouble.next()

    def well(self) -> None:
        self._trouble.reset()

    def why_not(self) -> str | None:
        if not self._up:
            return self._down_reason
        if time.monotonic() < self._pause_until:
            return self._pause_reason
        return None

    def wait(self, seconds: float) -> None:
        """Until the executor comes or goes, `seconds` at most."""
        self._room.wait(seconds)
        self._room.clear()


__all__ = ["IntakeGate"]
