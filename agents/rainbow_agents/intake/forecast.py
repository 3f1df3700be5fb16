"""When would a job start here? The queue played forward, from what is free and when running jobs must be over."""

from __future__ import annotations

import heapq
import itertools
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from rainbow.jobspec.request import Demand
from rainbow_agents.executors.base import Outlook, Waiting


class Forecast:
    """Answers for one `outlook` at time `now` (seconds since 1970), for as many jobs as are asked about.

    The queue is played strictly in order: a job starts when there is room and all before it have started. Jobs of a
    higher priority than those in the queue go ahead of them. Jobs end at their time limit, none earlier: so a forecast
    errs to the late side, save where Flux's own rules (fragmented nodes, constraints) hold a job back longer.
    """

    def __init__(self, outlook: Outlook, now: float) -> None:
        self._outlook = outlook
        self._now = now
        # Stable: of equal priority who came first goes first.
        self._queue: Sequence[Waiting] = sorted(outlook.waiting, key=lambda job: -job.priority)
        self._played: dict[int, _Play] = {}

    def fits(self, demand: Demand) -> bool:
        """Could it ever run here, by its totals?"""
        return _within(demand, self._outlook.total)

    def fits_up(self, demand: Demand) -> bool:
        """Could it run on what is neither down nor drained?"""
        return self._outlook.up is None or _within(demand, self._outlook.up)

    def closed(self, queues: Iterable[str | None]) -> str | None:
        """Why one of these queues starts or takes no jobs now (None: the default queue); None when all do."""
        closed = self._outlook.closed
        names = (name or self._outlook.default_queue for name in queues)
        return next((closed[name] for name in names if name in closed), None)

    def eta(self, demand: Demand, priority: int = 16) -> float | None:
        """Seconds until a job of this size would start; None when that hangs on a job without a time limit."""
        ahead = bisect_right(self._queue, -priority, key=lambda job: -job.priority)
        play = self._played.get(ahead)
        if play is None:
            play = self._played[ahead] = _Play(self._outlook, self._now)
            for job in self._queue[:ahead]:
                play.start(job.demand, job.duration)
        at = play.when(demand)
        return None if math.isinf(at) else max(0.0, at - self._now)


class _Play:
    """Resources over time, as jobs are started one after the other."""

    def __init__(self, outlook: Outlook, now: float) -> None:
        self.at = now
        self.free = [outlook.free.nodes, outlook.free.cores, outlook.free.gpus]
        self._order = itertools.count()
        self._ends = [(_limit(b.ends_at), next(self._order), _sizes(b.demand)) for b in outlook.busy]
        heapq.heapify(self._ends)

    def start(self, demand: Demand, duration: float | None) -> None:
        """Wait until there is room, and hold it."""
        need = _sizes(demand)
        self.at, self.free = self._wait(need, self._ends, self.at, self.free)
        self.free = [f - n for f, n in zip(self.free, need, strict=True)]
        end = self.at + duration if duration else math.inf
        heapq.heappush(self._ends, (end, next(self._order), need))

    def when(self, demand: Demand) -> float:
        """When there would be room; changes nothing."""
        return self._wait(_sizes(demand), list(self._ends), self.at, list(self.free))[0]

    @staticmethod
    def _wait(
        need: tuple[int, int, int], ends: list[tuple[float, int, tuple[int, int, int]]], at: float, free: list[int]
    ) -> tuple[float, list[int]]:
        while any(f < n for f, n in zip(free, need, strict=True)):
            if not ends or math.isinf(ends[0][0]):
                return math.inf, free
            end, _, freed = heapq.heappop(ends)
            at = max(at, end)
            free = [f + more for f, more in zip(free, freed, strict=True)]
        return at, free


def _within(demand: Demand, total: Demand) -> bool:
    return demand.nodes <= total.nodes and demand.cores <= total.cores and demand.gpus <= total.gpus


def _sizes(demand: Demand) -> tuple[int, int, int]:
    return demand.nodes, demand.cores, demand.gpus


def _limit(ends_at: float | None) -> float:
    return ends_at or math.inf
