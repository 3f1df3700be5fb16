"""Which jobs fit now: a queue by priority and arrival over the nodes, cores and GPUs of a cluster.

Strict order: a job that does not fit holds back those behind it. Demands are placed on whole nodes where they ask for
nodes, else on any cores; nothing is known of the real machine.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from rainbow.jobspec.request import Demand
from rainbow_agents.executors.base import Busy, Capacity, Outlook, Usage, Waiting


@dataclass(slots=True)
class _Node:
    cores: int
    gpus: int


def _spread(total: int, parts: int) -> list[int]:
    each, more = divmod(total, parts)
    return [each + (1 if i < more else 0) for i in range(parts)]


class Slots:
    """A queue of jobs by key, and what each running one holds. Not thread-safe: its owner locks."""

    def __init__(self, capacity: Capacity, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        nodes = max(1, capacity.nodes)
        self._whole = [
            _Node(c, g) for c, g in zip(_spread(capacity.cores, nodes), _spread(capacity.gpus, nodes), strict=True)
        ]
        self._free = [_Node(n.cores, n.gpus) for n in self._whole]
        self._order = itertools.count()
        self._waiting: list[tuple[int, int, Hashable]] = []
        self._demand: dict[Hashable, Demand] = {}
        self._held: dict[Hashable, list[tuple[int, int, int]]] = {}
        self._duration: dict[Hashable, float | None] = {}
        self._since: dict[Hashable, float] = {}

    def misfit(self, demand: Demand) -> str | None:
        """Why `demand` could never run here, None when it could."""
        if self._place(demand, self._whole) is not None:
            return None
        cores, gpus = sum(n.cores for n in self._whole), sum(n.gpus for n in self._whole)
        return (
            f"needs {demand.nodes} nodes, {demand.cores} cores, {demand.gpus} gpus: "
            f"there are {len(self._whole)} nodes with {cores} cores, {gpus} gpus"
        )

    def add(self, key: Hashable, demand: Demand, priority: int, duration: float | None = None) -> None:
        """Queue a job of at most `duration` seconds. One that is queued or running already stays as it is."""
        if key not in self._demand:
            self._demand[key] = demand
            self._duration[key] = duration or None
            heapq.heappush(self._waiting, (-priority, next(self._order), key))

    def ready(self) -> list[Hashable]:
        """The jobs that may start now, in order; they hold their resources from here on."""
        out: list[Hashable] = []
        while self._waiting:
            key = self._waiting[0][2]
            demand = self._demand.get(key)
            if demand is not None:
                placed = self._place(demand, self._free)
                if placed is None:
                    break
                self._take(key, placed)
                out.append(key)
            heapq.heappop(self._waiting)
        return out

    def occupy(self, key: Hashable, demand: Demand, duration: float | None = None, since: float | None = None) -> None:
        """A job that runs already (found after a restart) holds what it can get."""
        self._demand[key] = demand
        self._duration[key] = duration or None
        self._take(key, self._place(demand, self._free) or [])
        if since is not None:
            self._since[key] = since

    def done(self, key: Hashable) -> None:
        """The job ended, or is not to start any more."""
        self._demand.pop(key, None)
        self._duration.pop(key, None)
        self._since.pop(key, None)
        for index, cores, gpus in self._held.pop(key, ()):
            self._free[index].cores += cores
            self._free[index].gpus += gpus

    def usage(self) -> Usage:
        return Usage(
            nodes_free=sum(
                1 for n, w in zip(self._free, self._whole, strict=True) if n.cores == w.cores and n.gpus == w.gpus
            ),
            cores_free=sum(n.cores for n in self._free),
            gpus_free=sum(n.gpus for n in self._free),
            nodes_up=len(self._whole),
            jobs_pending=len(self._demand) - len(self._held),
            jobs_running=len(self._held),
        )

    def outlook(self) -> Outlook:
        """The queue as a forecast needs it. A job gives back the nodes that it is on as a whole."""
        usage = self.usage()
        whole = self._whole
        busy = []
        for key, placed in self._held.items():
            duration = self._duration[key]
            ends_at = None if duration is None else self._since[key] + duration
            busy.append(Busy(Demand(len(placed), sum(c for _, c, _ in placed), sum(g for *_, g in placed)), ends_at))
        waiting = [
            Waiting(self._demand[key], self._duration[key], -priority)
            for priority, _, key in sorted(self._waiting, key=lambda item: item[:2])
            if key in self._demand and key not in self._held
        ]
        return Outlook(
            total=Demand(len(whole), sum(n.cores for n in whole), sum(n.gpus for n in whole)),
            free=Demand(usage.nodes_free or 0, usage.cores_free or 0, usage.gpus_free or 0),
            busy=tuple(busy),
            waiting=tuple(waiting),
        )

    def _take(self, key: Hashable, placed: list[tuple[int, int, int]]) -> None:
        self._held[key] = placed
        self._since[key] = self._clock()
        for index, cores, gpus in placed:
            self._free[index].cores -= cores
            self._free[index].gpus -= gpus

    def _place(self, demand: Demand, nodes: list[_Node]) -> list[tuple[int, int, int]] | None:
        """(node, cores, gpus) taken of each node, None when they do not fit."""
        if demand.nodes:
            each_c, each_g = -(-demand.cores // demand.nodes), -(-demand.gpus // demand.nodes)
            fit = (i for i, n in enumerate(nodes) if n.cores >= max(1, each_c) and n.gpus >= each_g)
            chosen = list(itertools.islice(fit, demand.nodes))
            # A node asked for by itself, without its cores, is had as a whole.
            return [(i, each_c or nodes[i].cores, each_g) for i in chosen] if len(chosen) == demand.nodes else None
        cores, gpus = max(1, demand.cores) if not demand.gpus else demand.cores, demand.gpus
        placed: list[tuple[int, int, int]] = []
        for index, node in enumerate(nodes):
            c, g = min(cores, node.cores), min(gpus, node.gpus)
            if c or g:
                placed.append((index, c, g))
                cores, gpus = cores - c, gpus - g
            if not cores and not gpus:
                return placed
        return None
