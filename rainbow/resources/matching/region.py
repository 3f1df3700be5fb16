"""One region of a graph: the inside of a node, or what hangs beside nodes at one vertex.

It gives amounts to the siblings that go anywhere, and whole slots to those that must fit into one region, out of the
same vertices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rainbow.resources.graph.bundles import patterns
from rainbow.resources.graph.shape import Children
from rainbow.resources.matching.frontier import LIMIT, Dimensions, Frontier, Space, Vector
from rainbow.resources.matching.siblings import Leaf, Local


class Regional(Space):
    """What any region gives, in the dimensions of a packing.

    Args:
        packing: The space whose dimensions the results have.
        slots: The slots that must fit into one region, each with its dimension in `packing`.
        sizes: The sizes to tell apart among the vertices that a leaf can take.
    """

    def __init__(self, packing: Space, slots: Sequence[tuple[Local, int]], sizes: Callable[[Leaf], set[int]]) -> None:
        self.packing = packing
        dimensions = Dimensions()
        engine = packing.engine
        self.kept: list[tuple[int, int]] = []
        for unit, outer in packing.dimensions.units.values():
            self.kept.append((dimensions.unit(unit, packing.caps[outer]), outer))
        for leaf, by_size in packing.dimensions.leaves.values():
            inner = dimensions.leaf(leaf, sizes(leaf), ())
            for size, outer in by_size.items():
                dimensions.caps[inner[size]] += packing.caps[outer]
                self.kept.append((inner[size], outer))
        # For each kind of slot: what one takes of single dimensions, and its claims on pools of several sizes.
        self.takes: list[tuple[int, int, dict[int, int], list[tuple[list[int], list[int], int]]]] = []
        for slot, outer in slots:
            cap = packing.caps[outer]
            fixed: dict[int, int] = {}
            choices: list[tuple[list[int], list[int], int]] = []
            for unit in slot.content.units:
                at = dimensions.unit(unit, unit.count * cap)
                fixed[at] = fixed.get(at, 0) + unit.count
            for leaf in slot.content.leaves:
                by_size = dimensions.leaf(leaf, sizes(leaf), tuple((a, n * cap) for a, n in leaf.claims))
                if len(by_size) == 1:
                    ((size, at),) = by_size.items()
                    fixed[at] = fixed.get(at, 0) + sum(-(-a // size) * n for a, n in leaf.claims)
                    continue
                order = sorted(by_size, reverse=True)
                where = [by_size[size] for size in order]
                for amount, times in leaf.claims:
                    choices += [(order, where, amount)] * times
            self.takes.append((outer, cap, fixed, choices))
        super().__init__(engine, dimensions)

    def of_region(self, forest: Children) -> Frontier:
        found: set[Vector] = set()
        for vector in self.of_forest(forest):
            self._slots(0, vector, [0] * len(self.packing.caps), found)
        return self.packing.pruned(found)

    def _slots(self, number: int, left: Vector, made: list[int], found: set[Vector]) -> None:
        """All ways to make slots of kinds `number` and on out of `left`."""
        if number == len(self.takes):
            result = list(made)
            for inner, outer in self.kept:
                result[outer] = min(left[inner], self.packing.caps[outer])
            found.add(tuple(result))
            return
        outer, cap, fixed, choices = self.takes[number]
        states = {left}
        for count in range(cap + 1):
            for state in states:
                if self.clock.tick(4) and found:
                    return
                made[outer] = count
                self._slots(number + 1, state, made, found)
            after: set[Vector] = set()
            for state in states:
                after |= self._one_slot(state, fixed, choices)
            if not after:
                break
            states = after
        made[outer] = 0

    def _one_slot(
        self, left: Vector, fixed: dict[int, int], choices: Sequence[tuple[list[int], list[int], int]]
    ) -> set[Vector]:
        row = list(left)
        for at, need in fixed.items():
            row[at] -= need
            if row[at] < 0:
                return set()
        states = {tuple(row)}
        for order, where, amount in choices:
            after: set[Vector] = set()
            for state in states:
                there = tuple(state[at] for at in where)
                for used in patterns(order, there, amount):
                    changed = list(state)
                    for at, taken in zip(where, used, strict=True):
                        changed[at] -= taken
                    after.add(tuple(changed))
                    if self.clock.tick(2) or len(after) > LIMIT:
                        self.clock.spent = True
                        break
            states = after
        return states
