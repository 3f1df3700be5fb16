"""Fold a tree of vertices, given as flat rows, into shapes, and number its vertices canonically.

The numbering is what lets identities live beside the shapes: walking the folded graph in the order of its
children groups gives each vertex a *position* (0 is the root) and each execution target an *ordinal*. Equal
subtrees then own stretches of equal length, so that sets of nodes are ranges of ordinals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rainbow.resources.graph.shape import TARGETS, Shape, grouped, make

Atom = tuple[str, int, str]
"""Type, size and unit of a vertex: all that its own part of a shape consists of."""

MAX_DEPTH = 200
"""Levels of containment; real machines have seven. It bounds the recursion of everything that walks shapes."""


class NotATree(ValueError):
    """The rows do not make a tree; `args[0]` says why, `args[1:]` are vertices to name."""


@dataclass(slots=True)
class Tree:
    """What folding works on, by vertex number: enough to go on when a little of it changes (see `patch`)."""

    atoms: list[Atom]
    atom_of: list[int]
    parent: list[int]
    kids: list[list[int] | None]
    """The children of each vertex, in the order of the numbering once that is known; None for a leaf."""
    shape_of: list[int]
    """The shape of each vertex, as an index into `shapes`; -1 for one that hangs nowhere."""
    shapes: list[Shape] = field(default_factory=list)
    leaves: list[int] = field(default_factory=list)
    """The shape of a leaf by its atom, or -1."""
    inner: dict[tuple[int, ...], int] = field(default_factory=dict)
    """The shape of a vertex with children, by its atom and their shapes."""

    def shape(self, vertex: int) -> int:
        """Which shape `vertex` has, by its atom and the shapes of its children."""
        row, atom = self.kids[vertex], self.atom_of[vertex]
        if row is None:
            known = self.leaves[atom]
            if known < 0:
                known = self.leaves[atom] = len(self.shapes)
                self.shapes.append(make(*self.atoms[atom]))
            return known
        shape_of = self.shape_of
        key = (atom, *sorted([shape_of[child] for child in row]))
        known = self.inner.get(key, -1)
        if known < 0:
            known = self.inner[key] = len(self.shapes)
            type_, size, unit = self.atoms[atom]
            self.shapes.append(make(type_, size, unit, grouped(self.shapes[i] for i in key[1:])))
        return known


@dataclass(frozen=True, slots=True)
class Folded:
    """A folded tree. `order` holds vertex numbers by position, `targets` vertex numbers by ordinal."""

    root: Shape
    order: list[int]
    targets: list[int]
    tree: Tree


def fold(
    atoms: list[Atom],
    atom_of: list[int],
    parent: list[int],
    target_key: Callable[[int], Any],
) -> Folded:
    """Fold vertices ``0 .. n-1``.

    Args:
        atoms: the different atoms.
        atom_of: the atom of each vertex, as an index into `atoms`.
        parent: the parent of each vertex, or -1.
        target_key: sorts execution targets of equal shape (so that those with equal properties, and those
            with consecutive names, stand together).

    Raises:
        NotATree: no vertex has a child, edges run in a circle, or the tree is too deep.
    """
    kids = _children_of(parent)
    roots = [v for v, above in enumerate(parent) if above < 0 and kids[v] is not None]
    if not roots:
        circle = next((v for v, above in enumerate(parent) if above >= 0), None)
        if circle is not None:
            raise NotATree("edges run in a circle", circle)
        raise NotATree("no vertex contains another")
    _check_depth_and_circles(roots, kids, parent)

    tree = Tree(atoms, atom_of, parent, kids, [-1] * len(kids))
    _find_shapes(tree, roots)
    order = _in_order(tree, roots, target_key)
    shapes, shape_of = tree.shapes, tree.shape_of
    is_target = [atom[0] in TARGETS for atom in atoms]
    targets = [v for v in order if is_target[atom_of[v]]]
    if len(roots) == 1:
        return Folded(shapes[shape_of[roots[0]]], order, targets, tree)
    # Several roots hang below one that no jobspec can name.
    top = make("", 1, "", grouped(shapes[shape_of[v]] for v in roots))
    return Folded(top, [-1, *order], targets, tree)


def _children_of(parent: list[int]) -> list[list[int] | None]:
    kids: list[list[int] | None] = [None] * len(parent)
    for vertex, above in enumerate(parent):
        if above >= 0:
            row = kids[above]
            if row is None:
                kids[above] = [vertex]
            else:
                row.append(vertex)
    return kids


def _in_order(tree: Tree, roots: list[int], target_key: Callable[[int], Any]) -> list[int]:
    """All vertices below `roots`, parents first, children as the shapes of their parents have them."""
    shapes, shape_of, kids, atom_of = tree.shapes, tree.shape_of, tree.kids, tree.atom_of
    is_target = [atom[0] in TARGETS for atom in tree.atoms]
    rank_of = _digest_ranks(shapes)

    def sort(row: list[int], shape: Shape | None) -> list[int]:
        """Children as their parent's shape has them; equal execution targets by their key."""
        if shape is None or any(child.is_target for child, _ in shape.children):
            row.sort(key=lambda v: (rank_of[shape_of[v]], target_key(v) if is_target[atom_of[v]] else ()))
        elif len(shape.children) > 1:
            row.sort(key=lambda v: rank_of[shape_of[v]])
        return row

    order: list[int] = []
    stack = sort(roots, None)[::-1]
    while stack:
        vertex = stack.pop()
        order.append(vertex)
        row = kids[vertex]
        if row is not None:
            shape = shapes[shape_of[vertex]]
            row = sort(row, shape)
            if any(child.children for child, _ in shape.children):
                stack.extend(reversed(row))
            else:
                order += row
    return order


def _digest_ranks(shapes: list[Shape]) -> list[int]:
    """For each shape, where it stands in the order of digests."""
    ranks = [0] * len(shapes)
    for rank, number in enumerate(sorted(range(len(shapes)), key=lambda number: shapes[number].digest)):
        ranks[number] = rank
    return ranks


def _check_depth_and_circles(roots: list[int], kids: list[list[int] | None], parent: Sequence[int]) -> None:
    reached, level, depth = 0, roots, 0
    while level:
        reached += len(level)
        depth += 1
        if depth > MAX_DEPTH:
            raise NotATree(f"more than {MAX_DEPTH} levels", level[0])
        level = [child for v in level for child in kids[v] or ()]
    lone = sum(1 for v, above in enumerate(parent) if above < 0 and kids[v] is None)
    if reached + lone == len(parent):
        return
    # Whatever no root leads to hangs on a circle: follow parents until one comes twice.
    seen = bytearray(len(parent))
    level = list(roots)
    while level:
        for v in level:
            seen[v] = 1
        level = [child for v in level for child in kids[v] or ()]
    vertex = next(v for v, above in enumerate(parent) if above >= 0 and not seen[v])
    passed: set[int] = set()
    while vertex not in passed:
        passed.add(vertex)
        vertex = parent[vertex]
    raise NotATree("edges run in a circle", vertex)


def _find_shapes(tree: Tree, roots: list[int]) -> None:
    """Give each vertex below `roots` its shape."""
    kids, atom_of, shape_of = tree.kids, tree.atom_of, tree.shape_of
    order = list(roots)
    for v in order:  # grows while it is walked: parents before children
        row = kids[v]
        if row is not None:
            order.extend(row)
    leaves = tree.leaves = [-1] * len(tree.atoms)
    for v in reversed(order):
        known = leaves[atom_of[v]] if kids[v] is None else -1
        shape_of[v] = known if known >= 0 else tree.shape(v)
