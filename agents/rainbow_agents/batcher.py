"""Under load, wait a moment for more, so that many things share one write, one message, one wake-up.

What comes alone is handled at once: only a batch that follows closely on the one before waits.
"""

from __future__ import annotations

import time

#: Seconds within which a batch follows closely, and for how many it then waits.
_CLOSE = 0.02
_WAIT = 0.005


class Batcher:
    """Of one thread: call it with the first thing of each batch in hand."""

    def __init__(self) -> None:
        self._last = float("-inf")

    def gather(self) -> None:
        now = time.monotonic()
        if now - self._last < _CLOSE:
            time.sleep(_WAIT)
            now += _WAIT
        self._last = now
