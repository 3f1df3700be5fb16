"""Why a cluster does not match: the first unmet need, with its place in the request and numbers.

Codes are stable: ``too-few-nodes``, ``too-few-cores``, ``too-few-memory`` and so on for each type,
``too-few-slots``, ``missing-type``, ``slot-does-not-fit``, ``constraint``, ``missing-subsystem``, ``requirement``,
``compatibility`` (no node, or too few, have what the image needs), ``competing`` (each need fits, not all at once),
``budget`` (could not be shown in the time given), ``fluxion-walk`` (it would fit, but Fluxion would refuse it).
"""

from __future__ import annotations

from dataclasses import replace

from rainbow.jobspec.request import Requirement
from rainbow.resources.graph.bundles import Clock
from rainbow.resources.graph.shape import Shape, shapes_below
from rainbow.resources.matching import constraints, host_needs
from rainbow.resources.matching.answer import Unmet
from rainbow.resources.matching.engine import Engine
from rainbow.resources.matching.matcher import Matcher, MatcherName
from rainbow.resources.matching.plan import Need
from rainbow.resources.readers.summary import Summary

_PATIENCE_S = 0.02
"""Seconds for each of the smaller questions that find out what is missing."""


def explain(asked: Matcher, summary: Summary, view: Shape | None, matcher: MatcherName) -> tuple[Unmet, ...]:
    """The first unmet need. Call it only where the request does not fit. `view`: as `Matcher.view` gave it."""
    if view is None:
        return (_missing_subsystem(asked, summary),)
    plan = asked.plan
    above = summary.root.above
    whole = path_of(plan.alternatives[0]) if plan.alternatives else ""
    if matcher == "fluxion" and asked.counts(view, above):
        return (Unmet("fluxion-walk", _walk_text(plan.zero), whole),)
    if not plan.by_shape_alone:
        found = _because_of_view(asked, summary, view)
        if found is not None:
            return (found,)
    for needs in plan.alternatives[:1]:
        found = _Finder(above, view).first(needs, ())
        if found is not None:
            return (found,)
    if view in asked.cut:
        detail = f"competing needs, for which no placement was found within {asked.budget_s * 1000:g} ms"
        return (Unmet("budget", detail, whole),)
    return (Unmet("competing", "each need fits by itself, but not all at once", whole),)


def path_of(needs: tuple[Need, ...]) -> str:
    """``node[4] > slot[2] > core[48], gpu[4]``: single children as a path, siblings separated by commas."""
    parts: list[str] = []
    row = needs
    while len(row) == 1:
        parts.append(_label(row[0]))
        row = row[0].kids
    if row:
        parts.append(", ".join(map(_inline, row)))
    return " > ".join(parts)


def _label(need: Need) -> str:
    return "slot" if need.is_slot and need.count == 1 else f"{need.type}[{need.count}]"


def _inline(need: Need) -> str:
    if not need.kids:
        return _label(need)
    return f"{_label(need)}({', '.join(map(_inline, need.kids))})"


_AMOUNTS = frozenset({"memory", "storage", "power", "bandwidth"})


def _plural(kind: str, count: int = 2) -> str:
    return kind if count == 1 or kind.endswith("s") or kind in _AMOUNTS else f"{kind}s"


def _walk_text(zero: bool) -> str:
    if zero:
        return "Fluxion refuses a count of 0"
    return (
        "it would fit, but Fluxion's own walk does not find it (levels skipped below a matched vertex, a slot "
        "whose types hang at different levels, or siblings of one type)"
    )


# -- before counting -----------------------------------------------------------------------------


def _wish_text(requirement: Requirement) -> str:
    parts = (requirement, *requirement.also)
    texts = [" ".join((p.field, *(f"{name} {value}" for name, value in p.arguments))) for p in parts]
    return f"requires {requirement.subsystem}.{' and '.join(texts)}"


def _missing_subsystem(asked: Matcher, summary: Summary) -> Unmet:
    missing = next(
        requirement
        for _, requires in asked.plan.wishes
        for requirement in requires
        if requirement.subsystem not in summary.subsystem
    )
    return Unmet("missing-subsystem", f"no subsystem {missing.subsystem} is registered", _wish_text(missing))


def _because_of_view(asked: Matcher, summary: Summary, view: Shape) -> Unmet | None:
    """Whether a requirement leaves nothing, or the constraint alone leaves too little."""
    plan = asked.plan
    for kind, requires in plan.wishes:
        there = summary.root.counts.get(kind, 0)
        for requirement in requires:
            if there and not asked.holders(summary, (requirement,)):
                return Unmet("requirement", f"none of {there} {_plural(kind, there)} has that", _wish_text(requirement))
    if plan.host:
        found = _because_of_image(asked, summary)
        if found is not None:
            return found
    if plan.constraint is None:
        return None
    kept = constraints.kept(plan.constraint, summary.identity)
    freely = Matcher(replace(plan.request, constraint=None), budget_s=asked.budget_s, algorithms=asked.algorithms)
    free = freely.view(summary)
    if kept and (free is None or not freely.fits(free, summary.root.above)):
        return None
    total = summary.identity.count
    text = f"{len(kept)} of {total} {_plural('node', total)} satisfy {constraints.text(plan.constraint)}"
    return Unmet("constraint", text, path_of(plan.alternatives[0]))


def _because_of_image(asked: Matcher, summary: Summary) -> Unmet | None:
    """Whether no node has what the image needs, or too few have."""
    plan = asked.plan
    found = host_needs.first_unmet(summary, plan.host)
    if found is not None:
        return found
    freely = Matcher(replace(plan.request, host=()), budget_s=asked.budget_s, algorithms=asked.algorithms)
    free = freely.view(summary)
    if free is None or not freely.fits(free, summary.root.above):
        return None
    return host_needs.shortage(summary, plan.host)


# -- what is missing -----------------------------------------------------------------------------


class _Finder:
    """Asks smaller and smaller questions until one is answered no."""

    def __init__(self, above: frozenset[str], root: Shape) -> None:
        self.above, self.root = above, root

    def first(self, needs: tuple[Need, ...], path: tuple[str, ...]) -> Unmet | None:
        """The first of top-level siblings that does not fit by itself; None when each one does."""
        for need in needs:
            here = " > ".join((*path, path_of((need,))))
            missing = self._missing_type(need)
            if missing is not None:
                return Unmet("missing-type", f"there is no {missing} in this cluster", here)
            if not self._engine(need).fits(self.root):
                return self._short(need, here)
        return None

    def _engine(self, need: Need) -> Engine:
        return Engine((need,), self.above, Clock(_PATIENCE_S))

    def _missing_type(self, need: Need) -> str | None:
        if not need.is_slot and need.type not in self.root.counts:
            return need.type
        return next((found for kid in need.kids if (found := self._missing_type(kid)) is not None), None)

    def _short(self, need: Need, here: str) -> Unmet:
        kind, wanted = need.type, need.count
        if not need.kids:
            engine = self._engine(need)
            sizes = engine.sizes_in(engine.top.leaves[0], self.root)
            return self._too_few(need, here, sum(size * count for size, count in sizes.items()), "")
        have = self._engine(_one(need)).copies(self.root)
        if have:
            there = self.root.counts.get(kind, wanted)
            with_that = " with that" if there >= wanted else ""
            short = self._too_few(need, here, have, with_that)
            return replace(short, detail=short.detail + self._undivided(need)) if need.is_slot else short
        if need.is_slot:
            if self.above.isdisjoint(need.names):
                return self._in_no_place(need, self._targets(), "slot-does-not-fit", here)
            return self.first(need.kids, ()) or Unmet("slot-does-not-fit", "not even one such slot fits", here)
        places = [shape for shape in shapes_below(self.root) if shape.type == kind]
        if need.bit >= 0:
            places = [shape for shape in places if shape.mark >> need.bit & 1]
            if not places:
                return Unmet("requirement", f"no {kind} meets all that is required of it", here)
        return self._in_no_place(need, places, None, here)

    def _undivided(self, slot: Need) -> str:
        """Name a vertex that stands for several: all of it goes to one slot, however little that asks for."""
        kinds = self.root.pooled.intersection(kid.type for kid in slot.kids)
        large = next((shape for shape in shapes_below(self.root) if shape.type in kinds and shape.size > 1), None)
        return f": one {large.type} vertex of size {large.size} goes to one slot as a whole" if large else ""

    def _too_few(self, need: Need, here: str, have: int, with_that: str) -> Unmet:
        names = _plural(need.type, need.count)
        return Unmet(f"too-few-{_plural(need.type)}", f"needs {need.count} {names}{with_that}, has {have}", here)

    def _targets(self) -> list[Shape]:
        return [shape for shape in shapes_below(self.root) if shape.is_target]

    def _in_no_place(self, need: Need, places: list[Shape], code: str | None, here: str) -> Unmet:
        """Nothing in `places` holds the kids of `need`: name the first kid that is too much for each of them."""
        place = "node" if need.is_slot else need.type
        for kid in need.kids:
            leaves = [kid] if not kid.is_slot else list(kid.kids)
            for leaf in leaves:
                if leaf.kids or leaf.is_slot:
                    continue
                wanted = leaf.count * (kid.count if kid.is_slot else 1)
                most = max((shape.totals.get(leaf.type, 0) for shape in places), default=0)
                if most < wanted:
                    text = f"needs {wanted} {_plural(leaf.type, wanted)} in one {place}, the most is {most}"
                    return Unmet(code or f"too-few-{_plural(leaf.type)}", text, here)
        if need.is_slot:
            return Unmet("slot-does-not-fit", "a slot must fit into one node, and fits into none", here)
        text = f"needs {need.count} {_plural(need.type, need.count)} with that, has 0"
        return Unmet(f"too-few-{_plural(need.type)}", text, here)


def _one(need: Need) -> Need:
    """One of what is needed."""
    return Need(need.type, 1, need.kids, need.bit, need.maximum)
