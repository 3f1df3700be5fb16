"""The graph of one cluster as single vertices, read plainly: for the search that folding is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rainbow.errors import InvalidGraph
from rainbow.jobspec.request import Constraint
from rainbow.resources.hostlist import Hostlist
from rainbow.resources.idset import IdSet


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
    """All vertices of one cluster, in document order."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        if "execution" in document:
            self.root = _from_rset(document)
        else:
            self.root = self._from_jgf(document["graph"])
        self.vertices = [self.root, *self.root.below()]
        self.by_key = {vertex.key: vertex for vertex in self.vertices}
        self.subsystems: set[str] = set()
        self.at_or_above = {v.type for v in self.vertices if v.is_target or any(x.is_target for x in v.below())}

    @staticmethod
    def _from_jgf(graph: Mapping[str, Any]) -> Vertex:
        nodes = graph["nodes"]
        items = nodes.items() if isinstance(nodes, Mapping) else ((str(n["id"]), n) for n in nodes)
        made = {str(key): Vertex(str(key), node["metadata"]) for key, node in items}
        for edge in graph["edges"]:
            if _contains(edge):
                above, child = made[str(edge["source"])], made[str(edge["target"])]
                if child.parent is None:
                    child.parent = above
                    above.children.append(child)
        roots = [vertex for vertex in made.values() if vertex.parent is None and vertex.children]
        if not roots:
            raise InvalidGraph("no root to start from")
        if len(roots) == 1:
            return roots[0]
        top = Vertex("", {"type": "-"})
        for root in roots:
            root.parent = top
        top.children = roots
        return top

    def link(self, name: str, document: Mapping[str, Any]) -> None:
        """Add a subsystem: vertices get the metadata of what they link to, and of what hangs below that."""
        self.subsystems.add(name)
        graph = document["graph"]
        nodes = graph["nodes"]
        items = nodes.items() if isinstance(nodes, Mapping) else ((str(n["id"]), n) for n in nodes)
        rows = {str(key): _texts(node.get("metadata") or {}) for key, node in items}
        inner: dict[str, list[str]] = {}
        outer: list[tuple[str, str]] = []
        for edge in graph.get("edges") or ():
            if edge.get("relation", "contains") != "contains":
                continue
            source, target = str(edge["source"]), str(edge["target"])
            if source in rows:
                inner.setdefault(source, []).append(target)
            else:
                outer.append((source, target))
        for source, target in outer:
            reached, stack = set(), [target]
            while stack:
                key = stack.pop()
                if key not in reached:
                    reached.add(key)
                    stack += inner.get(key, ())
            self.by_key[source].links.setdefault(name, []).extend(rows[key] for key in reached)


def _contains(edge: Mapping[str, Any]) -> bool:
    if edge.get("relation", "contains") != "contains":
        return False
    metadata = edge.get("metadata") or {}
    if isinstance(metadata.get("name"), Mapping):
        return bool(metadata["name"].get("containment") == "contains")
    return bool(metadata.get("subsystem", "containment") == "containment")


def _texts(metadata: Mapping[str, Any]) -> dict[str, str]:
    return {
        str(key): str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in metadata.items()
        if isinstance(value, (str, int, float))
    }


def _from_rset(document: Mapping[str, Any]) -> Vertex:
    execution = document["execution"]
    root = Vertex("cluster", {"type": "cluster"})
    held: dict[int, dict[str, set[int]]] = {}
    for entry in execution["R_lite"]:
        for rank in IdSet.parse(entry["rank"]):
            for kind, ids in (entry.get("children") or {}).items():
                held.setdefault(rank, {}).setdefault(kind, set()).update(IdSet.parse(ids))
    names = list(Hostlist.parse(execution.get("nodelist") or []))
    for at, rank in enumerate(sorted(held)):
        name = names[at] if at < len(names) else ""
        properties = [p for p, ids in (execution.get("properties") or {}).items() if rank in IdSet.parse(ids)]
        node = Vertex(str(rank), {"type": "node", "name": name, "rank": rank, "properties": properties})
        node.parent = root
        root.children.append(node)
        for kind, ids in held[rank].items():
            for number in sorted(ids):
                child = Vertex(f"{rank}.{kind}{number}", {"type": kind})
                child.parent = node
                node.children.append(child)
    return root


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
