"""The contract of a selection plugin: which of the clusters that match gets the job.

Plugins are pure: they look at numbers and return a choice with its terms. All run on *free now minus what was
assigned since the last report*, so that a burst spreads before the next report comes.

What they are given is not to be changed. (It is not frozen: making it would take several times as long, for each job.)
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from rainbow.errors import InvalidInput
from rainbow.jobspec.request import Demand, HostNeed
from rainbow.models.requests import Bid
from rainbow.resources import Summary


@dataclass(slots=True)
class Load:
    """A cluster's totals, what is free now minus reservations (may be below 0), and how many jobs wait there."""

    total: Demand
    free: Demand
    pending: int = 0


@dataclass(frozen=True, slots=True)
class Offer:
    """What a cluster that was asked said, at the time `at` (seconds since 1970). No `bid`: `why` there is none."""

    at: float
    bid: Bid | None = None
    why: str = ""


@dataclass(slots=True)
class JobView:
    """What a plugin may know of the job.

    `parameters` is the jobspec's ``attributes.parameter``; `offers` is what the clusters said that were asked for a
    bid, where a selection asks. `preferences` are what its image would rather have of a cluster, with weights.
    """

    id: str
    user: str
    name: str | None
    priority: int
    demand: Demand
    duration: float | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    offers: Mapping[str, Offer] = field(default_factory=dict)
    preferences: tuple[tuple[HostNeed, float], ...] = ()


class Fleet(Protocol):
    """What a plugin may ask about the clusters it is to choose from."""

    def load(self, cluster: str) -> Load:
        """Numbers of now. Cheap: asked for as many clusters as needed, not for all of them."""

    def values(self, cluster: str) -> Mapping[str, Any]:
        """The state as reported and as the admin added to it (``cost_per_node_hour``)."""

    def summary(self, cluster: str) -> Summary:
        """Its graph, subsystems and node properties."""


@dataclass(slots=True)
class Choice:
    """`cluster` is None when the plugin drops them all.

    `terms` are the winner's numbers, for `rainbow explain`; `dropped` says why for clusters the plugin ruled out.
    """

    cluster: str | None
    terms: Mapping[str, Any] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)


class Selection(Protocol):
    """A selection plugin: ranks clusters by what the job and the loads say (level 1)."""

    def choose(self, candidates: Sequence[str], fleet: Fleet, job: JobView, rng: random.Random) -> Choice:
        """One of `candidates` (never empty, in a stable order; it may be long: do not copy it without need)."""


@runtime_checkable
class Asking(Selection, Protocol):
    """A selection that wants to hear the clusters first (level 2). It chooses among those with an offer."""

    @property
    def within(self) -> float:
        """Seconds that those asked have to answer."""

    @property
    def rounds(self) -> int:
        """How many times clusters are asked, until one says yes."""

    def shortlist(self, candidates: Sequence[str], fleet: Fleet, job: JobView, rng: random.Random) -> list[str]:
        """Whom to ask next; none to choose from what there is."""


def no_options(plugin: str, options: Mapping[str, Any], *known: str) -> None:
    """Raise InvalidInput for an option that is not among `known`."""
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise InvalidInput(
            f"selection {plugin} has no option {unknown[0]!r}" + (f": it takes {', '.join(known)}" if known else "")
        )
