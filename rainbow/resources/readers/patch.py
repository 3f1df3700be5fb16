"""Carry a folded graph over to a document that changed a little, at the cost of the change.

Documents come in blocks (see `json_stream`), and a block that was met before is the same object again: what changed
lies in the others. Vertices that come, go, or get other attributes are patched. Their ancestors get new shapes, and
their rows of children are put in order again; all else keeps its place beside its siblings, so that the new
numbering is made of long stretches of the old one.

Whatever is less ordinary is not tried: the document is then read in full, which also finds the words for what is
wrong with it.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

from rainbow.resources.graph.fold import MAX_DEPTH, Atom, Folded
from rainbow.resources.graph.vertex_keys import plain_numbers
from rainbow.resources.readers.jgf import EdgeBlock, Graph, Target, VertexBlock

MIN_CHANGED = 4096
"""Elements in blocks that changed, up to which a graph is patched whatever its size."""

MAX_SHARE = 4
"""In larger graphs: one part in so many."""

MAX_GROWTH = 2
"""Rows so many times as long as there are vertices, for those that went leave gaps, are rebuilt."""

MAX_PATCHES = 100
"""After so many the graph is read in full: shapes that nothing has any more are kept until then."""

Row = tuple[Atom, Target | None]

Stood = tuple[dict[int, int], dict[int, int]]
"""By vertex number the position it had, and the ordinal of the first execution target from there on."""


class Unlike(Exception):
    """Not a change that can be patched."""


@dataclass(slots=True)
class Vertices:
    """What happened to the vertices."""

    gone: set[int] = field(default_factory=set)
    changed: dict[int, Row] = field(default_factory=dict)
    new: dict[str, tuple[float, Row]] = field(default_factory=dict)
    """Label and attributes of new vertices by key, in the order of the document."""


def patchable(graph: Graph) -> bool:
    """Whether `graph` has the plain form that patches start from: one root, and each vertex hangs by one edge."""
    order = graph.folded.order
    return order[0] >= 0 and len(order) == len(graph.index) == graph.edges + 1


class Patch:
    """One change of `graph`.

    Making it raises Unlike and leaves the graph alone; `apply` changes it in place, and what it leaves should it fail
    is of no use.
    """

    def __init__(
        self,
        graph: Graph,
        vertices: tuple[list[VertexBlock], list[VertexBlock]],
        edges: tuple[list[EdgeBlock], list[EdgeBlock]],
    ) -> None:
        """`vertices` and `edges`: the blocks before and after."""
        self.graph, self.tree = graph, graph.folded.tree
        self.limit = max(MIN_CHANGED, len(graph.index) // MAX_SHARE)
        if graph.patches >= MAX_PATCHES or len(graph.keys) > max(MIN_CHANGED, MAX_GROWTH * len(graph.index)):
            raise Unlike
        self.vertices = self._diff(*vertices)
        if len(graph.index) - len(self.vertices.gone) + len(self.vertices.new) < 2:
            raise Unlike  # a graph without an edge is none
        first = len(self.tree.atom_of)
        self.number = {key: first + at for at, key in enumerate(self.vertices.new)}
        self.above = self._edges(*edges)
        self.depth = self._dirty()

    # -- what changed ------------------------------------------------------------------------------

    def _diff(self, old: list[VertexBlock], new: list[VertexBlock]) -> Vertices:
        found = Vertices()
        changed = 0
        for left, before, after, right in _hunks(old, new):
            changed += sum(len(block.keys) for block in chain(before, after))
            if changed > self.limit:
                raise Unlike
            self._hunk(found, left, _rows(before), _rows(after), right)
        return found

    def _hunk(
        self, found: Vertices, left: str | None, before: dict[str, Row], after: dict[str, Row], right: str | None
    ) -> None:
        """Compare a stretch of the document; `left` and `right` are the keys beside it."""
        index = self.graph.index
        if [key for key in before if key in after] != [key for key in after if key in before]:
            raise Unlike  # equal siblings stand in the order of the document
        found.gone.update(index[key] for key in before if key not in after)
        run: list[str] = []
        for key, row in after.items():
            old = before.get(key)
            if old is None:
                if key in index or key in found.new:
                    raise Unlike
                run.append(key)
                continue
            if old != row:
                found.changed[index[key]] = row
            self._label(found, left, run, key, after)
            left, run = key, []
        self._label(found, left, run, right, after)

    def _label(
        self, found: Vertices, left: str | None, run: list[str], right: str | None, rows: dict[str, Row]
    ) -> None:
        """Give the new vertices `run` their places between two that were there."""
        if not run:
            return
        count = len(run)
        low = self._place(left) if left is not None else None
        high = self._place(right) if right is not None else None
        if low is None:
            if high is None:
                raise Unlike
            low = high - count - 1
        elif high is None:
            high = low + count + 1
        labels = [low + (high - low) * (at + 1) / (count + 1) for at in range(count)]
        if any(a >= b for a, b in zip([low, *labels], [*labels, high], strict=True)):
            raise Unlike  # no room is left between two numbers
        found.new.update((key, (label, rows[key])) for key, label in zip(run, labels, strict=True))

    def _place(self, key: str) -> float:
        number = self.graph.index.get(key)
        if number is None:
            raise Unlike
        return self.graph.labels.get(number, number)

    def _edges(self, old: list[EdgeBlock], new: list[EdgeBlock]) -> dict[int, int]:
        """The parents of new vertices. Every other edge must have stayed, but those of vertices that went."""
        before, after = Counter(map(id, old)), Counter(map(id, new))
        was = _pairs([block for block in old if before[id(block)] > after[id(block)]])
        now = _pairs([block for block in new if after[id(block)] > before[id(block)]])
        if len(was) + len(now) > 2 * self.limit:
            raise Unlike
        gone, come = set(was), set(now)
        if len(come) != len(now):
            raise Unlike
        index, numbers = self.graph.index, self.number
        lost = {index[end] for _, end in gone - come}
        above: dict[int, int] = {}
        for start, end in come - gone:
            child, parent = numbers.get(end), numbers.get(start, index.get(start))
            if child is None or parent is None or child in above or parent in self.vertices.gone:
                raise Unlike
            above[child] = parent
        kids = self.tree.kids
        if lost != self.vertices.gone or len(above) != len(numbers):
            raise Unlike
        if not all(lost.issuperset(kids[vertex] or ()) for vertex in lost):
            raise Unlike
        return above

    def _dirty(self) -> dict[int, int]:
        """The vertices whose shape or row of children may change, with their depths: all up to the root."""
        parent, above, gone = self.tree.parent, self.above, self.vertices.gone
        depth = {self.graph.folded.order[0]: 0}
        for vertex in chain(self.vertices.changed, above, {parent[v] for v in gone} - gone):
            path = []
            while vertex not in depth:
                path.append(vertex)
                if vertex < 0 or len(path) > MAX_DEPTH:
                    raise Unlike
                vertex = above.get(vertex, -1) if vertex >= len(parent) else parent[vertex]
            base = depth[vertex]
            if base + len(path) >= MAX_DEPTH:
                raise Unlike
            depth.update((v, base + at + 1) for at, v in enumerate(reversed(path)))
        return depth

    # -- changing it -------------------------------------------------------------------------------

    def apply(self) -> None:
        tree, depth = self.tree, self.depth
        downwards = sorted(depth, key=depth.__getitem__)
        stood = self._stood(downwards)
        self._update()
        loose: dict[int, list[int]] = {}
        for vertex in downwards[1:]:
            loose.setdefault(tree.parent[vertex], []).append(vertex)
        gone = self.vertices.gone
        for vertex in reversed(downwards):
            row = [child for child in tree.kids[vertex] or () if child not in depth and child not in gone]
            for child in loose.get(vertex, ()):
                insort(row, child, key=self._sort_key)
            tree.kids[vertex] = row or None
            tree.shape_of[vertex] = tree.shape(vertex)
        for vertex in gone:
            tree.kids[vertex] = None
        self.graph.folded = self._numbered(stood)
        self.graph.edges = len(self.graph.index) - 1
        self.graph.patches += 1

    def _stood(self, downwards: list[int]) -> Stood:
        """Where the children of dirty vertices stood."""
        shapes, shape_of, kids = self.tree.shapes, self.tree.shape_of, self.tree.kids
        positions, ordinals = {downwards[0]: 0}, {downwards[0]: 0}
        for vertex in downwards:
            if vertex >= len(kids):
                continue
            position = positions[vertex] + 1
            ordinal = ordinals[vertex] + shapes[shape_of[vertex]].is_target
            for child in kids[vertex] or ():
                positions[child], ordinals[child] = position, ordinal
                shape = shapes[shape_of[child]]
                position += shape.vertices
                ordinal += shape.targets
        return positions, ordinals

    def _update(self) -> None:
        """Bring the rows by vertex number up to date. Numbers of vertices that went stay unused."""
        graph, tree = self.graph, self.tree
        atoms = {atom: at for at, atom in enumerate(tree.atoms)}

        def atom_number(atom: Atom) -> int:
            if atom not in atoms:
                atoms[atom] = len(tree.atoms)
                tree.atoms.append(atom)
                tree.leaves.append(-1)
            return atoms[atom]

        for vertex in self.vertices.gone:
            del graph.index[graph.keys[vertex]]
            graph.targets.pop(vertex, None)
            graph.labels.pop(vertex, None)
        rows = [(vertex, row) for vertex, row in self.vertices.changed.items()]
        added = plain_numbers(list(self.vertices.new))
        if graph.numbers is None or added is None:
            graph.numbers = None
        else:
            graph.numbers += added
        for key, (label, row) in self.vertices.new.items():
            vertex = graph.index[key] = len(graph.keys)
            graph.keys.append(key)
            graph.labels[vertex] = label
            tree.parent.append(self.above[vertex])
            tree.atom_of.append(-1)
            tree.kids.append(None)
            tree.shape_of.append(-1)
            rows.append((vertex, row))
        for vertex, (atom, target) in rows:
            tree.atom_of[vertex] = atom_number(atom)
            if target is not None:
                graph.targets[vertex] = target
            else:
                graph.targets.pop(vertex, None)

    def _sort_key(self, vertex: int) -> tuple[object, ...]:
        """The order of siblings, as `fold` has it."""
        graph, tree = self.graph, self.tree
        shape = tree.shapes[tree.shape_of[vertex]]
        target = graph.targets[vertex].key if shape.is_target else ()
        return shape.digest, target, graph.labels.get(vertex, vertex)

    def _numbered(self, stood: Stood) -> Folded:
        """The new numbering: dirty vertices one by one, and between them stretches of the old one."""
        tree, dirty, old = self.tree, self.depth, self.graph.folded
        shapes, shape_of, kids = tree.shapes, tree.shape_of, tree.kids
        positions, ordinals = stood
        order: list[int] = []
        targets: list[int] = []
        start = stop = first = last = 0  # the stretch that was met and not yet copied, and that of ordinals

        def copy() -> None:
            order.extend(old.order[start:stop])
            targets.extend(old.targets[first:last])

        stack = [old.order[0]]
        while stack:
            vertex = stack.pop()
            if vertex not in dirty:
                position, ordinal = positions[vertex], ordinals[vertex]
                shape = shapes[shape_of[vertex]]
                if position != stop:
                    copy()
                    start, first = position, ordinal
                stop, last = position + shape.vertices, ordinal + shape.targets
                continue
            copy()
            start = stop = first = last = 0
            order.append(vertex)
            if shapes[shape_of[vertex]].is_target:
                targets.append(vertex)
            stack.extend(reversed(kids[vertex] or ()))
        copy()
        return Folded(shapes[shape_of[order[0]]], order, targets, tree)


def _rows(blocks: list[VertexBlock]) -> dict[str, Row]:
    """Vertices by key, in their order. Raises Unlike for a key that comes twice."""
    rows: dict[str, Row] = {}
    for block in blocks:
        targets = dict(block.targets)
        rows.update((key, (block.atoms[at], targets.get(at))) for at, key in enumerate(block.keys))
    if len(rows) != sum(len(block.keys) for block in blocks):
        raise Unlike
    return rows


def _pairs(blocks: list[EdgeBlock]) -> list[tuple[str, str]]:
    return [pair for block in blocks for pair in zip(block.sources, block.targets, strict=True)]


Hunk = tuple[str | None, list[VertexBlock], list[VertexBlock], str | None]


def _hunks(old: list[VertexBlock], new: list[VertexBlock]) -> Iterator[Hunk]:
    """Where two rows of blocks differ: the key before, the blocks of either row, the key after."""
    # At the ends of a list elements come one by one, and are equal without being the same.
    start, short = 0, min(len(old), len(new))
    while start < short and old[start] == new[start]:
        start += 1
    kept = 0
    while kept < short - start and old[-1 - kept] == new[-1 - kept]:
        kept += 1
    end_old, end_new = len(old) - kept, len(new) - kept
    place = {id(old[at]): at for at in range(start, end_old)}
    done, begun = start, start
    for at in range(start, end_new + 1):
        found = end_old if at == end_new else place.get(id(new[at]), -1)
        if found < 0:
            continue
        if found < done:
            raise Unlike  # blocks changed places
        if found > done or at > begun:
            yield _last_key(new, begun), old[done:found], new[begun:at], _first_key(new, at)
        done, begun = found + 1, at + 1


def _last_key(blocks: list[VertexBlock], before: int) -> str | None:
    return next((blocks[at].keys[-1] for at in range(before - 1, -1, -1) if blocks[at].keys), None)


def _first_key(blocks: list[VertexBlock], start: int) -> str | None:
    return next((blocks[at].keys[0] for at in range(start, len(blocks)) if blocks[at].keys), None)
