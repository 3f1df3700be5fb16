"""JSON Graph Format: collect vertices and edges of any of its dialects into rows that can be folded.

Dialects (shared formats, section 1): A nodes as an object, edges with `relation`; B nodes as a list, edges
with `metadata.subsystem`; C edges with `metadata.name.<subsystem>`; D shorthand, edges without metadata.
One document may hold several subsystems; only the edges of the one asked for make the tree.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice, repeat
from typing import Any

from rainbow.errors import InvalidGraph
from rainbow.ranges.hostlist import HostRange, single
from rainbow.resources.graph.fold import Atom, Folded, NotATree, fold
from rainbow.resources.graph.shape import TARGETS
from rainbow.resources.graph.vertex_keys import VertexKeys, plain_numbers

CONTAINMENT = "containment"

MAX_VERTICES = 20_000_000
MAX_SIZE = 2**63 - 1
MAX_RANK = 2**53

_NUMBER_AT_END = re.compile(r"[0-9]{1,18}\Z")


def clip(value: object, limit: int = 60) -> str:
    """`value` as it may stand in a message: one line, not too long."""
    try:
        text = repr(value)
    except ValueError:  # a number of more digits than Python likes to write
        text = "a very long number"
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _listed_key(element: Any) -> str:
    if type(element) is not dict:
        raise InvalidGraph(f"graph.nodes: {clip(element)} is not an object with id and metadata")
    key = element.get("id")
    if type(key) is str:
        return key
    if type(key) is not int:
        raise InvalidGraph(f"graph.nodes: a vertex without an id: {clip(element)}")
    return str(key)


def _metadata(key: str, element: Any) -> Mapping[str, Any]:
    if type(element) is not dict:
        raise InvalidGraph(f"vertex {clip(key)}: {clip(element)} is not an object")
    metadata = element.get("metadata")
    if type(metadata) is not dict:
        raise InvalidGraph(f"vertex {clip(key)}: no metadata with at least a type")
    return metadata


def _end(edge: Mapping[str, Any], which: str) -> str:
    """The vertex key at one end of an edge; numbers stand for their text."""
    key = edge.get(which)
    if type(key) is int:
        return str(key)
    if type(key) is not str:
        raise InvalidGraph(f"graph.edges: an edge without {which}: {clip(edge)}")
    return key


def well_formed(text: str, where: str) -> str:
    """`text`, which can be written as UTF-8. JSON can spell half a character, which cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidGraph(f"{where}: {clip(text)} is no text that can be written") from None
    return text


@dataclass(slots=True)
class Target:
    """What is kept of an execution target beside its shape. Not to be changed."""

    name: str
    rank: int
    properties: tuple[str, ...]
    _key: tuple[Any, ...] | None = field(default=None, init=False, compare=False, repr=False)
    _piece: HostRange | None = field(default=None, init=False, compare=False, repr=False)

    @property
    def key(self) -> tuple[Any, ...]:
        """Sorts targets: those with equal properties together, then by rank and name."""
        if self._key is None:
            match = _NUMBER_AT_END.search(self.name)
            number = int(match[0]) if match else -1
            self._key = (self.properties, self.rank, self.name[: match.start()] if match else self.name, number)
        return self._key

    @property
    def piece(self) -> HostRange:
        """The name as a piece of a host list."""
        if self._piece is None:
            self._piece = single(self.name)
        return self._piece


@dataclass(slots=True)
class VertexBlock:
    """What is kept of some vertices: keys, atoms, and for execution targets more (by place in the block)."""

    keys: list[str]
    atoms: list[Atom]
    targets: list[tuple[int, Target]]
    numbers: array[int] | None = field(init=False, compare=False)
    """The keys as numbers, where all of them are; see `plain_numbers`."""

    def __post_init__(self) -> None:
        self.numbers = plain_numbers(self.keys)


@dataclass(slots=True)
class EdgeBlock:
    """The ends of some edges of the subsystem asked for."""

    sources: list[str]
    targets: list[str]


@dataclass(slots=True)
class Graph:
    """A graph in rows by vertex number, and what it folds to."""

    folded: Folded
    index: dict[str, int]
    keys: list[str]
    numbers: array[int] | None
    """The keys as numbers; None when one of them is none."""
    targets: dict[int, Target]
    edges: int
    labels: dict[int, float] = field(default_factory=dict)
    """Where vertices that came later stand in the document, between the numbers of those that were there."""
    patches: int = 0
    """How many changes it was carried over."""

    def packed_keys(self) -> VertexKeys:
        """The keys by position. Raises InvalidGraph for one that is no proper text."""
        order, numbers, keys = self.folded.order, self.numbers, self.keys
        if numbers is not None and order[0] >= 0:
            listed = numbers.tolist()  # twice as fast to pick from
            made = VertexKeys.of_numbers([listed[v] for v in order])
            if made is not None:
                return made
        return VertexKeys.of([keys[v] if v >= 0 else "" for v in order])


class JgfRows:
    """Takes the elements of ``graph.nodes`` and ``graph.edges`` block by block, in either order."""

    def __init__(self, subsystem: str = CONTAINMENT) -> None:
        self.subsystem = subsystem
        self.index: dict[str, int] = {}
        self.atoms: list[Atom] = []
        self.atom_of: list[int] = []
        self.targets: dict[int, Target] = {}
        self.sources: list[str] = []
        self.ends: list[str] = []
        self.warnings: list[str] = []
        self.numbers: array[int] | None = array("q")
        self._atom_index: dict[Atom, int] = {}
        self._known_atoms: dict[tuple[Any, Any, Any], Atom] = {}
        self._property_rows: dict[tuple[str, ...], tuple[str, ...]] = {(): ()}

    # -- vertices --------------------------------------------------------------------------------

    def listed(self, elements: list[Any]) -> VertexBlock:
        """Elements of a list of nodes: ``{"id": ..., "metadata": {...}}``."""
        try:
            keys = [element["id"] for element in elements]
        except (KeyError, TypeError, IndexError):
            keys = [None] * len(elements)
        if set(map(type, keys)) != {str}:
            keys = [_listed_key(element) for element in elements]
        return self._block(keys, elements)

    def keyed(self, items: list[tuple[Any, Any]]) -> VertexBlock:
        """Items of an object of nodes: ``"key": {"metadata": {...}}``."""
        return self._block([str(key) for key, _ in items], [element for _, element in items])

    def _block(self, keys: list[str], elements: list[Any]) -> VertexBlock:
        try:
            rows = [element["metadata"] for element in elements]
            known = self._known_atoms
            atoms = [known[row["type"], row.get("size", 1), row.get("unit", "")] for row in rows]
        except (KeyError, TypeError, AttributeError, IndexError):
            # Something new in it, or something wrong.
            rows = [_metadata(key, element) for key, element in zip(keys, elements, strict=True)]
            atoms = [self._atom(key, row) for key, row in zip(keys, rows, strict=True)]
        targets = [(at, self._target(keys[at], rows[at])) for at, atom in enumerate(atoms) if atom[0] in TARGETS]
        return VertexBlock(keys, atoms, targets)

    def add_vertices(self, block: VertexBlock) -> None:
        """Append a block, made by this or by another `JgfRows`."""
        index, first = self.index, len(self.atom_of)
        if first + len(block.keys) > MAX_VERTICES:
            raise InvalidGraph(f"the graph has more than {MAX_VERTICES} vertices")
        index.update(zip(block.keys, range(first, first + len(block.keys)), strict=True))
        if len(index) != first + len(block.keys):
            before = set(islice(index, first))  # updating a key leaves it where it stood
            twice = next(key for at, key in enumerate(block.keys) if key in before or key in block.keys[:at])
            raise InvalidGraph(f"vertex {clip(twice)} is defined twice")
        if self.numbers is None or block.numbers is None:
            self.numbers = None
        else:
            self.numbers += block.numbers
        numbers = self._atom_index
        try:
            self.atom_of += [numbers[atom] for atom in block.atoms]
        except KeyError:
            for atom in block.atoms:
                if atom not in numbers:
                    numbers[atom] = len(self.atoms)
                    self.atoms.append(atom)
            self.atom_of += [numbers[atom] for atom in block.atoms]
        for at, target in block.targets:
            self.targets[first + at] = target

    def _atom(self, key: str, metadata: Mapping[str, Any]) -> Atom:
        kind, size, unit = metadata.get("type"), metadata.get("size", 1), metadata.get("unit", "")
        if type(kind) is not str or not kind:
            raise InvalidGraph(f"vertex {clip(key)}: metadata.type is {clip(kind)}; give a text")
        whole = size
        if type(whole) is bool or (type(whole) is float and whole.is_integer()):
            whole = int(whole)  # equal numbers are one atom, which must not hang on which was met first
        if type(whole) is not int or not 0 <= whole <= MAX_SIZE:
            raise InvalidGraph(f"vertex {clip(key)}: size {clip(size)} is not a whole number from 0")
        if unit is None:
            unit = ""
        if type(unit) is not str:
            raise InvalidGraph(f"vertex {clip(key)}: unit {clip(unit)} is not a text")
        well_formed(kind + unit, f"vertex {clip(key)}")
        return self._known_atoms.setdefault((kind, whole, unit), (kind, whole, unit))

    def _target(self, key: str, metadata: Mapping[str, Any]) -> Target:
        name = metadata.get("name")
        if type(name) is not str or not name:
            # Shorthand (dialect D): basename (else type), then id (else the outer id).
            number = metadata.get("id")
            base = metadata.get("basename")
            if type(base) is not str or not base:
                base = metadata["type"]
            name = f"{base}{key if number is None else number}"
        rank = metadata.get("rank", -1)
        if type(rank) is not int:
            rank = int(rank) if type(rank) is str and rank.isascii() and rank.isdigit() and len(rank) < 16 else -1
        properties: tuple[str, ...] = ()
        given = metadata.get("properties")
        if given:
            # The key is the property; values are mostly empty.
            if not isinstance(given, (dict, list)) or not all(type(item) is str for item in given):
                raise InvalidGraph(f"vertex {clip(key)}: properties is {clip(given)}; give an object")
            row = tuple(sorted({well_formed(item, "properties") for item in given}))
            properties = self._property_rows.setdefault(row, row)
        well_formed(name, f"vertex {clip(key)}")
        return Target(name, rank if rank <= MAX_RANK else -1, properties)

    # -- edges -----------------------------------------------------------------------------------

    def edges(self, elements: list[Any]) -> EdgeBlock:
        """Elements of ``graph.edges``; those of other subsystems and the mirrored `in` are left out."""
        sources: list[str] = []
        ends: list[str] = []
        subsystem = self.subsystem
        plain = subsystem == CONTAINMENT
        for edge in elements:
            if type(edge) is not dict:
                raise InvalidGraph(f"graph.edges: {clip(edge)} is not an object with source and target")
            source, target = edge.get("source"), edge.get("target")
            if type(source) is not str or type(target) is not str:
                source, target = _end(edge, "source"), _end(edge, "target")
            if "relation" in edge and edge["relation"] not in ("contains", None):
                continue
            metadata = edge.get("metadata")
            if metadata:
                if type(metadata) is not dict:
                    raise InvalidGraph(f"graph.edges: metadata {clip(metadata)} is not an object")
                names = metadata.get("name")
                if type(names) is dict:
                    if names.get(subsystem) != "contains":
                        continue
                elif metadata.get("subsystem", CONTAINMENT) != subsystem:
                    continue
            elif not plain:
                continue
            sources.append(source)
            ends.append(target)
        return EdgeBlock(sources, ends)

    def add_edges(self, block: EdgeBlock) -> None:
        self.sources += block.sources
        self.ends += block.targets

    # -- the tree --------------------------------------------------------------------------------

    def parents(self) -> list[int]:
        """The parent of each vertex. A second parent is left out, with a warning: nothing may count twice."""
        index = self.index
        try:
            above = list(map(index.__getitem__, self.sources))
            below = list(map(index.__getitem__, self.ends))
        except KeyError:
            source, target = next(
                (s, t) for s, t in zip(self.sources, self.ends, strict=True) if s not in index or t not in index
            )
            missing = source if source not in index else target
            raise InvalidGraph(f"edge {clip(source)} -> {clip(target)}: there is no vertex {clip(missing)}") from None
        # Of a key that comes twice a dict keeps the last: backwards, so that it is the first edge.
        first = dict(zip(reversed(below), reversed(above), strict=True))
        if len(first) < len(below):
            again = next((end for end, start in zip(below, above, strict=True) if first[end] != start), None)
            if again is not None:
                name = clip(next(islice(index, again, None)))
                self.warnings.append(f"vertex {name} is contained more than once; only the first counts")
        return list(map(first.get, range(len(self.atom_of)), repeat(-1)))

    def folded(self) -> Graph:
        """Fold what was collected.

        Raises:
            InvalidGraph: no vertex or edge, an edge to nothing, no root, a circle, or too deep.
        """
        if not self.atom_of:
            raise InvalidGraph("the graph has no vertices")
        if not self.sources:
            raise InvalidGraph(f"the graph has no edges of the {self.subsystem} subsystem")
        parent, edges = self.parents(), len(self.sources)
        self.sources, self.ends = [], []  # room for what follows
        keys = list(self.index)
        try:
            made = fold(self.atoms, self.atom_of, parent, lambda vertex: self.targets[vertex].key)
        except NotATree as exc:
            where = f" at vertex {clip(keys[exc.args[1]])}" if len(exc.args) > 1 else ""
            raise InvalidGraph(f"{exc.args[0]}{where}: no root to start from") from None
        if self.subsystem == CONTAINMENT:
            self._warn_unlinked(made, keys)
        return Graph(made, self.index, keys, self.numbers, self.targets, edges)

    def _warn_unlinked(self, made: Folded, keys: list[str]) -> None:
        if len(made.order) == len(keys) and made.order[0] >= 0:
            return
        reached = set(made.order)
        lone = [keys[v] for v in range(len(keys)) if v not in reached]
        if lone:
            shown = ", ".join(map(clip, lone[:3])) + (" and more" if len(lone) > 3 else "")
            self.warnings.append(f"{len(lone)} vertices hang nowhere and are left out: {shown}")
