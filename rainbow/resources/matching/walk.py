"""Fluxion's own walk, as far as it refuses what counting allows (shared matching rules, section 2).

A cluster registered with ``matcher: fluxion`` gets a job only when this walk agrees as well: Fluxion would refuse
it otherwise. The walk goes down from the root; levels may be skipped only before the first matched vertex; a slot
settles at the first vertex with a direct child of every type in it. It is done once per shape.
"""

from __future__ import annotations

from rainbow.resources.graph.shape import Shape
from rainbow.resources.matching.plan import Need

Found = dict[str, list[tuple[int, int]]]
"""What a subtree offers its parent: by type, (amount of one vertex or slot, how many such)."""


class Walk:
    """One list of needs, walked on any number of graphs."""

    def __init__(self, needs: tuple[Need, ...]) -> None:
        self.needs = needs
        self._known: dict[tuple[Shape, tuple[Need, ...], bool], Found | None] = {}

    def agrees(self, root: Shape) -> bool:
        found = self._visit(root, self.needs, True)
        if found is None:
            return False
        return all(_amount(found, need.type) >= need.count for need in self.needs)

    def _visit(self, shape: Shape, needs: tuple[Need, ...], start: bool) -> Found | None:
        """What the subtree offers for `needs`; None when its top does not take part.

        `start`: nothing has been matched above, so that this vertex may be skipped.
        """
        key = (shape, needs, start)
        if key not in self._known:
            self._known[key] = self._visited(shape, needs, start)
        return self._known[key]

    def _visited(self, shape: Shape, needs: tuple[Need, ...], start: bool) -> Found | None:
        hits = [need for need in needs if need.type == shape.type]
        slots = [need for need in needs if need.is_slot]
        # Of several slots in one list only the last is looked at.
        settled = slots[-1] if slots and _settles(shape, slots[-1]) else None
        if len(hits) > 1 or (hits and settled is not None):
            return None
        if hits:
            return self._matched(shape, hits[0])
        if settled is not None:
            return {"slot": [(1, self._slots(shape, settled))]}
        return self._explored(shape, needs, True) if start else None

    def _matched(self, shape: Shape, need: Need) -> Found | None:
        if need.bit >= 0 and not shape.mark >> need.bit & 1:
            return None
        if need.kids:
            slots = [kid for kid in need.kids if kid.is_slot]
            if slots and _settles(shape, slots[-1]):
                found: Found = {"slot": [(1, self._slots(shape, slots[-1]))]}
            else:
                found = self._explored(shape, need.kids, False)
            if any(_amount(found, kid.type) < kid.count for kid in need.kids):
                return None
        return {shape.type: [(shape.size, 1)]}

    def _explored(self, shape: Shape, needs: tuple[Need, ...], start: bool) -> Found:
        total: Found = {}
        for child, count in shape.children:
            for kind, rows in (self._visit(child, needs, start) or {}).items():
                total.setdefault(kind, []).extend((amount, n * count) for amount, n in rows)
        return total

    def _slots(self, shape: Shape, slot: Need) -> int:
        """Slots that one vertex gives: each takes whole vertices, and of a range its largest possible value."""
        found = self._explored(shape, slot.kids, False)
        fewest: int | None = None
        for kid in slot.kids:
            there = _amount(found, kid.type)
            if there < kid.count:
                return 0
            wanted = there if kid.maximum is None else min(there, kid.maximum)
            here = _whole(found[kid.type], wanted)
            fewest = here if fewest is None else min(fewest, here)
        return fewest or 0


def _settles(shape: Shape, slot: Need) -> bool:
    direct = {child.type for child, _ in shape.children}
    return all(kid.type in direct for kid in slot.kids)


def _amount(found: Found, kind: str) -> int:
    return sum(amount * count for amount, count in found.get(kind, ()))


def _whole(rows: list[tuple[int, int]], wanted: int) -> int:
    """How often `wanted` can be taken out of whole vertices, one after the other."""
    made = have = 0
    for amount, count in rows:
        if amount <= 0:
            continue
        if have:
            fill = min(count, -(-(wanted - have) // amount))
            have += fill * amount
            count -= fill
            if have < wanted:
                continue
            made, have = made + 1, 0
        per = -(-wanted // amount)
        made += count // per
        have = count % per * amount
    return made
