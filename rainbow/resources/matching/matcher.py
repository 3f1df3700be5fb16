"""One request against summaries: plan it once, view each graph as the request sees it, count, walk.

`Matcher` holds everything that is remembered between clusters for one request.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from rainbow.jobspec.request import Constraint, Request, Requirement
from rainbow.plugins import load
from rainbow.resources.graph.bundles import Clock
from rainbow.resources.graph.shape import Shape
from rainbow.resources.matching import constraints, host_needs
from rainbow.resources.matching.engine import Engine
from rainbow.resources.matching.plan import Plan, make_plan
from rainbow.resources.matching.view import View
from rainbow.resources.matching.walk import Walk
from rainbow.resources.readers.subsystem import NONE_HOLD, Holders
from rainbow.resources.readers.summary import Summary
from rainbow.resources.requirements import MatchAlgorithm

MatcherName = Literal["count", "fluxion"]
Algorithms = Mapping[str, MatchAlgorithm]

MAX_VIEWS = 64
"""Constraints whose views are kept, for each summary."""

BUDGET_S = 0.002
"""Seconds that competing siblings may take on one cluster before the answer is "no" without proof."""


@lru_cache(maxsize=64)
def installed(name: str) -> MatchAlgorithm:
    """The match algorithm `name` (entry points `rainbow.match`). Raises UnknownPlugin."""
    made: MatchAlgorithm = load("rainbow.match", name)()
    return made


class Matcher:
    """Answers one request for many clusters, remembering by shape."""

    def __init__(self, request: Request, *, budget_s: float = BUDGET_S, algorithms: Algorithms | None = None) -> None:
        self.plan: Plan = make_plan(request)
        self.budget_s = budget_s
        self.algorithms = algorithms
        self._engines: dict[frozenset[str], list[Engine]] = {}
        self._walks: list[Walk] | None = None
        self._fits: dict[tuple[Shape, frozenset[str], MatcherName], bool] = {}
        self.cut: set[Shape] = set()
        """Views on which the time ran out, so that the answer was "no" without proof."""

    # -- the view --------------------------------------------------------------------------------

    def view(self, summary: Summary) -> Shape | None:
        """The root as this request sees it; None when a requirement names a subsystem that is not there."""
        plan = self.plan
        if plan.by_shape_alone:
            return summary.root
        if not plan.wishes and not plan.host:
            assert plan.constraint is not None
            return self._constrained(summary, plan.constraint)
        kept = None
        if plan.constraint is not None:
            kept = constraints.kept(plan.constraint, summary.identity)
        if plan.host:
            met = host_needs.kept(summary, plan.host)
            kept = met if kept is None else kept & met
        if kept is not None and len(kept) == summary.identity.count:
            kept = None
        wishes = []
        for kind, requires in plan.wishes:
            who = self.holders(summary, requires)
            if who is None:
                return None
            wishes.append((kind, who))
        return View(kept, wishes).of(summary.root)

    @staticmethod
    def _constrained(summary: Summary, constraint: Constraint) -> Shape:
        """The view under a constraint alone. Many requests share theirs (a queue's property), so it is kept."""
        known = summary.views.get(constraint)
        if known is None:
            kept = constraints.kept(constraint, summary.identity)
            known = summary.root
            if len(kept) < summary.identity.count:
                known = View(kept, ()).of(summary.root)
            if len(summary.views) >= MAX_VIEWS:
                summary.views.clear()
            summary.views[constraint] = known
        return known

    def holders(self, summary: Summary, requires: tuple[Requirement, ...]) -> Holders | None:
        """Who meets all of `requires` by own links; None when one of the subsystems is not registered."""
        found: Holders | None = None
        for requirement in requires:
            subsystem = summary.subsystem.get(requirement.subsystem)
            if subsystem is None:
                return None
            parts = (requirement, *requirement.also)
            who = subsystem.holders(*((p.field, self._algorithm(p.algorithm), p.arguments) for p in parts))
            found = who if found is None else found & who
        return NONE_HOLD if found is None else found

    def _algorithm(self, name: str) -> MatchAlgorithm:
        given = self.algorithms.get(name) if self.algorithms is not None else None
        return given if given is not None else installed(name)

    # -- the answer ------------------------------------------------------------------------------

    def fits(self, view: Shape, above: frozenset[str], matcher: MatcherName = "count") -> bool:
        """Whether the request fits a view. `above` is that of the graph as registered."""
        key = (view, above, matcher)
        known = self._fits.get(key)
        if known is None:
            known = self._fits[key] = self._fit(view, above, matcher)
        return known

    def _fit(self, view: Shape, above: frozenset[str], matcher: MatcherName) -> bool:
        totals = view.totals
        for kind, amount in self.plan.least:
            if totals.get(kind, 0) < amount:
                return False
        if matcher == "fluxion" and not self.walks(view):
            return False
        return self.counts(view, above)

    def counts(self, view: Shape, above: frozenset[str]) -> bool:
        for engine in self.engines(above):
            engine.clock = Clock(self.budget_s)
            if engine.fits(view):
                return True
            if engine.clock.spent:
                self.cut.add(view)
        return False

    def walks(self, view: Shape) -> bool:
        if self.plan.zero:
            return False
        if self._walks is None:
            self._walks = [Walk(needs) for needs in self.plan.alternatives]
        return any(walk.agrees(view) for walk in self._walks)

    def copies(self, view: Shape, above: frozenset[str]) -> int:
        """How many of the request fit at once; call it only where it fits."""
        best = 1
        for engine in self.engines(above):
            engine.clock = Clock(self.budget_s)
            best = max(best, engine.copies(view))
        return best

    def engines(self, above: frozenset[str]) -> list[Engine]:
        known = self._engines.get(above)
        if known is None:
            clock = Clock(self.budget_s)
            known = [Engine(needs, above, clock) for needs in self.plan.alternatives]
            self._engines[above] = known
        return known
