"""Reports the cluster's state: free resources, waiting jobs, the admin's values; on time and when something changed."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rainbow.client.rpc import Rpc
from rainbow.errors import BadCredentials, Denied, NotFound, RainbowError
from rainbow.settings import AgentSettings
from rainbow_agents.contact import Contact
from rainbow_agents.executors.base import Ended, Executor, ExecutorDown, Started, SubmissionKey, Usage
from rainbow_agents.registration.client import RegistrationClient

log = logging.getLogger(__name__)

#: Jobs named in one report as included in its numbers.
_INCLUDED = 5000
#: Seconds between reports because of changes.
_AT_MOST_EVERY = 1.0
#: Seconds between reports while too few jobs wait here to keep the cluster busy for a second.
_LOW_EVERY = 0.1
#: Seconds over which the rate of ends is averaged.
_RATE_OVER = 3.0
#: Every how many reports an answer is asked for, so that a registration lost with the store is noticed.
_ASK_EVERY = 3

#: States of an agent in which it takes no jobs until somebody does something.
_CLOSED = ("executor-down", "stopping")

Value = bool | int | float | str


def reported(settings: AgentSettings) -> dict[str, Value]:
    """What each report says of the settings: the admin's values, and how many jobs may wait here."""
    bounds = [a.options.get("limit") for a in settings.admission if a.name == "max-queued"] + [settings.max_queued]
    known = [bound for bound in bounds if isinstance(bound, int)]
    return {**({"max_queued": min(known)} if known else {}), **settings.values}


class Rate:
    """Events a second, averaged over the last `over` seconds; exponentially, so that nothing is kept of each."""

    def __init__(self, over: float) -> None:
        self._over = over
        self._sum = 0.0
        self._at = 0.0

    def add(self, count: int, now: float) -> None:
        self._sum = self._decayed(now) + count
        self._at = now

    def per_s(self, now: float) -> float:
        return self._decayed(now) / self._over

    def _decayed(self, now: float) -> float:
        return self._sum * math.exp((self._at - now) / self._over) if self._sum else 0.0


class Heartbeat:
    """One thread (`run`). `report_due` makes a report due; `include` names jobs whose use the next numbers contain."""

    def __init__(
        self,
        *,
        cluster: str,
        rpc: Rpc,
        registrar: RegistrationClient,
        executor: Executor,
        report_due: threading.Event,
        every: float,
        values: Callable[[], Mapping[str, Value]],
        state: Callable[[], str],
        counts: Callable[[], Mapping[str, int]],
        each: Callable[[], None] = lambda: None,
        heard: Callable[[Mapping[str, Any], float], None],
        contact: Contact,
    ) -> None:
        self._executor = executor
        self._values = values
        self.last_report = 0.0
        self._cluster = cluster
        self._rpc = rpc
        self._registrar = registrar
        self._every = every
        self._state = state
        self._counts = counts
        self._each = each
        self._heard = heard
        self._contact = contact
        #: The registration after which a reply was asked for.
        self._asked = -1
        self._changed = report_due
        self._lock = threading.Lock()
        self._included: dict[tuple[str, int], None] = {}
        self._rate = Rate(_RATE_OVER)
        #: Jobs that wait here: by the last report, without those that have started since.
        self._pending = 0
        self._number = 0
        self._asked_at = -math.inf

    def include(self, marks: Sequence[SubmissionKey]) -> None:
        """These jobs hold resources now (or did): their reservations can go."""
        with self._lock:
            self._included.update(((m.id, m.attempt), None) for m in marks)
        self._changed.set()

    def follow(self, news: Sequence[Started | Ended]) -> None:
        """Jobs started and ended: their use is in the next numbers, and there may be room for as many more."""
        with self._lock:
            ends = sum(isinstance(n, Ended) for n in news)
            self._rate.add(ends, time.monotonic())
            self._pending = max(0, self._pending - (len(news) - ends))
        self.include([n.mark for n in news])

    def _spacing(self, now: float) -> float:
        """Seconds between two reports now."""
        with self._lock:
            return _LOW_EVERY if self._pending < self._rate.per_s(now) or not self._pending else _AT_MOST_EVERY

    def run(self, stop: threading.Event) -> None:
        next_report = 0.0
        last = 0.0
        while not stop.is_set():
            now = time.monotonic()
            due = now >= next_report or (self._changed.is_set() and now >= last + self._spacing(now))
            if due and self._registrar.registered:
                last, next_report = now, now + self._every
                self._changed.clear()
                self.report()
            self._each()
            if self._changed.is_set():
                now = time.monotonic()
                stop.wait(min(_LOW_EVERY, max(0.02, last + self._spacing(now) - now)))
            else:
                self._changed.wait(min(0.5, max(0.02, next_report - time.monotonic())))

    def report(self) -> bool:
        """Send one report. What it said to include is kept for the next one unless the broker confirmed it."""
        with self._lock:
            included = list(self._included)[:_INCLUDED]
            rate = self._rate.per_s(time.monotonic())
        usage = self._usage()
        self._pending = usage.jobs_pending or 0
        registration = self._registrar.current
        assert registration is not None
        request = {
            "op": "state",
            "version": 1,
            "report": {
                "cluster": self._cluster,
                "values": {**self._closed(usage), "ends_per_s": round(rate, 3), **self._values()},
                "included": [list(key) for key in included],
                "heartbeat": True,
                "registration": registration.registration,
            },
        }
        self._number += 1
        ask = self._number % _ASK_EVERY == 1 and time.monotonic() - self._asked_at >= self._every
        try:
            serial = self._registrar.serial
            if ask or serial != self._asked:
                self._asked_at = time.monotonic()
                asked_at = self._contact.now()
                self._heard(self._rpc.call(request, timeout=min(5.0, self._every)), asked_at)
                self._asked = serial
            else:
                self._rpc.send(request, timeout=min(10.0, self._every))
                self._contact.reported()
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

    def _closed(self, usage: Usage) -> dict[str, Value]:
        """The numbers, the agent's state, and in `closed` why a job would not start now however much is free."""
        state = self._state()
        closed = f"the agent is {state}" if state in _CLOSED else ""
        values: dict[str, Value] = {"closed": "", **usage.values(), "agent_state": state}
        return {**values, "closed": closed} if closed else values

    def _usage(self) -> Usage:
        counts = self._counts()
        try:
            usage = self._executor.usage()
            if usage.jobs_pending is not None:
                return usage
            return replace(usage, jobs_pending=counts.get("accepted", 0), jobs_running=counts.get("running", 0))
        except ExecutorDown as exc:
            log.info("no numbers: %s", exc, extra={"action": "report"})
        # Nothing is free where nothing can be started.
        return Usage(0, 0, 0, None, counts.get("accepted", 0), counts.get("running", 0))
