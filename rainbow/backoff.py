"""Waiting before trying again: exponential, with jitter, and never longer than asked to stop.

Jitter keeps a thousand agents from knocking on a restarted broker in the same second. A wait can always be
interrupted, so that stopping a program never takes as long as its longest delay.
"""

from __future__ import annotations

import random
import threading


class Backoff:
    """Delays in seconds: `first`, then `factor` times longer each time up to `most`, each drawn from [half, whole]."""

    __slots__ = ("_next", "_random", "factor", "first", "most")

    def __init__(
        self, first: float = 0.2, most: float = 30.0, factor: float = 2.0, rng: random.Random | None = None
    ) -> None:
        if not (0 < first <= most and factor >= 1):
            raise ValueError(f"need 0 < first <= most and factor >= 1, not {first=} {most=} {factor=}")
        self.first, self.most, self.factor = first, most, factor
        self._next = first
        self._random = rng or random.Random()

    def next(self) -> float:
        """The next delay. Never more than `most`."""
        whole = self._next
        self._next = min(self.most, whole * self.factor)
        return whole * self._random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Start over: call it when something worked."""
        self._next = self.first

    def wait(self, stop: threading.Event) -> bool:
        """Sleep for the next delay or until `stop` is set; True when it was set (give up trying)."""
        return stop.wait(self.next())
