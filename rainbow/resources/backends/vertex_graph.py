"""The graph of one cluster as single vertices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from rainbow.jobspec.request import Constraint, HostNeed
from rainbow.ranges.hostlist import Hostlist
from rainbow.ranges.idset import IdSet
from rainbow.resources.graph.shape import Shape
from rainbow.resources.matching.host_needs import said, test_of
from rainbow.resources.readers.summary import Summary


class Vertex:
    """One vertex, with its place in the tree."""

    def __init__(self, key: str, metadata: Mapping[str, Any]) -> None:
        self.key = key
        self.type = str(metadata["type"])
        self.size = int(metadata.get("size", 1))
        label = metadata.get("basename") or metadata["type"]
        self.name = str(metadata.get("name") or f"{label}{metadata.get('id', key)}")
        self.rank = int(metadata.get("rank", -1))
        self.properties = frozenset(metadata.get("properties") or ())
        self.children: list[Vertex] = []
        self.parent: Vertex | None = None
        self.links: dict[str, list[dict[str, str]]] = {}

    @property
    def is_target(self) -> bool:
        return self.type in ("node", "storage_node")

    def below(self) -> Iterator[Vertex]:
        for child in self.children:
            yield child
            yield from child.below()

    def above(self) -> Iterator[Vertex]:
        up = self.parent
        while up is not None:
            yield up
            up = up.parent


class VertexGraph:
    """All vertices of one cluster, parents first."""

    def __init__(self, root: Vertex) -> None:
        self.root = root
        self.vertices = [root, *root.below()]
        self.at_or_above = {v.type for v in self.vertices if v.is_target or any(x.is_target for x in v.below())}


def unfolded(summary: Summary) -> VertexGraph:
    """The vertices that a summary stands for, with the identities of its nodes and what they link to."""
    identity = summary.identity
    hosts = list(identity.hosts) if identity.hosts is not None else []
    ranks = {ordinal + at: rank + at for rank, count, ordinal in identity.ranks for at in range(count)}
    properties: dict[int, list[str]] = {}
    for label, ordinals in identity.properties.items():
        for ordinal in ordinals:
            properties.setdefault(ordinal, []).append(label)
    order: list[Vertex] = []
    targets: list[Vertex] = []
    stack: list[tuple[Shape, Vertex | None]] = [(summary.root, None)]
    while stack:
        shape, parent = stack.pop()
        metadata: dict[str, Any] = {"type": shape.type, "size": shape.size}
        if shape.is_target:
            ordinal = len(targets)
            metadata |= {"rank": ranks.get(ordinal, -1), "properties": properties.get(ordinal)}
            metadata["name"] = hosts[ordinal] if ordinal < len(hosts) else None
        vertex = Vertex(str(len(order)), metadata)
        order.append(vertex)
        if shape.is_target:
            targets.append(vertex)
        if parent is not None:
            vertex.parent = parent
            parent.children.append(vertex)
        for child, count in reversed(shape.children):
            stack += [(child, vertex)] * count
    for name, subsystem in summary.subsystem.items():
        for holders, rows in subsystem.groups:
            for vertex in chain((targets[at] for at in holders.targets), (order[at] for at in holders.others)):
                vertex.links.setdefault(name, []).extend(rows)
    return VertexGraph(order[0])


def holds(constraint: Constraint | None, vertex: Vertex) -> bool:
    """Whether an execution target satisfies an RFC 31 constraint."""
    if constraint is None:
        return True
    values = constraint.values
    if constraint.operator == "and":
        return all(holds(value, vertex) for value in values)
    if constraint.operator == "or":
        return not values or any(holds(value, vertex) for value in values)
    if constraint.operator == "not":
        return not all(holds(value, vertex) for value in values)
    if constraint.operator == "properties":
        return all(
            value[1:] not in vertex.properties if value.startswith("^") else value in vertex.properties
            for value in values
        )
    if constraint.operator == "hostlist":
        return any(vertex.name in set(Hostlist.parse(value)) for value in values)
    return any(vertex.rank in set(IdSet.parse(str(value))) for value in values)


def meets_host(needs: tuple[HostNeed, ...], vertex: Vertex, root: Vertex) -> bool:
    """Whether an execution target meets what an image needs, by what it and the root of its cluster say."""
    rows = [(name, row) for at in (vertex, root) for name, found in at.links.items() for row in found]
    told = [{need: v for need in needs if (v := said(name, row, need.attribute)) is not None} for name, row in rows]
    for label in vertex.properties:
        key, equals, value = label.partition("=")
        told += [{need: value if equals else "true"} for need in needs if need.attribute == key]
    good = {need for each in told if all(test_of(n)(v) for n, v in each.items()) for need in each}
    unsaid = {need for need in needs if need.if_known and not any(need in each for each in told)}
    return good.union(unsaid).issuperset(needs)
