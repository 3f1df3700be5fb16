"""Admission policy of the site: plugins (entry points `rainbow.admission`) that may refuse a job before it goes in.

A plugin is made with its options as keyword arguments; all are asked in the order of the settings, until one refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from time import time as clock_time
from typing import Any, Protocol

from rainbow import plugins
from rainbow.errors import InvalidSettings
from rainbow.jobspec.request import Jobspec
from rainbow.models.job import Dispatch, RejectCode
from rainbow.settings import AgentSettings


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why not: `policy` keeps the job away from this cluster, after `busy` it may come again."""

    code: RejectCode
    detail: str


@dataclass(frozen=True, slots=True)
class Load:
    """How much is here now, with what was admitted in this batch."""

    queued: int
    running: int


class Admission(Protocol):
    """One rule. `check` must be quick: it is asked for each job, on the way to the executor."""

    def check(self, job: Dispatch, spec: Jobspec, load: Load) -> Refusal | None:
        """None to let it in."""


class MaxQueued:
    """At most `limit` jobs that wait to start; more are refused `busy`, and come back when there is room.

    They come back ever more rarely, and others that come just then would always be first. So the limit rises with a
    job's age, to twice as many after `patience` seconds since it was submitted (0: it does not): who waits longest gets
    in next.
    """

    def __init__(self, limit: int, patience: float = 600.0, clock: Callable[[], float] = clock_time) -> None:
        if limit < 0 or patience < 0:
            raise InvalidSettings("max-queued needs a limit and a patience of 0 or more")
        self.limit = limit
        self.patience = patience
        self._clock = clock

    def check(self, job: Dispatch, spec: Jobspec, load: Load) -> Refusal | None:
        room = self.limit
        if self.patience:
            age = max(0.0, self._clock() - job.submitted_at)
            room += int(self.limit * min(1.0, age / self.patience))
        if load.queued < room:
            return None
        return Refusal("busy", f"{load.queued} jobs wait here already, {room} may")


class MaxRunning:
    """At most `limit` jobs here at all, waiting or running."""

    def __init__(self, limit: int) -> None:
        if limit < 0:
            raise InvalidSettings("max-running needs a limit of 0 or more")
        self.limit = limit

    def check(self, job: Dispatch, spec: Jobspec, load: Load) -> Refusal | None:
        here = load.queued + load.running
        return None if here < self.limit else Refusal("busy", f"{here} jobs are here already, {self.limit} may")


class AllowedUsers:
    """Only these users."""

    def __init__(self, users: Iterable[str]) -> None:
        self.users = frozenset(users)

    def check(self, job: Dispatch, spec: Jobspec, load: Load) -> Refusal | None:
        return None if job.user in self.users else Refusal("policy", f"user {job.user!r} may not run jobs here")


class TimeWindow:
    """Only between `start` and `end` (``HH:MM``, this machine's local time; over midnight too)."""

    def __init__(self, start: str, end: str) -> None:
        try:
            self.start, self.end = time.fromisoformat(start), time.fromisoformat(end)
        except ValueError:
            raise InvalidSettings(f"time-window needs start and end as HH:MM, not {start!r} and {end!r}") from None

    def check(self, job: Dispatch, spec: Jobspec, load: Load) -> Refusal | None:
        if self.open_at(datetime.now().time()):
            return None
        return Refusal("busy", f"jobs are taken from {self.start:%H:%M} to {self.end:%H:%M} only")

    def open_at(self, now: time) -> bool:
        if self.start <= self.end:
            return self.start <= now < self.end
        return now >= self.start or now < self.end


class Policy:
    """All rules in force. Replaced whole when the settings are read again."""

    def __init__(self, rules: Sequence[Admission] = ()) -> None:
        self.rules = tuple(rules)

    @staticmethod
    def from_settings(settings: AgentSettings) -> Policy:
        """Raises UnknownPlugin, and InvalidSettings for options that a plugin does not take."""
        wanted: list[tuple[str, dict[str, Any]]] = []
        if settings.allowed_users is not None:
            wanted.append(("allowed-users", {"users": settings.allowed_users}))
        if settings.max_queued is not None:
            wanted.append(("max-queued", {"limit": settings.max_queued}))
        wanted += [(a.name, a.options) for a in settings.admission]
        rules = []
        for name, options in wanted:
            plugin = plugins.load("rainbow.admission", name)
            try:
                rules.append(plugin(**options))
            except TypeError as exc:
                raise InvalidSettings(f"admission {name!r}: {exc}") from None
        return Policy(rules)

    def check(self, job: Dispatch, spec: Jobspec, load: Load) -> Refusal | None:
        for rule in self.rules:
            refusal = rule.check(job, spec, load)
            if refusal is not None:
                return refusal
        return None
