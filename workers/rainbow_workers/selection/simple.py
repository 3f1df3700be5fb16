"""Selections that look at nothing but the list."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from rainbow_workers.selection.base import Choice, Fleet, JobView, no_options


class Random:
    """Any of them, evenly."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        no_options("random", options)

    def choose(self, candidates: Sequence[str], fleet: Fleet, job: JobView, rng: random.Random) -> Choice:
        return Choice(candidates[int(rng.random() * len(candidates))])


class First:
    """The first in the order of names: fill one cluster before the next."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        no_options("first", options)

    def choose(self, candidates: Sequence[str], fleet: Fleet, job: JobView, rng: random.Random) -> Choice:
        return Choice(min(candidates))


class RoundRobin:
    """One after the other, for each set of candidates by itself."""

    _MAX_RINGS = 1024

    def __init__(self, options: Mapping[str, Any]) -> None:
        no_options("round-robin", options)
        self._next: dict[tuple[int, str, str], int] = {}

    def choose(self, candidates: Sequence[str], fleet: Fleet, job: JobView, rng: random.Random) -> Choice:
        # A ring is known by its length and ends: exact enough, and no long list is hashed for each job.
        ring = (len(candidates), candidates[0], candidates[-1])
        turn = self._next.get(ring, 0)
        if len(self._next) >= self._MAX_RINGS:
            self._next.clear()
        self._next[ring] = turn + 1
        return Choice(candidates[turn % len(candidates)])
