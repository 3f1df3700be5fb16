"""A rate limit for each caller: a token bucket by token, or by address for those without one that is known as good.

Tokens that are made up are as cheap as requests: if each had a bucket of its own, there would be no limit.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from rainbow.errors import RainbowError

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
        key = _key(caller)
        now = self._clock()
        left, at = self._buckets.pop(key, (float(self._burst), now))
        left = min(float(self._burst), left + (now - at) * self._rate)
        allowed = left >= 1.0
        self._buckets[key] = (left - allowed, now)
        if len(self._buckets) > _CALLERS:
            self._buckets.popitem(last=False)
        return allowed


#: Seconds for which a token is known as good, and until one that is not is asked about again.
_KNOWN, _AGAIN = 3600.0, 60.0
#: Tokens that are asked about at the same time.
_AT_ONCE = 4


class GoodTokens:
    """Tokens that the scheduler's side let in. Only limits depend on it: each request is checked where it is done.

    `check` raises RainbowError for a token that is not good.
    """

    def __init__(self, check: Callable[[str], Awaitable[object]], clock: Callable[[], float] = time.monotonic) -> None:
        self._check = check
        self._clock = clock
        self._until: OrderedDict[bytes, tuple[float, bool]] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    def has(self, token: str) -> bool:
        """Whether a token is known as good. One that is not is asked about meanwhile."""
        key = _key(token)
        until, good = self._until.get(key, (0.0, False))
        if self._clock() < until:
            return good
        if len(self._tasks) < _AT_ONCE:
            self._note(key, _AGAIN, good=False)
            task = asyncio.get_running_loop().create_task(self._ask(token, key))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return False

    async def _ask(self, token: str, key: bytes) -> None:
        try:
            await self._check(token)
        except (RainbowError, RuntimeError):  # refused, not answered, or the program ends
            return
        self._note(key, _KNOWN, good=True)

    def _note(self, key: bytes, seconds: float, *, good: bool) -> None:
        self._until[key] = (self._clock() + seconds, good)
        self._until.move_to_end(key)
        if len(self._until) > _CALLERS:
            self._until.popitem(last=False)


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()[:16]
