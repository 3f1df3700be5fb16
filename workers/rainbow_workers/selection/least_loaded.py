"""`least-loaded`: the better of two clusters drawn at random (power of two choices).

Two are enough: the most loaded of n clusters then has O(log log n) jobs more than the mean (Mitzenmacher 2001),
and nothing is sorted, so the cost does not grow with the number of clusters.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from rainbow_workers.selection.base import Choice, Fleet, JobView, Load, no_options

#: How many more to look at when neither of the two has room now.
_MORE = 8


def headroom(load: Load, job: JobView) -> float:
    """The share of its scarcest asked-for resource that is left after the job; below 0 it must wait there.

    Jobs that wait already count against a cluster, each like one more job of this size.
    """
    demand = job.demand
    return _headroom(load, demand.nodes, demand.cores, demand.gpus)


def _headroom(load: Load, nodes: int, cores: int, gpus: int) -> float:
    # Without `min`, and each attribute read once: this runs up to ten times for each job.
    free, total = load.free, load.total
    waiting = 1 + load.pending
    room = 1.0
    if nodes and (there := total.nodes):
        room = (free.nodes - nodes * waiting) / there
    if cores and (there := total.cores) and (left := (free.cores - cores * waiting) / there) < room:
        room = left
    if gpus and (there := total.gpus) and (left := (free.gpus - gpus * waiting) / there) < room:
        room = left
    return room


class LeastLoaded:
    """The better of two clusters drawn at random, by the share of what is left there."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        no_options("least-loaded", options)

    def choose(self, candidates: Sequence[str], fleet: Fleet, job: JobView, rng: random.Random) -> Choice:
        size, load, demand = len(candidates), fleet.load, job.demand
        nodes, cores, gpus = demand.nodes, demand.cores, demand.gpus
        first = best = int(rng.random() * size)
        best_room = _headroom(load(candidates[first]), nodes, cores, gpus)
        if size == 1:
            return _choice(candidates[first], best_room, 1)
        second = int(rng.random() * (size - 1))
        if second >= first:
            second += 1
        room = _headroom(load(candidates[second]), nodes, cores, gpus)
        if room > best_room:
            best, best_room = second, room
        looked_at = 2
        if best_room < 0:
            # On from the second: as good as drawn at random, and none comes twice.
            for at in range(second + 1, second + size):
                at %= size
                if at == first:
                    continue
                room = _headroom(load(candidates[at]), nodes, cores, gpus)
                looked_at += 1
                if room > best_room:
                    best, best_room = at, room
                if room >= 0 or looked_at == 2 + _MORE:
                    break
        return _choice(candidates[best], best_room, looked_at)


def _choice(cluster: str, room: float, compared: int) -> Choice:
    return Choice(cluster, {"headroom": round(room, 4), "compared": compared})
