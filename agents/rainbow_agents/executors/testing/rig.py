"""An executor under test: jobs to give it, and everything it reports."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rainbow.jobspec.flux.v1 import FluxJob
from rainbow.jobspec.request import Demand
from rainbow_agents.executors.base import Executor, ExecutorEvent, Found, Held, Listener, SubmissionKey, Work

T = TypeVar("T")

#: Seconds to wait for something that happens: against hangs only.
PATIENCE = 60.0


def v1(
    command: Sequence[str],
    *,
    cores: int = 1,
    nodes: int = 0,
    tasks: int = 1,
    duration: float = 0.0,
    cwd: str | None = "/tmp",  # noqa: S108 - a folder that exists everywhere
    environment: dict[str, str] | None = None,
    system: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A V1 jobspec: `tasks` slots of `cores` cores, on `nodes` nodes if given."""
    slot: dict[str, Any] = {
        "type": "slot",
        "label": "task",
        "count": tasks if not nodes else max(1, tasks // nodes),
        "with": [{"type": "core", "count": cores}],
    }
    resources = [{"type": "node", "count": nodes, "with": [slot]}] if nodes else [slot]
    attributes: dict[str, Any] = {"duration": duration, **(system or {})}
    if cwd is not None:
        attributes["cwd"] = cwd
    if environment is not None:
        attributes["environment"] = environment
    return {
        "version": 1,
        "resources": resources,
        "tasks": [{"command": list(command), "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {"system": attributes},
    }


class Rig:
    """An executor under test, and everything it told."""

    def __init__(self, make: Callable[[Listener], Executor], environment: dict[str, str] | None = None) -> None:
        self._make = make
        self._environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", **(environment or {})}
        self._changed = threading.Condition()
        self.told: list[ExecutorEvent] = []
        self.executor = self._open()

    def _open(self) -> Executor:
        executor = self._make(self._listen)
        self.wait_for("Up")
        return executor

    def _listen(self, happening: ExecutorEvent) -> None:
        with self._changed:
            self.told.append(happening)
            self._changed.notify_all()

    def reopen(self) -> None:
        """As if the agent had died and another been started: the old one is let go of, what it told is forgotten."""
        self.executor.close()
        with self._changed:
            self.told.clear()
        self.executor = self._open()

    def until(self, look: Callable[[], T | None], what: str, patience: float = PATIENCE) -> T:
        """What `look` gives, once it is not None (or empty)."""
        end = time.monotonic() + patience
        with self._changed:
            while True:
                found = look()
                if found:
                    return found
                left = end - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"{what} did not happen within {patience:g} s; told: {self.told[-10:]}")
                self._changed.wait(min(left, 0.1))

    def wait_for(self, kind: str, mark: SubmissionKey | None = None) -> Any:
        """The first happening of that kind (of that job)."""
        return self.until(
            lambda: next(
                (
                    h
                    for h in self.told
                    if type(h).__name__ == kind and (mark is None or getattr(h, "mark", None) == mark)
                ),
                None,
            ),
            f"{kind} of {mark}",
        )

    def count(self, kind: str, mark: SubmissionKey) -> int:
        with self._changed:
            return sum(1 for h in self.told if type(h).__name__ == kind and getattr(h, "mark", None) == mark)

    def work(self, script: str, *, demand: Demand | None = None, **options: Any) -> Work:
        mark = SubmissionKey(str(uuid.uuid4()), 1, uuid.uuid4().hex[:16])
        options.setdefault("environment", self._environment)
        document = v1(["/bin/sh", "-c", script], **options)
        wanted = demand or Demand(options.get("nodes", 0), options.get("cores", 1) * options.get("tasks", 1), 0)
        return Work(mark, (FluxJob("job", document),), wanted, name="contract", user="tester")

    def submit(self, work: Work) -> Held:
        """Submit, and give what it became (held)."""
        self.executor.submit([work])
        told = self.wait_for("Submitted", work.mark)
        return Held(work.mark, told.handle, work.priority)

    def run(self, script: str, **options: Any) -> Any:
        """Run to the end: the Ended."""
        work = self.work(script, **options)
        held = self.submit(work)
        self.executor.release([held])
        return self.wait_for("Ended", work.mark)

    def found(self, held: Held) -> Found | None:
        recovery = self.executor.recover([held])
        return next((f for f in recovery.jobs if f.mark == held.mark), None)


__all__ = ["PATIENCE", "Rig", "v1"]
