"""Which dispatches may belong to another cluster by now: they start only once the ledger confirms them.

A scheduler gives a job to another cluster in three cases: when the time of its dispatch in the queue is over (a copy of
one that is here may have expired, for a repeated one also an earlier copy); when the store lost data and does not know
of it (the epoch of the dispatch is older than the one that this agent has reported for); and when the store lost data
while this agent was silent for so long that no scheduler waited for it. In all other cases the dispatch alone is
enough, and a job also starts while no worker runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from rainbow.models.job import Dispatch

#: Seconds by which the clocks of scheduler and agent may differ (docs/explanation/security.md). A dispatch that lives
#: less than twice as long is in doubt from half of its life on.
SKEW = 60.0


class Freshness:
    """`reported` gives the epoch of the store that this agent has reported for; 0 while it knows of none."""

    def __init__(
        self, reported: Callable[[], int], missed: Callable[[], bool], clock: Callable[[], float] = time.time
    ) -> None:
        self._reported = reported
        self._missed = missed
        self._clock = clock

    def doubt(self, dispatch: Dispatch) -> str | None:
        """Why `dispatch` needs the ledger's confirmation; None when it does not."""
        if dispatch.repeated:
            return "it was dispatched twice"
        if 0 < dispatch.epoch < self._reported():
            return "the store lost data since it was assigned"
        if dispatch.epoch and self._missed():
            return "this cluster was silent for long, and the store may have lost data meanwhile"
        left = dispatch.assigned_at + dispatch.lives - self._clock()
        if dispatch.lives and left < min(SKEW, dispatch.lives / 2):
            return f"its time in the queue is over in {left:.0f} s"
        return None


__all__ = ["SKEW", "Freshness"]
