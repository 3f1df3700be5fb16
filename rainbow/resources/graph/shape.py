"""Shapes: what equal subtrees of a resource graph are folded into.

A shape is a vertex's type, size and unit and how many children of which shapes it has. Equal shapes are one
object (hash-consing), so a cluster of 100,000 equal nodes is three or four objects and matching it costs what
matching ten nodes costs. Who a vertex is (name, rank, properties) is no part of its shape: see `summary`.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from weakref import WeakValueDictionary

TARGETS = frozenset({"node", "storage_node"})
"""Execution targets: the vertices that RFC 31 constraints select, and that a slot has to fit into."""

Children = tuple[tuple["Shape", int], ...]

_EMPTY: frozenset[str] = frozenset()
_NO_PAIRS: frozenset[tuple[str, str]] = frozenset()


class Shape:
    """One kind of subtree; made by `make` only, compared by identity.

    `mark` is used by views of one request: bit j says that the vertex meets the request's j-th `requires`.
    `outer` says that the vertex stands above execution targets in the graph as registered, even when a
    constraint took all of them away.
    """

    __slots__ = (
        "__weakref__",
        "_digest",
        "above",
        "children",
        "counts",
        "is_target",
        "mark",
        "nested",
        "outer",
        "pooled",
        "size",
        "targets",
        "totals",
        "type",
        "unit",
        "vertices",
    )

    type: str
    size: int
    unit: str
    mark: int
    outer: bool
    children: Children
    is_target: bool
    targets: int
    """Execution targets in the subtree, itself included."""
    vertices: int
    """Vertices in the subtree, itself included."""
    totals: dict[str, int]
    """Sum of sizes per type in the subtree, itself included."""
    counts: dict[str, int]
    """Vertices per type in the subtree, itself included."""
    above: frozenset[str]
    """Types in the subtree that are execution targets or stand above one."""
    nested: frozenset[tuple[str, str]]
    """Pairs (a, b): a vertex of type b lies somewhere below one of type a."""
    pooled: frozenset[str]
    """Types in the subtree that have a vertex of a size other than 1."""

    def __init__(self, type_: str, size: int, unit: str, mark: int, outer: bool, children: Children) -> None:
        self.type, self.size, self.unit, self.mark, self.outer = type_, size, unit, mark, outer
        self.children = children
        self.is_target = type_ in TARGETS
        self._digest: bytes | None = None
        targets, vertices = int(self.is_target), 1
        totals, counts = {type_: size}, {type_: 1}
        below: set[str] = set()
        above: set[str] = set()
        nested: set[tuple[str, str]] = set()
        pooled = _EMPTY if size == 1 else frozenset((type_,))
        for child, count in children:
            targets += child.targets * count
            vertices += child.vertices * count
            for name, amount in child.totals.items():
                totals[name] = totals.get(name, 0) + amount * count
            for name, amount in child.counts.items():
                counts[name] = counts.get(name, 0) + amount * count
            below.update(child.counts)
            above |= child.above
            nested |= child.nested
            if child.pooled:
                pooled |= child.pooled
        if self.is_target or outer:
            above.add(type_)
        nested.update((type_, name) for name in below)
        self.targets, self.vertices, self.totals, self.counts = targets, vertices, totals, counts
        self.above = frozenset(above) if above else _EMPTY
        self.nested = frozenset(nested) if nested else _NO_PAIRS
        self.pooled = pooled

    @property
    def digest(self) -> bytes:
        """16 bytes that are equal for equal shapes in any process."""
        if self._digest is None:
            head = f"{self.type}\0{self.size}\0{self.unit}\0{self.mark}\0{int(self.outer)}".encode()
            h = blake2b(head, digest_size=16)
            for child, count in self.children:
                h.update(b"%b%d," % (child.digest, count))
            self._digest = h.digest()
        return self._digest

    def __repr__(self) -> str:
        return f"<Shape {describe(self)}>"


_interned: WeakValueDictionary[tuple[object, ...], Shape] = WeakValueDictionary()


def make(
    type_: str,
    size: int = 1,
    unit: str = "",
    children: Children = (),
    mark: int = 0,
    outer: bool | None = None,
) -> Shape:
    """The one shape with these parts. `children` must be in a fixed order for equal shapes to be one."""
    if outer is None:
        outer = any(child.targets or child.outer for child, _ in children)
    key = (type_, size, unit, mark, outer, children)
    shape = _interned.get(key)
    if shape is None:
        shape = _interned[key] = Shape(type_, size, unit, mark, outer, children)
    return shape


def grouped(children: Iterable[Shape]) -> Children:
    """Count equal shapes, in the order of their digests: the canonical form of a row of children."""
    counts: dict[Shape, int] = {}
    for child in children:
        counts[child] = counts.get(child, 0) + 1
    return tuple(sorted(counts.items(), key=lambda item: item[0].digest))


def shapes_below(root: Shape) -> list[Shape]:
    """Every shape in the subtree once, children before parents."""
    order: list[Shape] = []
    seen: set[Shape] = set()
    stack: list[tuple[Shape, bool]] = [(root, False)]
    while stack:
        shape, done = stack.pop()
        if done:
            order.append(shape)
        elif shape not in seen:
            seen.add(shape)
            stack.append((shape, True))
            stack.extend((child, False) for child, _ in shape.children)
    return order


def describe(shape: Shape, limit: int = 400) -> str:
    """Text for people: ``cluster(4 x node(2 x socket(18 x core), 2 x gpu))``; ``[4]`` is a size other than 1."""

    def text(one: Shape, budget: int) -> str:
        name = one.type if one.size == 1 else f"{one.type}[{one.size}{' ' + one.unit if one.unit else ''}]"
        if not one.children:
            return name
        if budget <= 0:
            return f"{name}(…)"
        parts: list[str] = []
        for child, count in sorted(one.children, key=lambda item: (item[0].type, -item[1])):
            inner = text(child, budget - 12 * len(one.children))
            parts.append(inner if count == 1 else f"{count} x {inner}")
            if sum(map(len, parts)) > budget:
                parts.append("…")
                break
        return f"{name}({', '.join(parts)})"

    return text(shape, limit)
