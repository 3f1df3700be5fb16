"""Sends the events that wait in the journal, until the broker has confirmed them: also those of a run before."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from rainbow import tracing
from rainbow.backoff import Backoff
from rainbow.errors import BadCredentials, RainbowError
from rainbow_agents.batcher import Batcher
from rainbow_agents.journal import OVER, Journal, JournalDown, Pending
from rainbow_agents.reporting.events import Publisher

log = logging.getLogger(__name__)

_BATCH = 1000
#: Seconds to wait for a confirm; an event not confirmed by then is sent again.
_CONFIRM = 30.0


class Outbox:
    """One thread (`run`). `wake` it when there is something new; else it looks once a second."""

    def __init__(self, journal: Journal, publisher: Publisher, drained: Callable[[], None] = lambda: None) -> None:
        self._journal = journal
        self._publisher = publisher
        self._drained = drained
        self._awake = threading.Event()
        self._pace = Batcher()
        self.last_confirm = 0.0

    def wake(self) -> None:
        self._awake.set()

    def run(self, stop: threading.Event) -> None:
        backoff = Backoff(0.2, 10.0)
        while not stop.is_set():
            if self._awake.wait(1.0):
                self._pace.gather()
            self._awake.clear()
            try:
                while not stop.is_set() and self.send_some():
                    backoff.reset()
                self._drained()
            except BadCredentials:
                raise
            except RainbowError as exc:  # broker or journal: nothing is forgotten, try again
                log.warning("events wait: %s", exc, extra={"action": "outbox"})
                if backoff.wait(stop):
                    return
                self._awake.set()

    def send_some(self) -> int:
        """Send what is due, one batch; how many events the broker has now. Raises when it does not take them."""
        pending = self._journal.outbox.due(_BATCH)
        if pending:
            self._publisher.publish(pending).check(_CONFIRM)
            self._journal.outbox.sent(pending)
            self.last_confirm = time.time()
            if tracing.is_on():
                self._trace(pending)
        return len(pending)

    def _trace(self, pending: Sequence[Pending]) -> None:
        """Record the runs that ended as steps of the jobs' traces."""
        for event in (p.event for p in pending):
            row = self._journal.get(event.id, event.attempt) if event.state in OVER else None
            if row is None:
                continue
            about = {"job": event.id, "attempt": event.attempt, "cluster": event.cluster, "state": event.state}
            error = None if event.state in ("completed", "cancelled") else event.detail or event.state
            more = {"code": event.code, "returncode": event.returncode}
            tracing.ended("rainbow.run", row.trace, row.started_at or event.at, event.at, error, **about, **more)

    def flush(self, timeout: float) -> bool:
        """At the end: send what is left, for at most `timeout` seconds. False when something is left over."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            try:
                if not self.send_some():
                    return True
            except (RainbowError, JournalDown) as exc:
                log.debug("flushing events: %s", exc, extra={"action": "outbox"})
                time.sleep(0.1)
        return False
