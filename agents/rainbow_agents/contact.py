"""How long this agent was silent: whether it may have missed that the store lost data."""

from __future__ import annotations

import time
from collections.abc import Callable

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


__all__ = ["ALIVE_AFTER", "Contact"]
