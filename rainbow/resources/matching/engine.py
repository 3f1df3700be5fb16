"""Counting on folded graphs: how many copies of a list of needs fit at once.

The rules (shared matching rules, section 1): nesting multiplies and vertices are distinct; levels may be
skipped; a leaf asks for a sum of sizes, and a vertex never serves two claims; a taken vertex takes its subtree
from all but its own children; a slot that names nothing at or above the nodes must fit inside one node, or into
what hangs beside the nodes at one vertex.

A list of siblings that cannot want the same vertex is counted sibling by sibling, which is exact. Siblings that
compete are handed to `packing`.
"""

from __future__ import annotations

from collections.abc import Iterable

from rainbow.resources.graph.bundles import Clock, bundles
from rainbow.resources.graph.shape import Children, Shape
from rainbow.resources.matching.packing import pack
from rainbow.resources.matching.plan import Need
from rainbow.resources.matching.siblings import Leaf, Local, Resolver, Siblings, Unit

PLENTY = 2**53 - 1
"""What stands for "as many as you like": the largest whole number that survives other people's JSON."""


class Engine:
    """Matches one list of needs on the graphs whose types at or above nodes are `above`.

    Results are remembered by shape, so that clusters which share shapes share the work.
    """

    def __init__(self, needs: tuple[Need, ...], above: frozenset[str], clock: Clock) -> None:
        self.above = above
        self.clock = clock
        self.resolve = Resolver(above).resolve
        self.top = self.resolve(needs, not above)

    # -- how many --------------------------------------------------------------------------------

    def fits(self, root: Shape) -> bool:
        return self.copies(root, 1) > 0

    def copies(self, root: Shape, enough: int = PLENTY) -> int:
        """How many copies of all needs the whole graph takes at once (a lower bound when siblings compete)."""
        return min(PLENTY, self._copies(self.top, ((root, 1),), root.nested, enough))

    def copies_in(self, siblings: Siblings, shape: Shape, enough: int = PLENTY) -> int:
        """How many copies fit below one vertex."""
        known = siblings.copies_below.get(shape)
        if known is None:
            known = self._copies(siblings, shape.children, shape.nested, enough)
            if enough == PLENTY or known == 0:
                siblings.copies_below[shape] = known
        return known

    def _copies(
        self,
        siblings: Siblings,
        forest: Children,
        nested: frozenset[tuple[str, str]],
        enough: int,
    ) -> int:
        if siblings.compete(nested):
            return pack(self, siblings, forest, enough)
        best = PLENTY
        for unit in siblings.units:
            best = min(best, sum(self.units_in(unit, s) * n for s, n in forest) // unit.count)
            if not best:
                return 0
        for leaf in siblings.leaves:
            best = min(best, self.leaf_copies(leaf, forest, enough))
            if not best:
                return 0
        for slot in siblings.locals:
            best = min(best, self.slots_in_forest(slot, forest) // slot.count)
            if not best:
                return 0
        return best

    def units_in(self, unit: Unit, shape: Shape) -> int:
        """The most vertices of a unit's type, none below another, that each take its kids."""
        if unit.type not in shape.counts:
            return 0
        known = unit.amounts.get(shape)
        if known is None:
            known = 0
            for child, count in shape.children:
                if unit.type in child.counts:
                    known += self.units_in(unit, child) * count
            if known == 0 and shape.type == unit.type and self.hosts(unit, shape):
                known = 1
            unit.amounts[shape] = known
        return known

    def hosts(self, unit: Unit, shape: Shape) -> bool:
        """Whether a vertex of this shape can serve as one of the unit."""
        if unit.bit >= 0 and not shape.mark >> unit.bit & 1:
            return False
        known = unit.hosted.get(shape)
        if known is None:
            # Inside a node, and beside the nodes, slots have no further locality to keep.
            free = unit.free or shape.is_target or not shape.outer
            known = unit.hosted[shape] = self.copies_in(self.resolve(unit.kids, free), shape, 1) > 0
        return known

    # -- leaves ----------------------------------------------------------------------------------

    def leaf_copies(self, leaf: Leaf, forest: Children, enough: int) -> int:
        sizes: dict[int, int] = {}
        for shape, count in forest:
            for size, amount in self.sizes_in(leaf, shape).items():
                sizes[size] = sizes.get(size, 0) + amount * count
        return bundles(sizes, leaf.claims, self.clock, enough)

    def sizes_in(self, leaf: Leaf, shape: Shape) -> dict[int, int]:
        """How many vertices of which size can serve a leaf; where they lie in each other, the larger sum."""
        kind = leaf.type
        if kind not in shape.counts:
            return {}
        known = leaf.amounts.get(shape)
        if known is not None:
            return known
        if leaf.bit < 0 and kind not in shape.pooled and (kind, kind) not in shape.nested:
            known = {1: shape.counts[kind]}
        else:
            known = {}
            for child, count in shape.children:
                for size, amount in self.sizes_in(leaf, child).items():
                    known[size] = known.get(size, 0) + amount * count
            own = shape.type == kind and (leaf.bit < 0 or shape.mark >> leaf.bit & 1)
            if own and shape.size > sum(size * amount for size, amount in known.items()):
                known = {shape.size: 1}
        leaf.amounts[shape] = known
        return known

    # -- slots with locality ---------------------------------------------------------------------

    def slots_in_forest(self, slot: Local, forest: Children) -> int:
        beside = tuple(item for item in forest if not item[0].outer and not item[0].is_target)
        found = 0
        if beside:
            found = self._copies(slot.content, beside, _nested_of(beside), PLENTY)
        for shape, count in forest:
            if shape.outer or shape.is_target:
                found += self.slots_in(slot, shape) * count
        return found

    def slots_in(self, slot: Local, shape: Shape) -> int:
        """Slots in the subtree of a target or of a vertex above targets."""
        known = slot.amounts.get(shape)
        if known is None:
            if shape.is_target:
                known = self.copies_in(slot.content, shape)
            else:
                known = self.slots_in_forest(slot, shape.children)
            slot.amounts[shape] = known
        return known


def _nested_of(forest: Iterable[tuple[Shape, int]]) -> frozenset[tuple[str, str]]:
    return frozenset().union(*(shape.nested for shape, _ in forest))
