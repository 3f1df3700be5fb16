"""Siblings that compete for vertices: is there a placement of all of them at once?

First the necessary (all demands together against all there is) and a quick hand-out are tried; the exact sum of
frontiers (see `frontier`) decides between them within a time budget. What is cut short is what the graph gives, never
what is asked: "yes" is said only where vectors add up to the need, and each vector stands for a placement.
"""

from __future__ import annotations

from rainbow.resources.graph.bundles import Claims, covers, largest
from rainbow.resources.graph.shape import Children, Shape
from rainbow.resources.matching.frontier import Dimensions, Frontier, Space, Vector, sizes_of
from rainbow.resources.matching.region import Regional
from rainbow.resources.matching.siblings import Counter, Leaf, Local, Siblings


def pack(engine: Counter, siblings: Siblings, forest: Children, enough: int) -> int:
    """How many copies of competing siblings fit into a forest: a lower bound, exact unless time ran out."""
    most = _most(engine, siblings, forest)
    if most == 0:
        return 0
    return largest(lambda copies: Packing(engine, siblings, forest, copies).fits(), most, enough, engine.clock)


def _most(engine: Counter, siblings: Siblings, forest: Children) -> int:
    """No more than each sibling could have alone, nor than all together where they want one type."""
    most = 1 << 62
    by_type: dict[str, int] = {}
    for unit in siblings.units:
        most = min(most, sum(engine.units_in(unit, s) * n for s, n in forest) // unit.count)
    for leaf in siblings.leaves:
        most = min(most, engine.leaf_copies(leaf, forest, 1 << 62))
        amount = sum(a * n for a, n in leaf.claims)
        by_type[leaf.type] = by_type.get(leaf.type, 0) + amount
    for slot in siblings.locals:
        most = min(most, engine.slots_in_forest(slot, forest) // slot.count)
        for leaf in slot.content.leaves:
            amount = slot.count * sum(a * n for a, n in leaf.claims)
            by_type[leaf.type] = by_type.get(leaf.type, 0) + amount
    for kind, amount in by_type.items():
        most = min(most, sum(s.totals.get(kind, 0) * n for s, n in forest) // amount)
    return most


class Packing(Space):
    """The siblings of one list, asked `copies` times, on one forest."""

    def __init__(self, engine: Counter, siblings: Siblings, forest: Children, copies: int) -> None:
        self.forest, self.siblings, self.copies = forest, siblings, copies
        dimensions = Dimensions()
        self._most: dict[tuple[str, int], int] = {}
        for row in (siblings.leaves, *[slot.content.leaves for slot in siblings.locals]):
            for leaf in row:
                key = (leaf.type, leaf.bit)
                self._most[key] = max(self._most.get(key, 1), *[amount for amount, _ in leaf.claims])
        self.needs: list[tuple[int, int]] = []
        self.pools: list[tuple[dict[int, int], Claims]] = []
        for unit in siblings.units:
            self.needs.append((dimensions.unit(unit, unit.count * copies), unit.count * copies))
        for leaf in siblings.leaves:
            sizes = self.sizes(leaf)
            by_size = dimensions.leaf(leaf, sizes, tuple((a, n * copies) for a, n in leaf.claims))
            if len(by_size) == 1:
                ((size, at),) = by_size.items()
                self.needs.append((at, sum(-(-a // size) * n for a, n in leaf.claims) * copies))
            else:
                self.pools.append((by_size, leaf.claims))
        super().__init__(engine, dimensions)
        self.slots: list[tuple[Local, int]] = []
        for slot in siblings.locals:
            at = dimensions.new(slot.count * copies)
            self.slots.append((slot, at))
            self.needs.append((at, slot.count * copies))
        self.caps = tuple(dimensions.caps)
        self.zero = (0,) * len(self.caps)
        self._regions: dict[Children, Frontier] = {}
        self._regional: Regional | None = None
        for slot, _ in self.slots:
            self.types = self.types | slot.names

    def sizes(self, leaf: Leaf) -> set[int]:
        """The sizes to tell apart among the vertices that a leaf can take."""
        return sizes_of(leaf, self.forest, self._most[leaf.type, leaf.bit])

    def fits(self) -> bool:
        groups = self.groups()
        if not groups:
            return False
        if not self.pools:
            if not self._enough(groups):
                return False
            if self._handed_out(groups):
                return True
        total: Frontier = [self.zero]
        for frontier, count in sorted(groups, key=lambda group: len(group[0])):
            total = self.plus(total, self.times(frontier, count))
            if any(map(self._done, total)):
                return True
        return False

    def _done(self, vector: Vector) -> bool:
        if any(vector[at] < need for at, need in self.needs):
            return False
        return all(
            covers({size: vector[at] for size, at in by_size.items()}, claims, self.copies, self.clock)
            for by_size, claims in self.pools
        )

    # -- where the siblings can be ---------------------------------------------------------------

    def groups(self) -> list[tuple[Frontier, int]]:
        """The graph taken apart at vertices that no sibling can take whole: frontiers with how often each."""
        shapes: dict[Shape, int] = {}
        regions: dict[Children, int] = {}
        own = {key[0] for key in self.dimensions.units} | {key[0] for key in self.dimensions.leaves}

        def apart(forest: Children, times: int) -> None:
            if self.slots:
                beside = _beside(forest)
                if beside:
                    regions[beside] = regions.get(beside, 0) + times
                forest = tuple(item for item in forest if item[0].outer or item[0].is_target)
            for shape, count in forest:
                if self.types.isdisjoint(shape.counts):
                    continue
                if shape.type in own or (self.slots and shape.is_target):
                    shapes[shape] = shapes.get(shape, 0) + count * times
                else:
                    apart(shape.children, count * times)

        apart(self.forest, 1)
        found = [(self.of(shape), count) for shape, count in shapes.items()]
        found += [(self._region(forest), count) for forest, count in regions.items()]
        return [(frontier, count) for frontier, count in found if frontier != [self.zero]]

    def _below(self, shape: Shape) -> Frontier:
        if not self.slots:
            return self.of_forest(shape.children)
        if shape.is_target:
            return self._region(shape.children)
        total = self._region(_beside(shape.children))
        for child, count in shape.children:
            if child.outer or child.is_target:
                total = self.plus(total, self.times(self.of(child), count))
        return total

    def _region(self, forest: Children) -> Frontier:
        known = self._regions.get(forest)
        if known is None:
            if self._regional is None:
                self._regional = Regional(self, self.slots, self.sizes)
            known = self._regions[forest] = self._regional.of_region(forest)
        return known

    # -- the necessary, and the quick ------------------------------------------------------------

    def _enough(self, groups: list[tuple[Frontier, int]]) -> bool:
        """What must hold: for each sibling alone, and for weighted sums of them."""
        need = self._need()
        rows = [[int(at == i) for i in range(len(need))] for at in range(len(need))]
        best = [sum(max(v[i] for v in f) * n for f, n in groups) for i in range(len(need))]
        if any(have < want for have, want in zip(best, need, strict=True)):
            return False
        rows.append([1] * len(need))
        scale = max(best)
        rows.append([scale // max(1, have) for have in best])
        for weights in rows:
            most = sum(max(sum(map(int.__mul__, weights, v)) for v in frontier) * count for frontier, count in groups)
            if most < sum(map(int.__mul__, weights, need)):
                return False
        return True

    def _need(self) -> list[int]:
        need = [0] * len(self.caps)
        for at, amount in self.needs:
            need[at] = amount
        return need

    def _handed_out(self, groups: list[tuple[Frontier, int]]) -> bool:
        """Take the most useful vector again and again, by three notions of useful."""
        need = self._need()
        have = [sum(max(v[i] for v in f) * n for f, n in groups) for i in range(len(need))]
        scarce = [want / max(1, there) for want, there in zip(need, have, strict=True)]
        for power in (1.0, 4.0, 0.0):
            weights = [(s**power) / max(1, w) for s, w in zip(scarce, need, strict=True)]
            if self._greedy(groups, need, weights):
                return True
        return False

    def _greedy(self, groups: list[tuple[Frontier, int]], need: list[int], weights: list[float]) -> bool:
        left = list(need)
        counts = [count for _, count in groups]
        while any(left):
            best, at, choice = 0.0, -1, self.zero
            for number, (frontier, _) in enumerate(groups):
                if not counts[number]:
                    continue
                for vector in frontier:
                    useful = 0.0
                    waste = 0.0
                    for give, want, weight in zip(vector, left, weights, strict=True):
                        waste += max(0, give - want) * weight
                        useful += min(give, want) * weight
                    if useful and useful - waste * 1e-3 > best:
                        best, at, choice = useful - waste * 1e-3, number, vector
            if at < 0:
                return False
            rounds = counts[at]
            for give, want in zip(choice, left, strict=True):
                if give and want:
                    rounds = min(rounds, max(1, want // give))
            counts[at] -= rounds
            left = [max(0, want - give * rounds) for give, want in zip(choice, left, strict=True)]
            if self.clock.tick(4 * len(groups)):
                return not any(left)
        return True


def _beside(forest: Children) -> Children:
    return tuple(item for item in forest if not item[0].outer and not item[0].is_target)
