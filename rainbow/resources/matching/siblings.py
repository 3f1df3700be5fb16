"""The needs of a request, resolved for a place in a graph: what one list of siblings asks for there.

In: the needs of a plan. Out: `Siblings`, on which `engine` counts and `packing` packs; results are kept on them by
shape.
"""

from __future__ import annotations

from typing import Protocol

from rainbow.resources.graph.bundles import Claims, Clock
from rainbow.resources.graph.shape import Children, Shape
from rainbow.resources.matching.plan import Need


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

    def compete(self, nested: frozenset[tuple[str, str]]) -> bool:
        """Whether two of the siblings can want the same vertex, where `nested` says what lies below what."""
        known = self.rivals.get(nested)
        if known is None:
            # A leaf's vertices may also lie in each other; which of them to take is a choice as well.
            known = any((leaf.type, leaf.type) in nested for leaf in self.leaves)
            if not known and len(self.units) + len(self.leaves) + len(self.locals) > 1:
                tops = self.tops()
                known = any(
                    not tops[i].isdisjoint(tops[j])
                    or any((a, b) in nested or (b, a) in nested for a in tops[i] for b in tops[j])
                    for i in range(len(tops))
                    for j in range(i)
                )
            self.rivals[nested] = known
        return known


class Resolver:
    """Resolves lists of needs for graphs whose types at or above nodes are `above`; equal lists share one object."""

    def __init__(self, above: frozenset[str]) -> None:
        self.above = above
        self._resolved: dict[tuple[tuple[Need, ...], bool], Siblings] = {}

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


class Counter(Protocol):
    """What packing needs of the engine that counts siblings one by one."""

    clock: Clock

    def hosts(self, unit: Unit, shape: Shape) -> bool:
        """Whether a vertex of this shape can serve as one of the unit."""

    def units_in(self, unit: Unit, shape: Shape) -> int:
        """The most vertices of a unit's type, none below another, that each take its children."""

    def leaf_copies(self, leaf: Leaf, forest: Children, enough: int) -> int:
        """How many times a forest meets the claims of a leaf, at most `enough`."""

    def slots_in_forest(self, slot: Local, forest: Children) -> int:
        """How many slots a forest holds."""
