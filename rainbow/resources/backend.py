"""What a graph backend is: it holds the graphs of clusters and answers whether a request can ever run there.

Entry points `rainbow.graphs`. `folded` (the default) is fast; `vertex` is a plain search over single vertices that
the property tests compare it with. A backend around another matcher, such as Fluxion, plugs in by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from rainbow.jobspec.request import Request
from rainbow.resources.answer import Answer
from rainbow.resources.document import Source


class GraphBackend(Protocol):
    """Five methods; a class without arguments. Used by one thread."""

    def register(self, cluster: str, graph: Source, subsystems: Mapping[str, Source] | None = None) -> None:
        """Take a cluster's graph (JGF or R) and its subsystems, in place of what was there.

        Raises:
            InvalidGraph: it cannot be read.
        """
        ...

    def remove(self, cluster: str) -> None:
        """Forget a cluster. Unknown names are ignored."""
        ...

    def clusters(self) -> Iterable[str]:
        """The names registered."""
        ...

    def match(self, cluster: str, request: Request) -> Answer:
        """Whether the request can ever run on the empty cluster. Raises KeyError for an unknown cluster."""
        ...

    def candidates(self, request: Request) -> Iterable[str]:
        """The clusters on which it can."""
        ...
