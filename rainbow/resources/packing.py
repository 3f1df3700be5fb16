"""Siblings that compete for vertices: is there a placement of all of them at once?

Each sibling is a dimension. A *frontier* is the set of vectors (how many of each sibling) that a subtree can
give at once of which no other is at least as large everywhere: a vertex is either taken whole by one sibling, or
gives what its children give together. Frontiers belong to shapes, so equal nodes share theirs; n equal children
add up by doubling; numbers are capped at the need.

First the necessary (all demands together against all there is) and a quick hand-out are tried; the exact sum of
frontiers decides between them within a time budget. Every cut makes a frontier smaller, never a demand: "yes" is
said only where vectors add up to the need, and each vector stands for a placement.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rainbow.resources.bundles import Claims, Clock, covers, largest, patterns
from rainbow.resources.plan import Need
from rainbow.resources.shape import Children, Shape

if TYPE_CHECKING:
    from rainbow.resources.engine import Engine, Leaf, Local, Siblings, Unit

Vector = tuple[int, ...]
Frontier = list[Vector]

LIMIT = 256
"""Vectors kept in one frontier."""

FEW = 8
"""Vectors still kept when the time is used up."""


def pack(engine: Engine, siblings: Siblings, forest: Children, enough: int) -> int:
    """How many copies of competing siblings fit into a forest: a lower bound, exact unless time ran out."""
    most = _most(engine, siblings, forest)
    if most == 0:
        return 0
    return largest(lambda copies: Packing(engine, siblings, forest, copies).fits(), most, enough, engine.clock)


def _most(engine: Engine, siblings: Siblings, forest: Children) -> int:
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


class Dimensions:
    """Numbers the siblings. A unit is one dimension; a leaf has one for each size of vertex it can take, unless
    its claims do not care about size."""

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

    def __init__(self, engine: Engine, dimensions: Dimensions) -> None:
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
                at = by_size.get(shape.size)
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


class Packing(Space):
    """The siblings of one list, asked `copies` times, on one forest."""

    def __init__(self, engine: Engine, siblings: Siblings, forest: Children, copies: int) -> None:
        self.forest, self.siblings, self.copies = forest, siblings, copies
        dimensions = Dimensions()
        self.needs: list[tuple[int, int]] = []
        self.pools: list[tuple[dict[int, int], Claims]] = []
        for unit in siblings.units:
            self.needs.append((dimensions.unit(unit, unit.count * copies), unit.count * copies))
        for leaf in siblings.leaves:
            sizes = _sizes(engine, leaf, forest)
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
                self._regional = Regional(self)
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


class Regional(Space):
    """What one region (the inside of a node, or what hangs beside nodes at one vertex) gives: amounts for the
    siblings without locality, and whole slots for those with it, out of the same vertices."""

    def __init__(self, packing: Packing) -> None:
        self.packing = packing
        dimensions = Dimensions()
        engine = packing.engine
        self.kept: list[tuple[int, int]] = []
        for unit, outer in packing.dimensions.units.values():
            self.kept.append((dimensions.unit(unit, packing.caps[outer]), outer))
        for leaf, by_size in packing.dimensions.leaves.values():
            inner = dimensions.leaf(leaf, _sizes(engine, leaf, packing.forest), ())
            for size, outer in by_size.items():
                dimensions.caps[inner[size]] += packing.caps[outer]
                self.kept.append((inner[size], outer))
        # For each kind of slot: what one takes of single dimensions, and its claims on pools of several sizes.
        self.takes: list[tuple[int, int, dict[int, int], list[tuple[list[int], list[int], int]]]] = []
        for slot, outer in packing.slots:
            cap = packing.caps[outer]
            fixed: dict[int, int] = {}
            choices: list[tuple[list[int], list[int], int]] = []
            for unit in slot.content.units:
                at = dimensions.unit(unit, unit.count * cap)
                fixed[at] = fixed.get(at, 0) + unit.count
            for leaf in slot.content.leaves:
                sizes = _sizes(engine, leaf, packing.forest)
                by_size = dimensions.leaf(leaf, sizes, tuple((a, n * cap) for a, n in leaf.claims))
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


def _beside(forest: Children) -> Children:
    return tuple(item for item in forest if not item[0].outer and not item[0].is_target)


def _sizes(engine: Engine, leaf: Leaf, forest: Children) -> set[int]:
    """The sizes that vertices of a leaf's type have anywhere in the forest."""
    if all(leaf.type not in shape.pooled for shape, _ in forest):
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
            found.add(shape.size)
        stack.extend(child for child, _ in shape.children)
    return {size for size in found if size > 0}
