"""Random small clusters and requests, made to compete: for the oracle and for the property tests.

Everything comes from one `random.Random`, so that a case is known by its seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from rainbow.jobspec.request import SLOT, XOR_SLOT, Constraint, Count, Request, Requirement, Want

MAX_VERTICES = 26
LEAVES = ("core", "gpu", "memory", "ssd")
PROPERTIES = ("fast", "big", "old")
VALUES = ("shm", "nvme", "1.2.0", "2.0.1")

Document = dict[str, Any]


@dataclass
class Case:
    graph: Document
    subsystems: dict[str, Document]
    request: Request


class Builder:
    """Grows one tree of vertices."""

    def __init__(self, rng: Random, limit: int) -> None:
        self.rng, self.limit = rng, limit
        self.nodes: dict[str, Document] = {}
        self.edges: list[Document] = []
        self.types: set[str] = set()

    def add(self, parent: str | None, kind: str, **more: Any) -> str | None:
        if len(self.nodes) >= self.limit:
            return None
        key = str(len(self.nodes))
        self.nodes[key] = {"metadata": {"type": kind, **more}}
        self.types.add(kind)
        if parent is not None:
            self.edges.append({"source": parent, "target": key, "relation": "contains"})
        return key

    def leaf(self, parent: str, mixed: bool) -> None:
        kind = self.rng.choice(LEAVES)
        size = 1
        if kind in ("memory", "ssd"):
            size = self.rng.choice((1, 2, 3, 4)) if mixed else 2
        for _ in range(self.rng.randint(1, 3)):
            self.add(parent, kind, size=size)

    def inside(self, node: str, mixed: bool) -> None:
        if self.rng.random() < 0.5:
            for _ in range(self.rng.randint(1, 2)):
                socket = self.add(node, "socket")
                if socket:
                    for _ in range(self.rng.randint(1, 2)):
                        self.leaf(socket, mixed)
        if self.rng.random() < 0.7:
            self.leaf(node, mixed)

    def node(self, parent: str, number: int, mixed: bool) -> None:
        kind = "storage_node" if self.rng.random() < 0.08 else "node"
        properties = {name: "" for name in PROPERTIES if self.rng.random() < 0.4}
        key = self.add(parent, kind, name=f"n{number}", rank=number, properties=properties)
        if key:
            self.inside(key, mixed)


def make_graph(rng: Random, limit: int = MAX_VERTICES) -> Document:
    """A cluster of up to `limit` vertices: racks or none, nodes equal or not, things beside nodes, or no nodes."""
    grown = Builder(rng, rng.randint(4, limit))
    root = grown.add(None, "cluster")
    assert root
    mixed = rng.random() < 0.4
    if rng.random() < 0.06:  # no nodes at all
        for _ in range(rng.randint(1, 3)):
            socket = grown.add(root, "socket")
            if socket:
                grown.leaf(socket, mixed)
    else:
        number = 0
        for _ in range(rng.randint(1, 3)):
            place: str | None = root
            if rng.random() < 0.5:
                place = grown.add(root, "rack")
            if not place:
                break
            if rng.random() < 0.3:
                grown.leaf(place, mixed)
            for _ in range(rng.randint(1, 3)):
                grown.node(place, number, mixed)
                number += 1
    if len(grown.nodes) < 2:
        grown.add(root, "core")
    return {"graph": {"nodes": grown.nodes, "edges": grown.edges}}


def make_subsystem(rng: Random, graph: Document) -> Document:
    """A few vertices with metadata, linked from nodes and now and then from others."""
    nodes: dict[str, Document] = {"io0": {"metadata": {"type": "io"}}}
    edges: list[Document] = []
    keys = list(graph["graph"]["nodes"])
    likely = [k for k in keys if graph["graph"]["nodes"][k]["metadata"]["type"] == "node"] or keys
    for number in range(1, rng.randint(2, 4)):
        key = f"io{number}"
        nodes[key] = {"metadata": {"type": rng.choice(VALUES[:2]), "version": rng.choice(VALUES[2:])}}
        for _ in range(rng.randint(0, 3)):
            source = rng.choice(likely if rng.random() < 0.8 else keys)
            edges.append({"source": source, "target": key, "relation": "contains"})
        if number > 1 and rng.random() < 0.3:
            edges.append({"source": f"io{number - 1}", "target": key, "relation": "contains"})
    return {"graph": {"nodes": nodes, "edges": edges}}


def _count(rng: Random, most: int) -> Count:
    low = 1 if rng.random() < 0.6 else rng.randint(1, most)
    draw = rng.random()
    if draw < 0.9:
        return Count(low, low)
    return Count(low, None if draw < 0.95 else low + 2)


def _leaves(rng: Random, kinds: list[str]) -> tuple[Want, ...]:
    chosen = rng.sample(kinds, k=min(len(kinds), rng.choice((1, 1, 1, 2))))
    return tuple(Want(kind, _count(rng, 3)) for kind in chosen)


def _requires(rng: Random, chance: float) -> tuple[Requirement, ...]:
    if rng.random() >= chance:
        return ()
    if rng.random() < 0.5:
        return (Requirement("io", "type", "match", (("match", rng.choice(VALUES[:2])),)),)
    return (Requirement("io", "version", "range", (("min", "1.1"), ("max", rng.choice(("1.9", "2.5"))))),)


def _want(rng: Random, types: set[str], depth: int, wishes: float) -> Want:
    leaves: list[str] = [kind for kind in LEAVES if kind in types] or ["core"]
    draw = rng.random()
    if depth and draw < 0.4:
        if rng.random() < 0.15:
            inner: tuple[Want, ...] = tuple(_want(rng, types, depth - 1, wishes) for _ in range(rng.randint(1, 2)))
        else:
            inner = _leaves(rng, leaves)
        return Want(SLOT, _count(rng, 3), inner)
    if depth and draw < 0.75:
        outer: list[str] = [kind for kind in ("node", "socket", "rack", "storage_node") if kind in types] or ["node"]
        kind = rng.choice(outer[:2] if rng.random() < 0.8 else outer)
        children: tuple[Want, ...] = ()
        if rng.random() < 0.7:
            children = tuple(_want(rng, types, depth - 1, wishes) for _ in range(rng.choice((1, 1, 2))))
        return Want(kind, _count(rng, 2), children, requires=_requires(rng, wishes))
    kind = rng.choice(leaves)
    return Want(kind, _count(rng, 4), requires=_requires(rng, wishes * 0.2))


def make_constraint(rng: Random, depth: int = 2) -> Constraint:
    draw = rng.random()
    if depth and draw < 0.35:
        inner = tuple(make_constraint(rng, depth - 1) for _ in range(rng.randint(0, 2)))
        return Constraint(rng.choice(("and", "or", "not")), inner)
    if draw < 0.65:
        return Constraint("properties", (rng.choice(("", "^")) + rng.choice(PROPERTIES),))
    if draw < 0.85:
        return Constraint("hostlist", (rng.choice(("n0", "n[0-1]", "n1,n3", "n[2-9]", "m1")),))
    return Constraint("ranks", (rng.choice(("0", "1-3", "0,2", "7-9")),))


def make_case(rng: Random, limit: int = MAX_VERTICES) -> Case:
    graph = make_graph(rng, limit)
    types = {node["metadata"]["type"] for node in graph["graph"]["nodes"].values()}
    wishes = 0.5 if rng.random() < 0.2 else 0.0
    subsystems = {"io": make_subsystem(rng, graph)} if wishes and rng.random() < 0.9 else {}
    wants = [_want(rng, types, 2, wishes) for _ in range(rng.choice((1, 1, 2, 2, 3)))]
    if rng.random() < 0.05:
        wants = [
            Want(XOR_SLOT, _count(rng, 3), _leaves(rng, [k for k in LEAVES if k in types] or ["core"]))
            for _ in range(2)
        ] + wants[:1]
    constraint = make_constraint(rng) if rng.random() < 0.2 else None
    return Case(graph, subsystems, Request(tuple(wants), constraint))
