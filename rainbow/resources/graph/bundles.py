"""Claims on pools: how many bundles of vertices, each with a sum of sizes of at least so much, can be made?

A vertex serves one claim only (a granule): four pools of 2 serve at most four claims of 1. With one size, or
claims of 1, this is a division. With mixed sizes it is bin covering: bundles are made greedily, and by search
where that fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

Claims = tuple[tuple[int, int], ...]
"""``(amount, how many)`` pairs, largest amount first."""


class Clock:
    """The time that packing may take, in seconds of this thread; looked at now and then only."""

    __slots__ = ("_budget", "_steps", "_stop", "spent")

    def __init__(self, budget_s: float) -> None:
        self._budget = budget_s
        self._steps = 0
        self._stop: float | None = None
        self.spent = False
        """Whether anything was cut short, so that "no" means "could not be shown"."""

    def tick(self, steps: int = 1) -> bool:
        """Count work; True when the time is used up. Time starts with the first call."""
        if self.spent:
            return True
        self._steps += steps
        if self._stop is None:
            self._stop = time.thread_time() + self._budget
        elif self._steps >= 64:
            self._steps = 0
            self.spent = time.thread_time() > self._stop
        return self.spent


def bundles(sizes: Mapping[int, int], claims: Claims, clock: Clock, enough: int) -> int:
    """How many times all `claims` can be met at once from `sizes` (vertices by size).

    Exact unless the clock ran out (then a lower bound). The search stops at `enough`.
    """
    # A vertex as large as the largest claim meets any claim by itself: how much larger it is does not matter.
    most_claimed = claims[0][0]
    usable: dict[int, int] = {}
    for size, count in sizes.items():
        if size > 0 and count > 0:
            size = min(size, most_claimed)
            usable[size] = usable.get(size, 0) + count
    if not usable:
        return 0
    whole = sum(amount * times for amount, times in claims)
    if len(usable) == 1:
        ((size, count),) = usable.items()
        if size == 1:
            return count // whole
        return count // sum(-(-amount // size) * times for amount, times in claims)
    wanted = sum(times for _, times in claims)
    most = min(sum(size * count for size, count in usable.items()) // whole, sum(usable.values()) // wanted)
    if most == 0 or (most == 1 and enough > 1 and wanted == 1):
        return most
    if wanted == 1 and enough == 1:
        return 1
    return largest(lambda times: covers(usable, claims, times, clock), most, enough, clock)


def largest(fits: Callable[[int], bool], most: int, enough: int, clock: Clock) -> int:
    """The largest number up to `most` that `fits`, given that what fits for n fits for less."""
    if not fits(1):
        return 0
    low, high = 1, min(most, max(enough, 1))
    step = 1
    while low < high and not clock.spent:
        probe = min(high, low + step)
        if fits(probe):
            low = probe
            step *= 2
        else:
            high = probe - 1
            break
    while low < high and not clock.spent:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def covers(sizes: Mapping[int, int], claims: Claims, times: int, clock: Clock) -> bool:
    """Whether `times` times all `claims` can be met. Never wrongly True."""
    left = {size: count for size, count in sizes.items() if size > 0 and count > 0}
    if sum(s * n for s, n in left.items()) < times * sum(a * n for a, n in claims):
        return False
    if _greedy(left, claims, times):
        return True
    order = sorted(left, reverse=True)
    state = tuple(left[size] for size in order)
    wanted = tuple((amount, count * times) for amount, count in claims)
    return _search(order, state, wanted, clock, set())


def _greedy(sizes: Mapping[int, int], claims: Claims, times: int) -> bool:
    """Largest claims first; each takes the smallest vertex that does it alone, else the largest ones."""
    left = dict(sizes)
    for amount, count in claims:
        missing = count * times
        while missing:
            pattern: dict[int, int] = {}
            need = amount
            while need > 0:
                free = [s for s, n in left.items() if n > pattern.get(s, 0)]
                if not free:
                    return False
                alone = [s for s in free if s >= need]
                if alone:
                    size, take = min(alone), 1
                else:
                    size = max(free)
                    take = min(left[size] - pattern.get(size, 0), need // size)
                pattern[size] = pattern.get(size, 0) + take
                need -= size * take
            # The same choice again, as often as it can be made.
            rounds = min(missing, *(left[size] // used for size, used in pattern.items()))
            for size, used in pattern.items():
                left[size] -= used * rounds
            missing -= rounds
    return True


def _search(
    order: list[int],
    state: tuple[int, ...],
    wanted: Claims,
    clock: Clock,
    failed: set[tuple[tuple[int, ...], Claims]],
) -> bool:
    if not wanted:
        return True
    if (state, wanted) in failed or clock.tick(8):
        return False
    left = sum(map(int.__mul__, order, state))
    if left < sum(amount * count for amount, count in wanted):
        return False
    amount, count = wanted[0]
    rest = ((amount, count - 1), *wanted[1:]) if count > 1 else wanted[1:]
    for used in patterns(order, state, amount):
        after = tuple(map(int.__sub__, state, used))
        if _search(order, after, rest, clock, failed):
            return True
        if clock.spent:
            return False
    failed.add((state, wanted))
    return False


def patterns(order: list[int], state: tuple[int, ...], amount: int) -> Iterator[tuple[int, ...]]:
    """The ways to meet one claim from which no vertex can be left out; `order` falls."""
    used = [0] * len(order)

    def choose(at: int, need: int, smallest: int) -> Iterator[tuple[int, ...]]:
        if need <= 0:
            if smallest + need > 0:  # without its smallest vertex it would not do
                yield tuple(used)
            return
        if at == len(order):
            return
        size = order[at]
        for take in range(min(state[at], -(-need // size)), -1, -1):
            used[at] = take
            yield from choose(at + 1, need - size * take, size if take else smallest)
        used[at] = 0

    return choose(0, amount, 1 << 62)
