"""The contract of a selection plugin: which of the clusters that match gets the job.

Plugins are pure: they look at numbers and return a choice with its terms. All run on *free now minus what was
assigned since the last report*, so that a burst spreads before the next report comes.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rainbow.jobspec.request import Demand


@dataclass(frozen=True, slots=True)
class Load:
    """A cluster's totals, what is free now minus reservations (may be below 0), and how many jobs wait there."""

    total: Demand
    free: Demand
    pending: int = 0


@dataclass(frozen=True, slots=True)
class JobView:
    """What a plugin may know of the job. `parameters` is the jobspec's ``attributes.parameter``."""

    id: str
    user: str
    name: str | None
    priority: int
    demand: Demand
    duration: float | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)


class Fleet(Protocol):
    """What a plugin may ask about the clusters it is to choose from."""

    def load(self, cluster: str) -> Load:
        """Numbers of now. Cheap: asked for as many clusters as needed, not for all of them."""

    def values(self, cluster: str) -> Mapping[str, Any]:
        """The state as reported and as the admin added to it (``cost_per_node_hour``)."""


@dataclass(frozen=True, slots=True)
class Choice:
    """`cluster` is None when the plugin drops them all; `terms` are the winner's numbers, for `rainbow explain`;
    `dropped` says why for clusters the plugin ruled out."""

    cluster: str | None
    terms: Mapping[str, Any] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)


class Selection(Protocol):
    def choose(self, candidates: Sequence[str], fleet: Fleet, job: JobView, rng: random.Random) -> Choice:
        """One of `candidates` (never empty, in a stable order; it may be long: do not copy it without need)."""
