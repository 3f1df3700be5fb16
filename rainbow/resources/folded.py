"""The default graph backend: folded summaries in a cluster index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rainbow.jobspec.request import Request
from rainbow.resources.answer import Answer
from rainbow.resources.document import Source
from rainbow.resources.index import ClusterIndex
from rainbow.resources.matcher import BUDGET_S, MatcherName
from rainbow.resources.reader import read_graph


class FoldedBackend:
    """See `GraphBackend`. `index` may be shared with who wants more of it."""

    def __init__(self, matcher: MatcherName = "count", budget_s: float = BUDGET_S) -> None:
        self.index = ClusterIndex(budget_s=budget_s)
        self._matcher: MatcherName = matcher

    def register(self, cluster: str, graph: Source, subsystems: Mapping[str, Source] | None = None) -> None:
        self.index.update(cluster, read_graph(graph, subsystems=subsystems or {}), self._matcher)

    def remove(self, cluster: str) -> None:
        self.index.remove(cluster)

    def clusters(self) -> Iterable[str]:
        return self.index.names()

    def match(self, cluster: str, request: Request) -> Answer:
        matches = self.index.query(request)
        slots = matches.slots(cluster)
        return Answer(True, slots) if slots else Answer(False, 0, matches.unmet(cluster))

    def candidates(self, request: Request) -> Iterable[str]:
        return self.index.query(request).candidates
