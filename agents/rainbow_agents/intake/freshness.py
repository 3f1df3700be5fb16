"""Which dispatches may belong to another cluster by now: they start only once the ledger confirms them.

A scheduler gives a job to another cluster in three cases: when the time of its dispatch in the queue is over (a copy of
one that is here may have expired); when the store lost data and does not know of it (the epoch of the dispatch is older
than the one that this agent has reported for); and when the store lost data while this agent was silent for so long
that nobody waited for it. In all other cases the dispatch alone is enough, and a job starts also while no worker runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from rainbow.models.job import Dispatch

#: Seconds by which the clocks of scheduler and agent may differ (docs/explanation/security.md). A dispatch that lives
#: less than twice as long is in doubt from half of its life on.
SKEW = 60.0


#: Seconds of silence after which a cluster is unreachable, for as long as the registrar has not said how many
#: (`scheduler.alive_after`).
ALIVE_AFTER = 35.0
#: Of that time, what an agent may be silent without asking.
_SHARE = 0.75


def boot_time() -> float:
    """Seconds since the machine started, in which it was suspended or not."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Contact:
    """Whether the agent was silent for so long that it may have missed that the store lost data.

    The limit is below the time after which it counts as unreachable: its last report was under way for some of it.
    The doubt ends with a reply of the registrar, which names the epoch of the store. Any thread may call.

    Args:
        confirmed: When the registrar last said which epoch holds, in seconds since 1970, of an earlier process.
    """

    def __init__(
        self,
        confirmed: float,
        clock: Callable[[], float] = boot_time,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._limit = _SHARE * ALIVE_AFTER
        self._last = clock()
        self._missed = not 0 <= wall() - confirmed <= self._limit

    def now(self) -> float:
        return self._clock()

    def reported(self) -> None:
        """The broker confirmed a report."""
        now = self._clock()
        if now - self._last > self._limit:
            self._missed = True
        self._last = now

    def heard(self, asked_at: float, alive_after: object) -> None:
        """The registrar answered a question of `asked_at` (as `now`), with `scheduler.alive_after` if it gave that."""
        if isinstance(alive_after, int | float) and not isinstance(alive_after, bool) and alive_after > 0:
            self._limit = _SHARE * alive_after
        now = self._clock()
        self._missed = now - asked_at > self._limit
        self._last = now

    @property
    def missed(self) -> bool:
        return self._missed or self._clock() - self._last > self._limit


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
        if 0 < dispatch.epoch < self._reported():
            return "the store lost data since it was assigned"
        if dispatch.epoch and self._missed():
            return "this cluster was silent for long, and the store may have lost data meanwhile"
        left = dispatch.assigned_at + dispatch.lives - self._clock()
        if dispatch.lives and left < min(SKEW, dispatch.lives / 2):
            return f"its time in the queue is over in {left:.0f} s"
        return None


__all__ = ["SKEW", "Contact", "Freshness"]
