"""The waiting jobs of a lost cluster are placed elsewhere at a bounded rate, so that they do not drown the others.

Those whose turn it is not yet wait in a hold queue and come back: should their cluster be there again by then, they may
go to it. Jobs that were refused by a cluster that lives are not counted here.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from rainbow import topology

#: Codes of dispatches that nobody looked at.
LOST = frozenset({"timed-out", "deleted"})

#: Seconds until one whose turn it is not is looked at again; as many seconds' worth may go at once then.
AGAIN = topology.HOLD_DELAYS[1]


class RateLimiter:
    """At most `rate` jobs a second, `AGAIN` seconds' worth of them at once. Used by several threads of one process: a
    race lets one more through, which does no harm."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._free_at = 0.0

    def take(self) -> bool:
        """Is it the turn of one more job?"""
        now = self._clock()
        free_at = max(self._free_at, now - AGAIN)
        if free_at > now:
            return False
        self._free_at = free_at + 1.0 / self._rate
        return True
