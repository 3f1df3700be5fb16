"""What a graph backend is: it holds the graphs of clusters and answers which of them can ever run a request.

Entry points `rainbow.graphs`; the setting `graphdatabase.name` chooses. `folded` (the default) is
`rainbow.resources.matching.index.ClusterIndex`; `vertex` is a plain search over single vertices. A backend around
another matcher, such as Fluxion's library, plugs in by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rainbow.jobspec.request import Request
from rainbow.resources.matching.answer import Unmet
from rainbow.resources.matching.matcher import MatcherName
from rainbow.resources.readers.summary import Summary


class GraphMatches(Protocol):
    """The answer to one request. Valid until the backend changes."""

    @property
    def candidates(self) -> Sequence[str]:
        """The clusters that can run it when empty, in a stable order."""

    def unmet(self, name: str) -> tuple[Unmet, ...]:
        """Why a cluster cannot run it; empty when it can. Raises KeyError for an unknown cluster."""

    def slots(self, name: str) -> int:
        """How many of it a cluster takes at once when empty; 0 when it cannot run it."""


class GraphBackend(Protocol):
    """Three methods; a class without arguments. Used by one thread at a time."""

    def update(self, name: str, summary: Summary, matcher: MatcherName = "count") -> None:
        """Add a cluster, or replace its graph. `fluxion`: Fluxion's own walk must find a placement too."""

    def remove(self, name: str) -> None:
        """Remove a cluster. Unknown names are ignored."""

    def query(self, request: Request) -> GraphMatches:
        """Which clusters can run `request`.

        Raises:
            UnknownPlugin: A requirement names a match algorithm that is not installed.
            InvalidInput: A hostlist or idset of the constraint is malformed.
        """
