"""Selections that rank: fill the fullest cluster, take the cheapest, keep to an order."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rainbow.errors import InvalidInput
from rainbow_workers.selection.base import Choice, Fleet, JobView, no_options
from rainbow_workers.selection.least_loaded import headroom

#: Of more candidates than this a sample is ranked, so that the cost of a choice has a bound.
MOST = 1000


def some(candidates: Sequence[str], rng: random.Random) -> Iterable[str]:
    """All of few candidates, a sample of many."""
    if len(candidates) <= MOST:
        return candidates
    return (candidates[at] for at in rng.sample(range(len(candidates)), MOST))


class Pack:
    """The fullest cluster that has room now, so that others stay empty for large jobs; else the one with most room."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        no_options("pack", options)

    def choose(self, candidates: Sequence[str], fleet: Fleet, job: JobView, rng: random.Random) -> Choice:
        rooms = [(headroom(fleet.load(name), job), name) for name in some(candidates, rng)]
        fits = [pair for pair in rooms if pair[0] >= 0]
        room, name = min(fits) if fits else max(rooms)
        return Choice(name, {"headroom": round(room, 4), "compared": len(rooms)})


class Cheapest:
    """The lowest cost of the job's nodes, by the clusters' `cost_per_node_hour`; among equals the one with most room.

    Option `cost` names another value. A cluster without it is dropped.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        no_options("cheapest", options, "cost")
        self._cost = str(options.get("cost", "cost_per_node_hour"))

    def choose(self, candidates: Sequence[str], fleet: Fleet, job: JobView, rng: random.Random) -> Choice:
        ranked = []
        dropped = {}
        for name in some(candidates, rng):
            cost = fleet.values(name).get(self._cost)
            if isinstance(cost, bool) or not isinstance(cost, int | float):
                dropped[name] = f"{self._cost} is not known"
            else:
                ranked.append((float(cost), -headroom(fleet.load(name), job), name))
        if not ranked:
            return Choice(None, {}, dropped)
        cost, room, name = min(ranked)
        nodes = max(1, job.demand.nodes)
        return Choice(name, {"cost_per_hour": cost * nodes, "headroom": round(-room, 4)}, dropped)


class SpillOver:
    """The first cluster of `order` that has room now, then the next: ordered spill-over.

    Clusters that are not in `order` come after it, by name. When none has room, the one with most room is taken.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        no_options("spill-over", options, "order")
        order = options.get("order", [])
        if not isinstance(order, list) or not all(isinstance(n, str) for n in order):
            raise InvalidInput("selection spill-over: order must be a list of cluster names")
        self._rank = {name: rank for rank, name in enumerate(order)}

    def choose(self, candidates: Sequence[str], fleet: Fleet, job: JobView, rng: random.Random) -> Choice:
        last = len(self._rank)
        best, best_room = candidates[0], float("-inf")
        for name in sorted(some(candidates, rng), key=lambda n: (self._rank.get(n, last), n)):
            room = headroom(fleet.load(name), job)
            if room >= 0:
                return Choice(name, {"headroom": round(room, 4), "rank": self._rank.get(name, last) + 1})
            if room > best_room:
                best, best_room = name, room
        return Choice(best, {"headroom": round(best_room, 4), "rank": self._rank.get(best, last) + 1})


class Weighted:
    """A random one, in proportion to `weights` (``{cluster: number}``; 1 for the others, 0 for never)."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        no_options("weighted", options, "weights")
        weights = options.get("weights", {})
        if not isinstance(weights, dict) or not all(_is_weight(w) for w in weights.values()):
            raise InvalidInput("selection weighted: weights must be {cluster: number of 0 or more}")
        self._weights = {str(k): float(v) for k, v in weights.items()}

    def choose(self, candidates: Sequence[str], fleet: Fleet, job: JobView, rng: random.Random) -> Choice:
        names = list(some(candidates, rng))
        weights = [self._weights.get(name, 1.0) for name in names]
        if not sum(weights):
            return Choice(None, {}, dict.fromkeys(names, "its weight is 0"))
        [name] = rng.choices(names, weights)
        return Choice(name, {"weight": self._weights.get(name, 1.0)})


def _is_weight(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")
