"""Frontiers: what a subtree can give to several siblings at once.

Each sibling is a dimension. A frontier is the set of vectors (how many of each sibling) that a subtree can give
together, of which no other is at least as large everywhere: a vertex is either taken whole by one sibling, or gives
what its children give together. Frontiers belong to shapes, so equal nodes share theirs; n equal children add up by
doubling; numbers are capped at the need.

Every cut makes a frontier smaller, so that each of its vectors still stands for a placement.
"""

from __future__ import annotations

from collections.abc import Iterable

from rainbow.resources.graph.bundles import Claims, Clock
from rainbow.resources.graph.shape import Children, Shape
from rainbow.resources.matching.plan import Need
from rainbow.resources.matching.siblings import Counter, Leaf, Unit

Vector = tuple[int, ...]
Frontier = list[Vector]

LIMIT = 256
"""Vectors kept in one frontier."""

FEW = 8
"""Vectors still kept when the time is used up."""


class Dimensions:
    """Numbers the siblings.

    A unit is one dimension; a leaf has one for each size of vertex it can take, unless its claims do not care about
    size.
    """

    def __init__(self) -> None:
        self.units: dict[tuple[str, tuple[Need, ...], int], tuple[Unit, int]] = {}
        self.leaves: dict[tuple[str, int], tuple[Leaf, dict[int, int]]] = {}
        self.caps: list[int] = []

    def new(self, cap: int) -> int:
        self.caps.append(cap)
        return len(self.caps) - 1

    def unit(self, unit: Unit, need: int) -> int:
        key = (unit.type, unit.kids, unit.bit)
        known = self.units.get(key)
        if known is None:
            known = self.units[key] = (unit, self.new(0))
        self.caps[known[1]] += need
        return known[1]

    def leaf(self, leaf: Leaf, sizes: Iterable[int], claims: Claims) -> dict[int, int]:
        key = (leaf.type, leaf.bit)
        known = self.leaves.get(key)
        if known is None:
            known = self.leaves[key] = (leaf, {size: self.new(0) for size in sorted(sizes) if size > 0})
        for size, dimension in known[1].items():
            self.caps[dimension] += sum(-(-amount // size) * times for amount, times in claims)
        return known[1]


class Space:
    """Frontiers over one set of dimensions, without locality."""

    def __init__(self, engine: Counter, dimensions: Dimensions) -> None:
        self.engine = engine
        self.clock: Clock = engine.clock
        self.dimensions = dimensions
        self.caps: Vector = tuple(dimensions.caps)
        self.zero: Vector = (0,) * len(self.caps)
        self.types = {key[0] for key in dimensions.units} | {key[0] for key in dimensions.leaves}
        self._known: dict[Shape, Frontier] = {}

    def of(self, shape: Shape) -> Frontier:
        known = self._known.get(shape)
        if known is None:
            known = self._known[shape] = self._made(shape)
        return known

    def of_forest(self, forest: Children) -> Frontier:
        total: Frontier = [self.zero]
        for shape, count in forest:
            if not self.types.isdisjoint(shape.counts):
                total = self.plus(total, self.times(self.of(shape), count))
        return total

    def _made(self, shape: Shape) -> Frontier:
        if self.types.isdisjoint(shape.counts):
            return [self.zero]
        found = self._below(shape)
        if shape.type in self.types:
            found = self.pruned([*found, *self.whole(shape)])
        return found

    def _below(self, shape: Shape) -> Frontier:
        return self.of_forest(shape.children)

    def whole(self, shape: Shape) -> Frontier:
        """What one vertex gives when it is taken whole."""
        found: Frontier = []
        for unit, dimension in self.dimensions.units.values():
            if unit.type == shape.type and self.engine.hosts(unit, shape):
                found.append(self._one(dimension))
        for leaf, by_size in self.dimensions.leaves.values():
            if leaf.type == shape.type and (leaf.bit < 0 or shape.mark >> leaf.bit & 1):
                # Sizes beyond the largest amount that is asked for count as that: see `sizes_of`.
                at = by_size.get(min(shape.size, max(by_size, default=0)))
                if at is not None:
                    found.append(self._one(at))
        return found

    def _one(self, dimension: int) -> Vector:
        return tuple(int(at == dimension) for at in range(len(self.caps)))

    # -- arithmetic ------------------------------------------------------------------------------

    def plus(self, left: Frontier, right: Frontier) -> Frontier:
        if len(right) == 1 and right[0] == self.zero:
            return left
        if len(left) == 1 and left[0] == self.zero:
            return right
        caps = self.caps
        sums: set[Vector] = set()
        for one in left:
            if self.clock.tick(len(right)) and sums:
                # Out of time: go on with a few, which is less but true.
                break
            sums.update([tuple(map(min, map(int.__add__, one, other), caps)) for other in right])
        return self.pruned(sums)

    def times(self, one: Frontier, count: int) -> Frontier:
        if count == 1:
            return one
        if len(one) == 1:
            return [tuple(min(x * count, cap) for x, cap in zip(one[0], self.caps, strict=True))]
        total: Frontier | None = None
        power = one
        while count:
            if count & 1:
                total = power if total is None else self.plus(total, power)
            count >>= 1
            if count:
                power = self.plus(power, power)
        assert total is not None
        return total

    def pruned(self, vectors: Iterable[Vector]) -> Frontier:
        """Only the vectors that no other one covers, largest sums first."""
        kept: Frontier = []
        tick = self.clock.tick
        for vector in sorted(set(vectors), key=lambda v: (-sum(v), v)):
            if any(all(map(int.__ge__, other, vector)) for other in kept):
                continue
            kept.append(vector)
            if len(kept) >= LIMIT:
                self.clock.spent = True
            if tick(1 + len(kept) // 4) and len(kept) >= FEW:
                break
        return kept


def sizes_of(leaf: Leaf, forest: Children, most: int) -> set[int]:
    """The sizes that vertices of a leaf's type have anywhere in the forest; those from `most` on are one.

    `most` is the largest amount claimed at once: a vertex of that size or more meets any claim by itself.
    """
    if most == 1 or all(leaf.type not in shape.pooled for shape, _ in forest):
        return {1}
    found: set[int] = set()
    stack: list[Shape] = [shape for shape, _ in forest]
    seen: set[Shape] = set()
    while stack:
        shape = stack.pop()
        if shape in seen or leaf.type not in shape.counts:
            continue
        seen.add(shape)
        if shape.type == leaf.type:
            found.add(min(shape.size, most))
        stack.extend(child for child, _ in shape.children)
    return {size for size in found if size > 0}
