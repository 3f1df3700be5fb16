"""Subsystem graphs (io, spack, modules, ...): free metadata that vertices of the containment graph link to.

A subsystem is kept as groups: vertices that are reached from the same set of containment vertices, with their
metadata as text. A requirement is answered with the set of containment vertices that reach a vertex whose field
a match algorithm accepts. That is apart from shapes, so clusters that differ only in software still fold equal.
A document of a user space (its vertices have `attributes`: compspec's of spack and of modules) that links to no vertex
of the cluster is of all its nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rainbow.errors import InvalidGraph
from rainbow.ranges.idset import EMPTY, IdSet, Range
from rainbow.resources.readers.jgf import clip, well_formed
from rainbow.resources.requirements import MatchAlgorithm

Arguments = tuple[tuple[str, str], ...]
"""Of a match algorithm, as `Requirement` keeps them."""

Asked = tuple[str, MatchAlgorithm, Arguments]
"""A field, and what is asked of its value."""

MAX_FIELDS = 1000
"""Fields of one vertex that are kept."""

MAX_KNOWN = 64
"""Requirements whose holders are remembered, for each subsystem."""

MAX_STEPS = 1_000_000
"""Of following links down through a subsystem."""

MAX_BITS = 1024
"""Whole numbers longer than this are not kept."""


@dataclass(frozen=True, slots=True)
class Holders:
    """A set of containment vertices: execution targets by ordinal, and others by position."""

    targets: IdSet = EMPTY
    others: IdSet = EMPTY

    def __or__(self, other: Holders) -> Holders:
        return Holders(self.targets | other.targets, self.others | other.others)

    def __and__(self, other: Holders) -> Holders:
        return Holders(self.targets & other.targets, self.others & other.others)

    def __bool__(self) -> bool:
        return bool(self.targets) or bool(self.others)


NONE_HOLD = Holders()


class Subsystem:
    """One subsystem of one cluster; immutable. `groups` pairs holders with the metadata they reach."""

    __slots__ = ("_fields", "_known", "groups")

    def __init__(self, groups: list[tuple[Holders, list[dict[str, str]]]]) -> None:
        self.groups = groups
        self._fields: dict[str, dict[str, Holders]] = {}
        self._known: dict[tuple[Asked, ...], Holders] = {}

    def values(self, field: str) -> Mapping[str, Holders]:
        """For each value of `field`, who reaches a vertex with it."""
        known = self._fields.get(field)
        if known is None:
            collected: dict[str, list[Holders]] = {}
            for holders, rows in self.groups:
                for value in {row[field] for row in rows if field in row}:
                    collected.setdefault(value, []).append(holders)
            known = self._fields[field] = {value: _union(rows) for value, rows in collected.items()}
        return known

    def holders(self, *asked: Asked) -> Holders:
        """Who reaches some vertex of which each field is what is asked of it; remembered."""
        known = self._known.get(asked)
        if known is None:
            tests = [(field, algorithm.accepting(dict(arguments))) for field, algorithm, arguments in asked]
            if len(tests) == 1:
                [(field, accepts)] = tests
                found = [who for value, who in self.values(field).items() if accepts(value)]
            else:
                found = [who for who, rows in self.groups if any(_meets(row, tests) for row in rows)]
            known = _union(found)
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[asked] = known
        return known


def _meets(row: Mapping[str, str], tests: list[tuple[str, Callable[[str], bool]]]) -> bool:
    return all(field in row and accepts(row[field]) for field, accepts in tests)


def _union(rows: list[Holders]) -> Holders:
    if not rows:
        return NONE_HOLD
    if len(rows) == 1:
        return rows[0]
    targets: list[Range] = []
    others: list[Range] = []
    for row in rows:
        targets += row.targets.ranges
        others += row.others.ranges
    return Holders(IdSet(targets), IdSet(others) if others else EMPTY)


def text_value(value: object) -> str | None:
    """A metadata value as it is compared: text. None for what is not a single value."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) or (isinstance(value, int) and value.bit_length() <= MAX_BITS):
        return str(value)
    return None


class SubsystemRows:
    """Takes the vertices and edges of a subsystem document, then links them."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}
        self.rows: list[dict[str, str]] = []
        self.edges: list[tuple[str, str]] = []
        self.root_type: str | None = None
        #: Whether it is of a user space: then it commonly has no links.
        self.nested = False

    def vertex(self, key: str, element: object) -> None:
        if not isinstance(element, Mapping):
            raise InvalidGraph(f"subsystem vertex {clip(key)}: {clip(element)} is not an object")
        if key in self.index:
            raise InvalidGraph(f"subsystem vertex {clip(key)} is defined twice")
        metadata = element.get("metadata")
        if metadata is None:
            metadata = {}
        if not isinstance(metadata, Mapping):
            raise InvalidGraph(f"subsystem vertex {clip(key)}: metadata is {clip(metadata)}")
        row: dict[str, str] = {}
        # User-space subsystems nest their fields one level deeper, beside names that only number the vertices.
        more = metadata.get("attributes")
        self.nested = self.nested or isinstance(more, Mapping)
        for part in (metadata, more):
            for name, value in part.items() if isinstance(part, Mapping) else ():
                text = text_value(value)
                if text is not None and (name in row or len(row) < MAX_FIELDS):
                    where = f"subsystem vertex {clip(key)}"
                    row[well_formed(str(name), where)] = well_formed(text, where)
        self.index[key] = len(self.rows)
        self.rows.append(row)

    def edge(self, edge: object) -> None:
        if not isinstance(edge, Mapping):
            raise InvalidGraph(f"subsystem edges: {clip(edge)} is not an object with source and target")
        source, target = edge.get("source"), edge.get("target")
        if isinstance(source, bool) or not isinstance(source, (str, int)) or not isinstance(target, (str, int)):
            raise InvalidGraph(f"subsystem edge {clip(edge)} has no source and target")
        relation = edge.get("relation")
        metadata = edge.get("metadata")
        if relation is None and isinstance(metadata, Mapping) and isinstance(metadata.get("name"), Mapping):
            relation = next(iter(metadata["name"].values()), None)
        if relation in (None, "contains"):
            self.edges.append((str(source), str(target)))

    def link(self, locate: Callable[[str], Holders | None], nodes: IdSet) -> tuple[Subsystem, list[str]]:
        """Resolve edges. `locate` finds a containment vertex by key; `nodes` are all that the cluster has.

        Returns the subsystem and warnings about vertices that nothing leads to.

        Raises:
            InvalidGraph: an edge to nothing, or from nothing.
        """
        below: dict[int, list[int]] = {}
        links: list[list[Holders]] = [[] for _ in self.rows]
        held: set[int] = set()
        for source, target in self.edges:
            end = self.index.get(target)
            if end is None:
                raise InvalidGraph(
                    f"subsystem edge {clip(source)} -> {clip(target)}: the subsystem has no vertex {clip(target)}"
                )
            start = self.index.get(source)
            if start is not None:
                below.setdefault(start, []).append(end)
                held.add(end)
                continue
            holder = locate(source)
            if holder is None:
                raise InvalidGraph(
                    f"subsystem edge {clip(source)} -> {clip(target)}: the cluster has no vertex {clip(source)}"
                )
            links[end].append(holder)
        # With a name of the cluster's, a link was meant.
        if self.nested and not any(links) and not any(map(locate, self.index)):
            return Subsystem([(Holders(nodes), self.rows)]), []
        own = [_union(row) for row in links]
        reached = [IdSetPair(who) for who in own]
        left = MAX_STEPS
        for start, who in enumerate(own):
            if who:
                left -= _spread(start, who, below, reached, left)
        groups: dict[Holders, list[dict[str, str]]] = {}
        warnings: list[str] = []
        names = list(self.index)
        for number, row in enumerate(self.rows):
            who = reached[number].who
            if who:
                groups.setdefault(who, []).append(row)
            elif number not in held and number > 0 and not below.get(number):
                warnings.append(f"nothing links to vertex {clip(names[number])}")
        return Subsystem(list(groups.items())), warnings


class IdSetPair:
    """Holders that grow while links are spread downwards."""

    __slots__ = ("who",)

    def __init__(self, who: Holders) -> None:
        self.who = who


def _spread(start: int, who: Holders, below: dict[int, list[int]], reached: list[IdSetPair], most: int) -> int:
    """Follow one vertex's links: it reaches all that hangs below. Returns the steps it took, of at most `most`."""
    steps = 0
    stack = list(below.get(start, ()))
    seen = {start}
    while stack:
        vertex = stack.pop()
        if vertex in seen:
            continue
        seen.add(vertex)
        known = reached[vertex].who
        if who.targets.issubset(known.targets) and who.others.issubset(known.others):
            steps += 1  # what hangs below has it already, or gets it from this vertex
            continue
        reached[vertex].who = known | who
        steps += 1 + len(reached[vertex].who.targets.ranges) + len(reached[vertex].who.others.ranges)
        if steps > most:
            raise InvalidGraph("the subsystem links too many vertices to too many others")
        stack.extend(below.get(vertex, ()))
    return steps


def elements(nodes: object) -> Iterator[tuple[str, Any]]:
    """Key and element of ``graph.nodes``, whether an object or a list."""
    if isinstance(nodes, Mapping):
        for key, element in nodes.items():
            yield str(key), element
    elif isinstance(nodes, list):
        for element in nodes:
            if not isinstance(element, Mapping) or not isinstance(element.get("id"), (str, int)):
                raise InvalidGraph(f"graph.nodes: a vertex without an id: {clip(element)}")
            yield str(element["id"]), element
    else:
        raise InvalidGraph(f"graph.nodes is {clip(nodes)}; give a list or an object")
