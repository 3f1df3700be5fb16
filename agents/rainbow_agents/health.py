"""A file that says how the agent is, for whoever watches the process: progress counts, not that it exists."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from rainbow.errors import NotFound, RainbowError
from rainbow_agents.state import write_private

#: Seconds between two writings of the file, and after which a file is too old to be believed.
EVERY = 2.0
STALE = 30.0
#: Seconds a report to the registrar may be overdue.
_REPORT_LATE = 60.0


@dataclass(frozen=True, slots=True)
class Health:
    """`state` as in the reports: running, executor-down, paused, stand-by, starting, stopping. Times since 1970."""

    cluster: str
    state: str
    ok: bool
    detail: str
    written_at: float
    connected: bool
    registered: bool
    last_take: float
    last_settle: float
    last_report: float
    events_waiting: int
    jobs_unclear: int = 0


class HealthFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = 0.0

    def write(self, health: Health) -> None:
        """Write it, at most every two seconds."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + EVERY
        write_private(self._path, json.dumps(asdict(health)) + "\n")

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)


def verdict(*, connected: bool, registered: bool, state: str, last_report: float, now: float) -> tuple[bool, str]:
    """Whether the agent does its work, and what is in its way."""
    if not connected:
        return False, "the broker cannot be reached"
    if not registered:
        return False, "the cluster is not registered yet"
    if state not in ("running", "stand-by"):
        return False, state
    if state == "running" and now - last_report > _REPORT_LATE:
        return False, f"no report arrived for {now - last_report:.0f} s" if last_report else "no report arrived yet"
    return True, "jobs are taken" if state == "running" else "another agent of this cluster is active"


def read(path: Path) -> Health:
    """What the agent wrote. Raises NotFound; RainbowError when it is stale or says that something is wrong."""
    try:
        health = Health(**json.loads(path.read_text()))
    except FileNotFoundError:
        raise NotFound(f"no health file at {path}: the agent is not running, or has no agent.health_file set") from None
    except (ValueError, TypeError):
        raise RainbowError(f"{path} is no health file of this release") from None
    age = time.time() - health.written_at
    if age > STALE:
        raise RainbowError(f"the agent has not written its health file for {age:.0f} s: it hangs or is gone")
    if not health.ok:
        raise RainbowError(f"the agent of {health.cluster} does not work: {health.detail}")
    return health
