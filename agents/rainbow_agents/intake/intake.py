"""From the cluster's queue into the executor: each job started exactly once, whatever happens in between.

Two threads share the work, so that many jobs are under way at a time: one receives (see `receiver`), one finalizes what
came out of it (see `finalizer`). What both know is in `in_flight` and `gate`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from rainbow_agents.intake.finalizer import Finalizer
from rainbow_agents.intake.in_flight import InFlight
from rainbow_agents.intake.receiver import Receiver
from rainbow_agents.journal import Journal, JournalDown

log = logging.getLogger(__name__)


class Intake:
    """Both threads' work, and how it stands."""

    def __init__(self, journal: Journal, in_flight: InFlight, receiver: Receiver, finalizer: Finalizer) -> None:
        self._journal = journal
        self._in_flight = in_flight
        self._receiver = receiver
        self._finalizer = finalizer
        self.run_receiver: Callable[[threading.Event], None] = receiver.run
        self.run_finalizer: Callable[[threading.Event], None] = finalizer.run

    @property
    def last_take(self) -> float:
        return self._receiver.last

    @property
    def last_settle(self) -> float:
        return self._finalizer.last

    @property
    def paused(self) -> str | None:
        """Why no jobs are taken: ours not to, or the broker that gives us none. None while they are."""
        return self._receiver.paused or self.trouble

    @property
    def trouble(self) -> str | None:
        """Why the broker gives us nothing from the queue, while it does not."""
        return self._in_flight.trouble

    @property
    def epoch(self) -> object:
        """The channel that jobs are taken on: another one after each loss. None without one."""
        return self._in_flight.epoch

    @property
    def in_flight(self) -> int:
        """Deliveries that are not settled."""
        return self._in_flight.unsettled

    def close(self) -> None:
        """At the end: what is still under way goes back, as if it had not been taken; the queue is let go of."""
        marks = self._in_flight.abandon()
        if marks:
            log.warning("%d jobs are given back unsubmitted", len(marks), extra={"action": "stop"})
            try:
                self._journal.returned(marks)
            except JournalDown as exc:
                log.error("%s", exc, extra={"action": "stop"})  # noqa: TRY400
        self._in_flight.close()


__all__ = ["Intake"]
