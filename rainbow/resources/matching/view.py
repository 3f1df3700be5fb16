"""A view: the folded graph as one request sees it.

A constraint takes execution targets away with all below them; a `requires` marks the vertices that meet it.
Only the stretches of the numbering where something changes are folded again: for two host names in 100,000
nodes that is a handful of pieces.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from rainbow.ranges.idset import IdSet
from rainbow.resources.graph.shape import Shape, make
from rainbow.resources.readers.subsystem import Holders

Wish = tuple[str, Holders]
"""The type of vertex that is asked, and which vertices meet all requirements."""


class View:
    """Makes the view of `root` with the targets in `kept` (None: all) and the marks of `wishes`."""

    def __init__(self, kept: IdSet | None, wishes: Sequence[Wish]) -> None:
        self._kept = kept
        self._wishes = wishes
        target_edges: set[int] = set()
        other_edges: set[int] = set()
        for ids in ([kept] if kept is not None else []) + [who.targets for _, who in wishes]:
            for start, stop in ids.ranges:
                target_edges.add(start)
                target_edges.add(stop)
        for _, who in wishes:
            for start, stop in who.others.ranges:
                other_edges.add(start)
                other_edges.add(stop)
        self._target_edges = sorted(target_edges)
        self._other_edges = sorted(other_edges)
        self._made: dict[tuple[Shape, bool, int, int], Shape | None] = {}

    def of(self, root: Shape) -> Shape:
        """The view of a whole graph. Its root stays, even when nothing is left below it."""
        found = self._fold(root, 0, 0)
        return found if found is not None else make(root.type, root.size, root.unit, (), outer=root.outer)

    def _state(self, ordinal: int, position: int) -> tuple[bool, int, int]:
        """What holds at one place: targets kept, wishes met by targets, wishes met by other vertices."""
        kept = self._kept is None or ordinal in self._kept
        by_target = by_other = 0
        for bit, (_, who) in enumerate(self._wishes):
            if ordinal in who.targets:
                by_target |= 1 << bit
            if position in who.others:
                by_other |= 1 << bit
        return kept, by_target, by_other

    def _fold(self, shape: Shape, ordinal: int, position: int) -> Shape | None:
        inside = bisect_right(self._target_edges, ordinal)
        plain = inside == bisect_left(self._target_edges, ordinal + shape.targets, inside)
        if plain and self._other_edges:
            first = bisect_right(self._other_edges, position)
            plain = first == bisect_left(self._other_edges, position + shape.vertices, first)
        if plain:
            return self._even(shape, self._state(ordinal, position))
        mark = 0
        kept, by_target, by_other = self._state(ordinal, position)
        if shape.is_target and not kept:
            return None
        for bit, (kind, _) in enumerate(self._wishes):
            if kind == shape.type and (by_target if shape.is_target else by_other) >> bit & 1:
                mark |= 1 << bit
        counts: dict[Shape, int] = {}
        at, place = ordinal + shape.is_target, position + 1
        for child, count in shape.children:
            self._fold_group(child, count, at, place, counts)
            at += child.targets * count
            place += child.vertices * count
        return _remade(shape, mark, counts)

    def _fold_group(self, child: Shape, count: int, ordinal: int, position: int, counts: dict[Shape, int]) -> None:
        """Fold `count` equal children: alone where an edge falls into one, else in whole stretches."""
        cuts: set[int] = {0, count}
        width = child.targets
        if width:
            edges = self._target_edges
            low = bisect_left(edges, ordinal)
            for edge in edges[low : bisect_right(edges, ordinal + width * count, low)]:
                index, inside = divmod(edge - ordinal, width)
                cuts.add(index)
                if inside:
                    cuts.add(index + 1)
        if self._other_edges:
            edges, size = self._other_edges, child.vertices
            low = bisect_left(edges, position)
            for edge in edges[low : bisect_right(edges, position + size * count, low)]:
                index, inside = divmod(edge - position, size)
                cuts.add(index)
                if inside:
                    cuts.add(index + 1)
        at = 0
        # Where edges fall between children only, each stretch of them is even.
        even = width <= 1 and not self._other_edges
        for stop in sorted(cuts)[1:]:
            if even:
                made = self._even(child, self._state(ordinal + at * width, 0))
            else:
                made = self._fold(child, ordinal + at * width, position + at * child.vertices)
            if made is not None:
                counts[made] = counts.get(made, 0) + stop - at
            at = stop

    def _even(self, shape: Shape, state: tuple[bool, int, int]) -> Shape | None:
        """A subtree in which nothing changes from place to place."""
        kept, by_target, by_other = state
        if (kept or not shape.targets) and not by_target and not by_other:
            return shape
        key = (shape, *state)
        if key in self._made:
            return self._made[key]
        made: Shape | None
        if shape.is_target and not kept:
            made = None
        else:
            mark = 0
            for bit, (kind, _) in enumerate(self._wishes):
                if kind == shape.type and (by_target if shape.is_target else by_other) >> bit & 1:
                    mark |= 1 << bit
            counts: dict[Shape, int] = {}
            for child, count in shape.children:
                found = self._even(child, state)
                if found is not None:
                    counts[found] = counts.get(found, 0) + count
            made = _remade(shape, mark, counts)
        self._made[key] = made
        return made


def _remade(shape: Shape, mark: int, counts: dict[Shape, int]) -> Shape:
    children = tuple(sorted(counts.items(), key=lambda item: id(item[0])))
    if not mark and counts == dict(shape.children):
        return shape
    return make(shape.type, shape.size, shape.unit, children, mark, shape.outer)
