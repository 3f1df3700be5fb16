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

from rainbow.resources.bundles import Claims, Clock, bundles
from rainbow.resources.plan import Need
from rainbow.resources.shape import Children, Shape

PLENTY = 2**53 - 1
"""What stands for "as many as you like": the largest whole number that survives other people's JSON."""


class Unit:
    """`count` vertices of one type, each with `kids` placed below it. `free`: as in `Siblings`."""

    __slots__ = ("amounts", "bit", "count", "free", "hosted", "kids", "type")

    def __init__(self, type_: str, kids: tuple[Need, ...], bit: int, count: int, free: bool) -> None:
        self.type, self.kids, self.bit, self.count, self.free = type_, kids, bit, count, free
        self.amounts: dict[Shape, int] = {}
        self.hosted: dict[Shape, bool] = {}


class Leaf:
    """Amounts of one type: claims (amount, how many such claims)."""

    __slots__ = ("amounts", "bit", "claims", "type")

    def __init__(self, type_: str, bit: int, claims: Claims) -> None:
        self.type, self.bit, self.claims = type_, bit, claims
        self.amounts: dict[Shape, dict[int, int]] = {}


class Local:
    """`count` slots, each of which must fit into one node (or beside the nodes at one vertex)."""

    __slots__ = ("amounts", "content", "count", "names")

    def __init__(self, content: Siblings, names: frozenset[str], count: int) -> None:
        self.content, self.names, self.count = content, names, count
        self.amounts: dict[Shape, int] = {}


class Siblings:
    """A list of needs, resolved for a place: slots that have no locality there are dissolved, equal needs added.

    `free` says that the place is inside a node, or in a graph without nodes.
    """

    __slots__ = ("copies_below", "free", "leaves", "locals", "rivals", "units")

    def __init__(self, free: bool) -> None:
        self.free = free
        self.units: list[Unit] = []
        self.leaves: list[Leaf] = []
        self.locals: list[Local] = []
        self.copies_below: dict[Shape, int] = {}
        self.rivals: dict[frozenset[tuple[str, str]], bool] = {}

    def tops(self) -> list[frozenset[str]]:
        """For each sibling, the types of the vertices it takes."""
        return [
            *[frozenset((unit.type,)) for unit in self.units],
            *[frozenset((leaf.type,)) for leaf in self.leaves],
            *[slot.names for slot in self.locals],
        ]


class Engine:
    """Matches one list of needs on the graphs whose types at or above nodes are `above`.

    Results are remembered by shape, so that clusters which share shapes share the work.
    """

    def __init__(self, needs: tuple[Need, ...], above: frozenset[str], clock: Clock) -> None:
        self.above = above
        self.clock = clock
        self._resolved: dict[tuple[tuple[Need, ...], bool], Siblings] = {}
        self.top = self.resolve(needs, not above)

    # -- resolving -------------------------------------------------------------------------------

    def resolve(self, needs: tuple[Need, ...], free: bool) -> Siblings:
        key = (needs, free)
        known = self._resolved.get(key)
        if known is not None:
            return known
        made = self._resolved[key] = Siblings(free)
        units: dict[tuple[str, tuple[Need, ...], int], Unit] = {}
        leaves: dict[tuple[str, int], dict[int, int]] = {}
        slots: dict[tuple[Need, ...], Local] = {}
        self._add(needs, 1, free, units, leaves, slots)
        if units:
            made.units = list(units.values())
        if leaves:
            made.leaves = [
                Leaf(kind, bit, tuple(sorted(claims.items(), reverse=True))) for (kind, bit), claims in leaves.items()
            ]
        if slots:
            made.locals = list(slots.values())
        return made

    def _add(
        self,
        row: tuple[Need, ...],
        times: int,
        free: bool,
        units: dict[tuple[str, tuple[Need, ...], int], Unit],
        leaves: dict[tuple[str, int], dict[int, int]],
        slots: dict[tuple[Need, ...], Local],
    ) -> None:
        for need in row:
            count, kids = times * need.count, need.kids
            if not need.names:
                continue  # a slot with nothing in it
            if need.is_slot:
                if free or not self.above.isdisjoint(need.names):
                    self._add(kids, count, free, units, leaves, slots)
                elif kids in slots:
                    slots[kids].count += count
                else:
                    slots[kids] = Local(self.resolve(kids, True), need.names, count)
            elif kids:
                key = (need.type, kids, need.bit)
                if key in units:
                    units[key].count += count
                else:
                    units[key] = Unit(need.type, kids, need.bit, count, free)
            else:
                claims = leaves.setdefault((need.type, need.bit), {})
                claims[need.count] = claims.get(need.count, 0) + times

    def compete(self, siblings: Siblings, nested: frozenset[tuple[str, str]]) -> bool:
        """Whether two of the siblings can want the same vertex, where `nested` says what lies below what."""
        known = siblings.rivals.get(nested)
        if known is None:
            # A leaf's vertices may also lie in each other; which of them to take is a choice as well.
            known = any((leaf.type, leaf.type) in nested for leaf in siblings.leaves)
            if not known and len(siblings.units) + len(siblings.leaves) + len(siblings.locals) > 1:
                tops = siblings.tops()
                known = any(
                    not tops[i].isdisjoint(tops[j])
                    or any((a, b) in nested or (b, a) in nested for a in tops[i] for b in tops[j])
                    for i in range(len(tops))
                    for j in range(i)
                )
            siblings.rivals[nested] = known
        return known

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
        if self.compete(siblings, nested):
            from rainbow.resources.packing import pack

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
