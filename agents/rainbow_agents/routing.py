"""Events of the executor on their way to the parts of the agent: into a queue each, so that nothing waits for another.

It is made before the executor, which may report from its first moment on; the parts that read the queues come later.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

from rainbow_agents.executors.base import (
    Changed,
    Crashed,
    Down,
    ExecutorEvent,
    News,
    Up,
    is_news,
    is_outcome,
)
from rainbow_agents.intake.gate import IntakeGate

log = logging.getLogger(__name__)


class EventRouter:
    """`listen` is the executor's listener: it may be called in any thread, with locks held.

    Args:
        gate: Opened and closed as the executor comes and goes.
        report_due: Set when something changed that the next report should say.
        graph_changed: Called when the resources that exist have changed.
        crashed: Called with what a thread of the executor died of.
    """

    def __init__(
        self,
        gate: IntakeGate,
        report_due: threading.Event,
        graph_changed: Callable[[], object],
        crashed: Callable[[BaseException], None],
    ) -> None:
        #: Outcomes; the finalizer puts its own decisions beside them.
        self.outcomes: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.progress: queue.SimpleQueue[News | Up] = queue.SimpleQueue()
        self._gate = gate
        self._report_due = report_due
        self._graph_changed = graph_changed
        self._crashed = crashed

    def listen(self, event: ExecutorEvent) -> None:
        if is_outcome(event):
            self.outcomes.put(event)
        elif is_news(event):
            self.progress.put(event)
        elif isinstance(event, Up):
            log.info("executor up", extra={"action": "executor-up", "incarnation": event.incarnation})
            self.progress.put(event)
            self._gate.up()
            self._report_due.set()
        elif isinstance(event, Down):
            log.warning("executor down: %s", event.reason, extra={"action": "executor-down"})
            self._gate.down(f"the executor is down: {event.reason}")
            self._report_due.set()
        elif isinstance(event, Crashed):
            self._crashed(event.error)
        elif isinstance(event, Changed):
            if event.graph:
                self._graph_changed()
            self._report_due.set()


__all__ = ["EventRouter"]
