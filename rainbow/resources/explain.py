"""Why a cluster does not match: the first unmet need, with its place in the request and numbers.

Codes are stable: ``too-few-<type>s`` (too-few-nodes, too-few-cores, ...), ``missing-type``, ``slot-does-not-fit``,
``constraint``, ``missing-subsystem``, ``requirement``, ``competing`` (each need fits, not all at once), ``budget``
(could not be shown in the time given), ``fluxion-walk`` (possible, but Fluxion would refuse it).
"""

from __future__ import annotations

from rainbow.jobspec.request import Requirement
from rainbow.resources import constraints
from rainbow.resources.bundles import Clock
from rainbow.resources.engine import Engine
from rainbow.resources.matcher import Matcher, MatcherName, Unmet
from rainbow.resources.plan import Need
from rainbow.resources.shape import Shape
from rainbow.resources.summary import Summary


def explain(asked: Matcher, summary: Summary, view: Shape | None, matcher: MatcherName) -> tuple[Unmet, ...]:
    """The first unmet need. Call it only where the request does not fit."""
    plan = asked.plan
    if view is None:
        return (_missing_subsystem(asked, summary),)
    if not plan.alternatives:
        return (Unmet("competing", "nothing that could be chosen from"),)
    above = summary.root.above
    if matcher == "fluxion" and asked.counts(view, above):
        detail = (
            "Fluxion refuses a count of 0"
            if plan.zero
            else "it would fit, but Fluxion's own walk does not find it (levels skipped below a matched vertex, "
            "a slot whose types hang at different levels, or siblings of one type)"
        )
        return (Unmet("fluxion-walk", detail, path_of(plan.alternatives[0])),)
    if view is not summary.root:
        found = _because_of_view(asked, summary, view)
        if found is not None:
            return (found,)
    for needs in plan.alternatives[:1]:
        engine = Engine(needs, above, Clock(asked.budget_s))
        found = _first_unmet(engine, needs, ((view, 1),), (), view)
        if found is not None:
            return (found,)
    if view in asked.cut:
        detail = f"competing needs could not be placed within {asked.budget_s * 1000:g} ms"
        return (Unmet("budget", detail, path_of(plan.alternatives[0])),)
    return (Unmet("competing", "each need fits by itself, but not all at once", path_of(plan.alternatives[0])),)


def path_of(needs: tuple[Need, ...], prefix: tuple[str, ...] = ()) -> str:
    """``node[4] > slot[2] > core[48], gpu[4]``: single children as a path, siblings separated by commas."""
    parts = list(prefix)
    row = needs
    while len(row) == 1:
        parts.append(_label(row[0]))
        row = row[0].kids
    if row:
        parts.append(", ".join(_inline(need) for need in row))
    return " > ".join(parts)


def _label(need: Need) -> str:
    return "slot" if need.is_slot and need.count == 1 else f"{need.type}[{need.count}]"


def _inline(need: Need) -> str:
    if not need.kids:
        return _label(need)
    return f"{_label(need)}({', '.join(map(_inline, need.kids))})"


def _missing_subsystem(asked: Matcher, summary: Summary) -> Unmet:
    for _, requires in asked.plan.wishes:
        for requirement in requires:
            if requirement.subsystem not in summary.subsystem:
                return Unmet(
                    "missing-subsystem",
                    f"no subsystem {requirement.subsystem} is registered",
                    _wish_text(requirement),
                )
    raise AssertionError("every subsystem is there")


def _wish_text(requirement: Requirement) -> str:
    how = " ".join(f"{name} {value}" for name, value in requirement.arguments)
    return f"requires {requirement.subsystem}.{requirement.field} {how}".rstrip()


def _because_of_view(asked: Matcher, summary: Summary, view: Shape) -> Unmet | None:
    """Whether the constraint or a requirement alone leaves too little."""
    plan = asked.plan
    total = summary.identity.count
    if plan.constraint is not None:
        kept = constraints.kept(plan.constraint, summary.identity)
        without = Matcher(_unconstrained(asked), budget_s=asked.budget_s, algorithms=asked._algorithms)
        free = without.view(summary)
        if not kept or (free is not None and without.fits(free, summary.root.above)):
            return Unmet(
                "constraint",
                f"{len(kept)} of {total} nodes satisfy {constraints.text(plan.constraint)}",
                path_of(plan.alternatives[0]),
            )
    for kind, requires in plan.wishes:
        there = summary.root.counts.get(kind, 0)
        for requirement in requires:
            who = asked.holders(summary, (requirement,))
            if who is not None and not who:
                return Unmet("requirement", f"none of {there} {kind} vertices has it", _wish_text(requirement))
    return None


def _unconstrained(asked: Matcher):  # type: ignore[no-untyped-def]
    from dataclasses import replace

    return replace(asked.plan.request, constraint=None)


def _code(kind: str) -> str:
    return f"too-few-{kind}s"


def _first_unmet(
    engine: Engine,
    needs: tuple[Need, ...],
    forest: tuple[tuple[Shape, int], ...],
    path: tuple[str, ...],
    root: Shape,
) -> Unmet | None:
    """The first of the siblings that does not fit by itself; None when each one does."""
    for need in needs:
        here = " > ".join((*path, path_of((need,))))
        missing = _missing_type(need, root)
        if missing is not None:
            return Unmet("missing-type", f"there is no {missing} in this cluster", here)
        alone = Engine((need,), engine.above, Clock(0.05))
        if not path:
            fits = alone.fits(root)
        else:
            fits = True
        if fits:
            continue
        return _too_few(engine, need, root, here)
    return None


def _missing_type(need: Need, root: Shape) -> str | None:
    if not need.is_slot and need.type not in root.counts:
        return need.type
    for kid in need.kids:
        missing = _missing_type(kid, root)
        if missing is not None:
            return missing
    return None


def _too_few(engine: Engine, need: Need, root: Shape, here: str) -> Unmet:
    one = Need(need.type, 1, need.kids, need.bit, need.maximum)
    if not need.kids:
        have = root.totals.get(need.type, 0)
        if need.bit >= 0:
            sizes = engine.sizes_in(engine.resolve((need,), True).leaves[0], root)
            have = sum(size * count for size, count in sizes.items())
        return Unmet(_code(need.type), f"needs {need.count} {need.type}, has {have}", here)
    alone = Engine((one,), engine.above, Clock(0.05))
    have = alone.copies(root)
    if need.is_slot:
        if have:
            return Unmet("too-few-slots", f"needs {need.count} slots with that, has {have}", here)
        return Unmet("slot-does-not-fit", "a slot has to fit into one node, and fits into none", here)
    there = root.counts.get(need.type, 0)
    if there < need.count:
        return Unmet(_code(need.type), f"needs {need.count} {need.type}, has {there}", here)
    return Unmet(_code(need.type), f"needs {need.count} {need.type}s with that, has {have}", here)
