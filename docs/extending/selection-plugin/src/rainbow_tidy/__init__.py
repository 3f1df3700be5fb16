"""`tidy`: the smallest cluster that has room for the job now, so that large ones stay free for large jobs.

Option `spare` is the number of cores that must stay free there (0 if left out).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from rainbow.errors import InvalidInput
from rainbow_workers.selection.base import Choice, Fleet, JobView


class Tidy:
    def __init__(self, options: Mapping[str, Any]) -> None:
        unknown = sorted(options.keys() - {"spare"})
        if unknown:
            raise InvalidInput(f"selection tidy has no option {unknown[0]!r}: it takes spare")
        self._spare = int(options.get("spare", 0))

    def choose(self, candidates: Sequence[str], fleet: Fleet, job: JobView, rng: random.Random) -> Choice:
        dropped: dict[str, str] = {}
        best: tuple[int, str] | None = None
        for name in candidates:
            load = fleet.load(name)
            left = load.free.cores - job.demand.cores
            if load.free.nodes < job.demand.nodes or left < self._spare:
                dropped[name] = f"no room now: {load.free.nodes} nodes and {load.free.cores} cores are free"
            elif best is None or (load.total.cores, name) < best:
                best = (load.total.cores, name)
        if best is None:
            return Choice(None, dropped=dropped)
        return Choice(best[1], {"cores": best[0]}, dropped)
