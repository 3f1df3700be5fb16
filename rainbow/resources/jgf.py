"""JSON Graph Format: collect vertices and edges of any of its dialects into rows that can be folded.

Dialects (shared formats, section 1): A nodes as an object, edges with `relation`; B nodes as a list, edges
with `metadata.subsystem`; C edges with `metadata.name.<subsystem>`; D shorthand, edges without metadata.
One document may hold several subsystems; only the edges of the one asked for make the tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from rainbow.errors import InvalidGraph
from rainbow.resources.fold import Atom, Folded, NotATree, fold
from rainbow.resources.shape import TARGETS

CONTAINMENT = "containment"

MAX_VERTICES = 20_000_000
MAX_SIZE = 2**63 - 1

_NUMBER_AT_END = re.compile(r"[0-9]{1,18}\Z")


def clip(value: object, limit: int = 60) -> str:
    """`value` as it may stand in a message: one line, not too long."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _end(edge: Mapping[str, Any], which: str) -> str:
    """The vertex key at one end of an edge; numbers stand for their text."""
    key = edge.get(which)
    if type(key) is int:
        return str(key)
    if type(key) is not str:
        raise InvalidGraph(f"graph.edges: an edge without {which}: {clip(edge)}")
    return key


class Target:
    """What is kept of an execution target beside its shape."""

    __slots__ = ("name", "properties", "rank")

    def __init__(self, name: str, rank: int, properties: tuple[str, ...]) -> None:
        self.name, self.rank, self.properties = name, rank, properties


class JgfRows:
    """Takes the elements of ``graph.nodes`` and ``graph.edges`` one by one, in either order."""

    def __init__(self, subsystem: str = CONTAINMENT) -> None:
        self.subsystem = subsystem
        self.index: dict[str, int] = {}
        self.atoms: list[Atom] = []
        self.atom_of: list[int] = []
        self.targets: dict[int, Target] = {}
        self.pairs: list[tuple[str, str]] = []
        self.warnings: list[str] = []
        self._atom_index: dict[tuple[Any, Any, Any], int] = {}
        self._property_rows: dict[tuple[str, ...], tuple[str, ...]] = {(): ()}

    # -- vertices --------------------------------------------------------------------------------

    def listed(self, elements: Iterable[Any]) -> None:
        """Elements of a list of nodes: ``{"id": ..., "metadata": {...}}``."""
        for element in elements:
            if type(element) is not dict:
                raise InvalidGraph(f"graph.nodes: {clip(element)} is not an object with id and metadata")
            key = element.get("id")
            if type(key) is not str:
                if type(key) is not int:
                    raise InvalidGraph(f"graph.nodes: a vertex without an id: {clip(element)}")
                key = str(key)
            self.vertex(key, element)

    def keyed(self, elements: Iterable[tuple[str, Any]]) -> None:
        """Items of an object of nodes: ``"key": {"metadata": {...}}``."""
        for key, element in elements:
            if type(element) is not dict:
                raise InvalidGraph(f"vertex {clip(key)}: {clip(element)} is not an object")
            self.vertex(str(key), element)

    def vertex(self, key: str, element: Mapping[str, Any]) -> None:
        number = len(self.atom_of)
        if self.index.setdefault(key, number) != number:
            raise InvalidGraph(f"vertex {clip(key)} is defined twice")
        metadata = element.get("metadata")
        if type(metadata) is not dict:
            raise InvalidGraph(f"vertex {clip(key)}: no metadata with at least a type")
        kind = metadata.get("type")
        try:
            atom = self._atom_index[kind, metadata.get("size", 1), metadata.get("unit", "")]
        except (KeyError, TypeError):
            atom = self._new_atom(key, metadata)
        self.atom_of.append(atom)
        if kind in TARGETS:
            self.targets[number] = self._target(key, metadata)

    def _new_atom(self, key: str, metadata: Mapping[str, Any]) -> int:
        kind, size, unit = metadata.get("type"), metadata.get("size", 1), metadata.get("unit", "")
        if type(kind) is not str or not kind:
            raise InvalidGraph(f"vertex {clip(key)}: metadata.type is {clip(kind)}; give a text")
        whole = size
        if type(whole) is float and whole.is_integer():
            whole = int(whole)
        if type(whole) is not int or not 0 <= whole <= MAX_SIZE:
            raise InvalidGraph(f"vertex {clip(key)}: size {clip(size)} is not a whole number from 0")
        if unit is None:
            unit = ""
        if type(unit) is not str:
            raise InvalidGraph(f"vertex {clip(key)}: unit {clip(unit)} is not a text")
        if len(self.atom_of) >= MAX_VERTICES:
            raise InvalidGraph(f"the graph has more than {MAX_VERTICES} vertices")
        atom = (kind, whole, unit)
        number = self._atom_index.get(atom)
        if number is None:
            number = len(self.atoms)
            self.atoms.append(atom)
            self._atom_index[atom] = number
        return number

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
            rank = int(rank) if type(rank) is str and rank.isascii() and rank.isdigit() else -1
        properties: tuple[str, ...] = ()
        given = metadata.get("properties")
        if given:
            # The key is the property; values are mostly empty.
            if not isinstance(given, (dict, list)) or not all(type(item) is str for item in given):
                raise InvalidGraph(f"vertex {clip(key)}: properties is {clip(given)}; give an object")
            row = tuple(sorted(set(given)))
            properties = self._property_rows.setdefault(row, row)
        return Target(name, rank, properties)

    # -- edges -----------------------------------------------------------------------------------

    def edges(self, elements: Iterable[Any]) -> None:
        """Elements of ``graph.edges``; those of other subsystems and the mirrored `in` are left out."""
        append = self.pairs.append
        for edge in elements:
            if type(edge) is not dict:
                raise InvalidGraph(f"graph.edges: {clip(edge)} is not an object with source and target")
            source, target = edge.get("source"), edge.get("target")
            if type(source) is not str or type(target) is not str:
                source, target = _end(edge, "source"), _end(edge, "target")
            relation = edge.get("relation")
            if relation is not None and relation != "contains":
                continue
            metadata = edge.get("metadata")
            if metadata:
                if not self._wanted(metadata):
                    continue
            elif self.subsystem != CONTAINMENT:
                continue
            append((source, target))

    def _wanted(self, metadata: Any) -> bool:
        if type(metadata) is not dict:
            raise InvalidGraph(f"graph.edges: metadata {clip(metadata)} is not an object")
        names = metadata.get("name")
        if type(names) is dict:
            return names.get(self.subsystem) == "contains"
        return bool(metadata.get("subsystem", CONTAINMENT) == self.subsystem)

    # -- the tree --------------------------------------------------------------------------------

    def parents(self) -> list[int]:
        """The parent of each vertex. A second parent is left out, with a warning: nothing may count twice."""
        parent = [-1] * len(self.atom_of)
        index = self.index
        again = 0
        for source, target in self.pairs:
            try:
                above, below = index[source], index[target]
            except KeyError:
                missing = source if source not in index else target
                raise InvalidGraph(
                    f"edge {clip(source)} -> {clip(target)}: there is no vertex {clip(missing)}"
                ) from None
            if parent[below] < 0:
                parent[below] = above
            elif parent[below] != above:
                if not again:
                    self.warnings.append(f"vertex {clip(target)} is contained more than once; only the first counts")
                again += 1
        return parent

    def folded(self) -> tuple[Folded, list[str]]:
        """Fold what was collected. Returns the fold and the vertex keys by vertex number.

        Raises:
            InvalidGraph: no vertex or edge, an edge to nothing, no root, a circle, or too deep.
        """
        if not self.atom_of:
            raise InvalidGraph("the graph has no vertices")
        if not self.pairs:
            raise InvalidGraph(f"the graph has no edges of the {self.subsystem} subsystem")
        parent = self.parents()
        keys = list(self.index)
        try:
            made = fold(self.atoms, self.atom_of, parent, self._sort_key)
        except NotATree as exc:
            where = f" at vertex {clip(keys[exc.args[1]])}" if len(exc.args) > 1 else ""
            raise InvalidGraph(f"{exc.args[0]}{where}: no root to start from") from None
        if len(made.order) < len(keys) and self.subsystem == CONTAINMENT:
            self._warn_unlinked(made, parent, keys)
        return made, keys

    def _warn_unlinked(self, made: Folded, parent: list[int], keys: list[str]) -> None:
        reached = set(made.order)
        lone = [keys[v] for v in range(len(keys)) if v not in reached]
        if lone:
            shown = ", ".join(map(clip, lone[:3])) + (" and more" if len(lone) > 3 else "")
            self.warnings.append(f"{len(lone)} vertices hang nowhere and are left out: {shown}")

    def _sort_key(self, vertex: int) -> Any:
        target = self.targets[vertex]
        match = _NUMBER_AT_END.search(target.name)
        number = int(match[0]) if match else -1
        prefix = target.name[: match.start()] if match else target.name
        return target.properties, target.rank, prefix, number
