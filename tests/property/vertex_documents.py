"""Documents read plainly into single vertices, sharing no code with the readers: what folding is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rainbow.errors import InvalidGraph
from rainbow.ranges.hostlist import Hostlist
from rainbow.ranges.idset import IdSet
from rainbow.resources.backends.vertex_graph import Vertex, VertexGraph


class DocumentGraph(VertexGraph):
    """The vertices of a document, in its order."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        super().__init__(_from_rset(document) if "execution" in document else self._from_jgf(document["graph"]))
        self.by_key = {vertex.key: vertex for vertex in self.vertices}

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
        graph = document["graph"]
        nodes = graph["nodes"]
        items = nodes.items() if isinstance(nodes, Mapping) else ((str(n["id"]), n) for n in nodes)
        described = {str(key): node.get("metadata") or {} for key, node in items}
        rows = {key: _texts(metadata) for key, metadata in described.items()}
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
        nested = any(isinstance(metadata.get("attributes"), Mapping) for metadata in described.values())
        if nested and not outer and not any(key in self.by_key for key in rows):
            for vertex in self.vertices:
                if vertex.is_target:
                    vertex.links.setdefault(name, []).extend(rows.values())
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
