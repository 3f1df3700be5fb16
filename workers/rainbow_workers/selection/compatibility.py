"""`compatibility`: the cluster that has most of what the job's image would rather have."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from rainbow.jobspec.request import HostNeed
from rainbow.resources import Summary
from rainbow.resources.matching.host_needs import score
from rainbow_workers.selection.base import Choice, Fleet, JobView, no_options
from rainbow_workers.selection.least_loaded import headroom
from rainbow_workers.selection.ranked import some

_Preferences = tuple[tuple[HostNeed, float], ...]


class Compatibility:
    """The cluster that meets most, by weight, of the preferences of the job's image; among equals the most room.

    What the image needs was looked at before: only clusters that have it come here. Clusters with room now come before
    those where the job would wait, whatever they meet.
    """

    _MAX = 10_000

    def __init__(self, options: Mapping[str, Any]) -> None:
        no_options("compatibility", options)
        self._known: OrderedDict[tuple[str, _Preferences], tuple[Summary, float]] = OrderedDict()

    def choose(self, candidates: Sequence[str], fleet: Fleet, job: JobView, rng: random.Random) -> Choice:
        ranked = []
        for name in some(candidates, rng):
            room = headroom(fleet.load(name), job)
            ranked.append((room >= 0, self._score(name, fleet, job.preferences), room, name))
        _, met, room, name = max(ranked)
        return Choice(name, {"compatibility": round(met, 4), "headroom": round(room, 4), "compared": len(ranked)})

    def _score(self, cluster: str, fleet: Fleet, preferences: _Preferences) -> float:
        """Worked out once for each graph of a cluster."""
        if not preferences:
            return 0.0
        summary, key = fleet.summary(cluster), (cluster, preferences)
        known = self._known.get(key)
        if known is None or known[0] is not summary:
            known = self._known[key] = summary, score(summary, preferences)
            if len(self._known) > self._MAX:
                self._known.popitem(last=False)
        return known[1]
