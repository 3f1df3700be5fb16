"""A rate limit for each caller: a token bucket by token, or by address without one."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable

#: Callers that are remembered. One that is forgotten starts with a full bucket.
_CALLERS = 10_000


class Rates:
    """At most `rate` requests a second for each caller, and `burst` at once."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[bytes, tuple[float, float]] = OrderedDict()

    def take(self, caller: str) -> bool:
        """Count one request of `caller`; False when it has none left."""
        key = hashlib.sha256(caller.encode("utf-8", "surrogateescape")).digest()[:16]
        now = self._clock()
        left, at = self._buckets.pop(key, (float(self._burst), now))
        left = min(float(self._burst), left + (now - at) * self._rate)
        allowed = left >= 1.0
        self._buckets[key] = (left - allowed, now)
        if len(self._buckets) > _CALLERS:
            self._buckets.popitem(last=False)
        return allowed
