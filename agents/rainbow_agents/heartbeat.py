"""Reports the cluster's state: free resources, waiting jobs, the admin's values; on time and when something changed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from rainbow.client.rpc import Rpc
from rainbow.errors import BadCredentials, Denied, NotFound, RainbowError
from rainbow_agents.executors.base import Executor, ExecutorDown, Mark, Usage
from rainbow_agents.registration import Registrar

log = logging.getLogger(__name__)

#: Jobs named in one report as included in its numbers.
_INCLUDED = 5000
#: Seconds between reports because of changes.
_AT_MOST_EVERY = 1.0
#: Every how many reports an answer is asked for, so that a registration lost with the store is noticed.
_ASK_EVERY = 3

Value = bool | int | float | str


class Heartbeat:
    """One thread (`run`). `changed` makes a report due; `include` names jobs whose use the next numbers contain."""

    def __init__(
        self,
        *,
        cluster: str,
        rpc: Rpc,
        registrar: Registrar,
        every: float,
        values: Mapping[str, Value],
        state: Callable[[], str],
        counts: Callable[[], Mapping[str, int]],
        each: Callable[[], None] = lambda: None,
    ) -> None:
        self.executor: Executor | None = None
        self.values = dict(values)
        self.last_report = 0.0
        self._cluster = cluster
        self._rpc = rpc
        self._registrar = registrar
        self._every = every
        self._state = state
        self._counts = counts
        self._each = each
        self._changed = threading.Event()
        self._lock = threading.Lock()
        self._included: dict[tuple[str, int], None] = {}
        self._number = 0

    def changed(self) -> None:
        self._changed.set()

    def include(self, marks: Sequence[Mark]) -> None:
        """These jobs hold resources now (or did): their reservations can go."""
        with self._lock:
            self._included.update(((m.id, m.attempt), None) for m in marks)
        self._changed.set()

    def run(self, stop: threading.Event) -> None:
        next_report = 0.0
        last = 0.0
        while not stop.is_set():
            now = time.monotonic()
            due = now >= next_report or (self._changed.is_set() and now >= last + _AT_MOST_EVERY)
            if due and self._registrar.registered:
                last, next_report = now, now + self._every
                self._changed.clear()
                self.report()
            self._each()
            if self._changed.is_set():
                stop.wait(max(0.02, last + _AT_MOST_EVERY - time.monotonic()))
            else:
                self._changed.wait(min(0.5, max(0.02, next_report - time.monotonic())))

    def report(self) -> bool:
        """Send one report. What it said to include is kept for the next one unless the broker confirmed it."""
        with self._lock:
            included = list(self._included)[:_INCLUDED]
        registration = self._registrar.current
        assert registration is not None
        request = {
            "op": "state",
            "version": 1,
            "report": {
                "cluster": self._cluster,
                "values": {**self._usage().values(), **self.values, "agent_state": self._state()},
                "included": [list(key) for key in included],
                "heartbeat": True,
                "registration": registration.registration,
            },
        }
        self._number += 1
        try:
            if self._number % _ASK_EVERY == 1:
                self._rpc.call(request, timeout=min(5.0, self._every))
            else:
                self._rpc.send(request, timeout=min(10.0, self._every))
        except BadCredentials:
            raise
        except (Denied, NotFound) as exc:
            log.warning("the report was refused: %s", exc, extra={"action": "report", "code": exc.code})
            self._registrar.request("a report was refused")
            return False
        except RainbowError as exc:
            log.info("the report did not arrive: %s", exc, extra={"action": "report", "code": exc.code})
            return False
        with self._lock:
            for key in included:
                self._included.pop(key, None)
        self.last_report = time.time()
        return True

    def _usage(self) -> Usage:
        counts = self._counts()
        try:
            if self.executor is not None:
                usage = self.executor.usage()
                if usage.jobs_pending is not None:
                    return usage
                return Usage(
                    usage.nodes_free,
                    usage.cores_free,
                    usage.gpus_free,
                    usage.nodes_up,
                    counts.get("accepted", 0),
                    counts.get("running", 0),
                )
        except ExecutorDown as exc:
            log.info("no numbers: %s", exc, extra={"action": "report"})
        # Nothing is free where nothing can be started.
        return Usage(0, 0, 0, None, counts.get("accepted", 0), counts.get("running", 0))
