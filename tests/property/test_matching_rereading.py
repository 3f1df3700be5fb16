"""Reading a document again that changed, with what is known of it, is reading it: over random series of changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rainbow.errors import InvalidGraph
from rainbow.resources import Blocks, read_graph
from rainbow.resources.graph import json_stream
from rainbow.resources.readers import patch

Document = dict[str, Any]
Metadata = dict[str, Any]
Edge = tuple[str, str]

KINDS = ("core", "gpu", "memory", "storage_node", "node", "rack")
FORMS = ("relation", "subsystem", "name", "none")


class Drawn:
    """A cluster that changes at random, and can be written as a document in one of the forms of JGF."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.form = rng.choice(FORMS)
        self.indent = rng.choice((None, None, 1))
        self.spell: Callable[[int], str] = rng.choice((str, str, lambda n: f"v{n}", lambda n: f"{n:07}"))
        self.nodes: list[tuple[str, Metadata]] = []
        self.edges: list[Edge] = []
        self.next = 0
        self.name: str | None = None
        root = self.add(None, {"type": "cluster"})
        above = [root]
        if rng.random() < 0.5:
            above = [self.add(root, {"type": "rack", "size": rng.choice((1, 1, 2))}) for _ in range(rng.randint(1, 5))]
        for number in range(rng.randint(1, 60)):
            self.node(rng.choice(above) if rng.random() < 0.2 else above[number * len(above) // 60], number)

    def add(self, parent: str | None, metadata: Metadata, at: int | None = None) -> str:
        key = self.spell(self.next) if self.rng.random() < 0.98 else f"odd{self.next}"
        self.next += 1
        at = len(self.nodes) if at is None else at
        self.nodes.insert(at, (key, metadata))
        if parent is not None:
            self.edges.insert(at - 1 if 0 < at <= len(self.edges) else len(self.edges), (parent, key))
        return key

    def node(self, parent: str, number: int, at: int | None = None) -> None:
        rng = self.rng
        key = self.add(parent, self.identity(number), at)
        sockets = [key] if rng.random() < 0.6 else [self.add(key, {"type": "socket"}, at and at + 1) for _ in "ab"]
        for socket in sockets:
            for _ in range(rng.choice((2, 2, 2, 3))):
                self.add(socket, {"type": "core", "id": rng.randrange(4)}, at and at + 1)
            if rng.random() < 0.3:
                self.add(socket, {"type": "memory", "size": rng.choice((4, 8)), "unit": "GB"}, at and at + 1)

    def identity(self, number: int) -> Metadata:
        rng = self.rng
        made: Metadata = {"type": "node", "name": f"host{number}", "rank": number}
        if rng.random() < 0.1:
            made["name"] = rng.choice(("login", "h\u00e9", f"x{number:04}", "host1"))
        if rng.random() < 0.2:
            made["properties"] = dict.fromkeys(rng.sample(("ssd", "fat", "ib"), rng.randint(0, 2)), "")
        return made

    def text(self) -> str:
        nodes = [{"id": key, "metadata": metadata} for key, metadata in self.nodes]
        forms: dict[str, Document] = {
            "relation": {"relation": "contains", "metadata": {}},
            "subsystem": {"metadata": {"subsystem": "containment"}},
            "name": {"metadata": {"name": {"containment": "contains"}}},
            "none": {},
        }
        more = forms[self.form]
        edges = [{"source": source, "target": target, **more} for source, target in self.edges]
        if self.form == "name":
            edges += [
                {"source": target, "target": source, "metadata": {"name": {"containment": "in"}}}
                for source, target in self.edges
            ]
        graph = {"nodes": nodes, "edges": edges}
        return json.dumps({"name": self.name, "graph": graph}, indent=self.indent)

    # -- changes -----------------------------------------------------------------------------------

    def below(self, key: str) -> set[str]:
        found, grown = {key}, True
        while grown:
            more = {end for start, end in self.edges if start in found} - found
            found |= more
            grown = bool(more)
        return found

    def some(self, *kinds: str) -> str:
        keys = [key for key, metadata in self.nodes if metadata.get("type") in kinds]
        return self.rng.choice(keys or [key for key, _ in self.nodes])

    def drop(self, key: str) -> None:
        gone = self.below(key)
        self.nodes = [pair for pair in self.nodes if pair[0] not in gone]
        self.edges = [edge for edge in self.edges if edge[1] not in gone]
        if not self.nodes:
            self.add(None, {"type": "cluster"})

    def place(self) -> int:
        return self.rng.choice((0, 1, len(self.nodes), self.rng.randint(0, len(self.nodes))))

    def remove_one(self) -> None:
        if len(self.nodes) > 5:
            self.drop(self.some(self.rng.choice(("node", "core", "socket", "memory"))))

    def remove_any(self) -> None:
        if len(self.nodes) > 5:
            self.drop(self.rng.choice(self.nodes)[0])

    def add_node(self) -> None:
        self.node(self.some("cluster", "rack"), self.rng.randrange(200), self.place() or None)

    def add_leaf(self) -> None:
        kind = self.rng.choice(KINDS)
        self.add(self.some("node", "socket", "core", "cluster"), {"type": kind}, self.place() or None)

    def change(self) -> None:
        rng, (_, metadata) = self.rng, self.rng.choice(self.nodes)
        name, values = rng.choice(
            (
                ("rank", (-1, 3, "7", 10_000)),
                ("name", ("host3", "other", "zz9")),
                ("size", (1, 2, 8, 1.0, True)),
                ("unit", ("", "GB")),
                ("type", KINDS),
                ("properties", ({}, {"ssd": ""}, {"new": "", "fat": ""})),
                ("note", ("x", 'a"}, {"id": "1"')),
            )
        )
        metadata[name] = rng.choice(values)

    def change_many(self) -> None:
        for _ in range(self.rng.randint(2, 12)):
            self.rng.choice((self.change, self.add_leaf, self.remove_one))()

    def move_vertex(self) -> None:
        moved = self.nodes.pop(self.rng.randrange(len(self.nodes)))
        self.nodes.insert(self.place(), moved)

    def move_edge(self) -> None:
        if self.edges:
            self.edges.insert(self.rng.randrange(len(self.edges)), self.edges.pop(self.rng.randrange(len(self.edges))))

    def shuffle_edges(self) -> None:
        self.rng.shuffle(self.edges)

    def odd_edge(self) -> None:
        """An edge too many, one to nothing, one too few, or another parent."""
        rng, keys = self.rng, [key for key, _ in self.nodes]
        what = rng.randrange(5)
        at = rng.randrange(len(self.edges)) if self.edges else 0
        if what == 0:
            self.edges.append((rng.choice(keys), rng.choice(keys)))
        elif what == 1:
            self.edges.insert(at, (rng.choice(keys), "nothing"))
        elif what == 2:
            self.edges.insert(at, self.edges[at] if self.edges else (keys[0], keys[0]))
        elif self.edges:
            _, end = self.edges.pop(at)
            if what == 3:
                self.edges.insert(at, (rng.choice(keys), end))

    def odd_vertex(self) -> None:
        """A key twice, a vertex by itself, one with something wrong, a circle beside the tree, a second root."""
        rng = self.rng
        what = rng.randrange(6)
        if what == 0:
            self.nodes.insert(self.place(), rng.choice(self.nodes))
        elif what == 1:
            at = rng.randrange(len(self.nodes))
            key, metadata = self.nodes[at]
            self.nodes.insert(at + rng.randrange(2), (key, {**metadata, "size": 3}))
        elif what == 2:
            self.add(None, {"type": "core"}, self.place())
        elif what == 3:
            self.nodes.insert(self.place(), (f"bad{self.next}", rng.choice(({}, {"type": "core", "size": -1}))))
        elif what == 4:
            one, other = (self.add(None, {"type": "core"}, self.place()) for _ in "ab")
            self.edges += [(one, other), (other, one)]
        else:
            root = self.add(None, {"type": "cluster"}, self.place())
            self.add(root, {"type": "core"})

    def odd_removal(self) -> None:
        """Children without a parent, one that comes while its parent goes, or nothing but the root."""
        what, key = self.rng.randrange(3), self.some("node", "socket")
        if what == 0:
            self.nodes = [pair for pair in self.nodes if pair[0] != key] or self.nodes
            self.edges = [edge for edge in self.edges if edge[1] != key]
        elif what == 1:
            self.drop(key)
            self.add(key, {"type": "core"}, self.place())
        else:
            self.nodes, self.edges = self.nodes[:1], []

    def swap(self) -> None:
        """Two long stretches of vertices change places."""
        a, b, c = sorted(self.rng.randint(0, len(self.nodes)) for _ in "abc")
        self.nodes = self.nodes[:a] + self.nodes[b:c] + self.nodes[a:b] + self.nodes[c:]

    def title(self) -> None:
        self.name = self.rng.choice((None, "one", "two"))

    def step(self) -> bool:
        """Change something; whether that was something odd, mostly put right afterwards."""
        rng = self.rng
        usual = [self.remove_one, self.add_node, self.add_leaf, self.change, self.change_many, self.move_edge]
        rare = [self.remove_any, self.move_vertex, self.swap, self.shuffle_edges, self.title]
        odd = [self.odd_edge, self.odd_vertex, self.odd_removal]
        which = rng.random()
        rng.choice(usual if which < 0.7 else rare if which < 0.85 else odd)()
        return which >= 0.85


def told(text: str, known: Blocks | None = None) -> tuple[Any, ...]:
    try:
        summary = read_graph(text, known=known)
    except InvalidGraph as exc:
        return ("refused", str(exc))
    return summary.to_bytes(), summary.warnings


class Counted(patch.Patch):
    applied = 0

    def apply(self) -> None:
        super().apply()
        Counted.applied += 1


@pytest.fixture
def _counted(monkeypatch: pytest.MonkeyPatch) -> None:
    from rainbow.resources.readers import reader

    monkeypatch.setattr(json_stream, "_BLOCK", 512)
    monkeypatch.setattr(reader, "Patch", Counted)


def series(seed: int, steps: int = 12) -> int:
    """Check one series of changes; how many documents of it there were."""
    rng = Random(seed)
    drawn, known = Drawn(rng), Blocks()
    for step in range(steps):
        text = drawn.text()
        assert told(text, known) == told(text), f"seed {seed}, step {step}"
        if rng.random() < 0.1:
            damaged = text[: rng.randrange(len(text))] + rng.choice(("", "}", ",", "x", '"')) + text[len(text) // 2 :]
            assert told(damaged, known) == told(damaged), f"seed {seed}, damaged at step {step}"
        before = [(key, dict(metadata)) for key, metadata in drawn.nodes], drawn.edges[:]
        if drawn.step():
            odd = drawn.text()
            assert told(odd, known) == told(odd), f"seed {seed}, odd at step {step}"
            if rng.random() < 0.8:
                drawn.nodes, drawn.edges = before
    return steps


@pytest.mark.usefixtures("_counted")
def test_a_series_of_changes_reads_as_each_document_does() -> None:
    Counted.applied = 0
    documents = sum(series(seed) for seed in range(60))
    assert Counted.applied > documents / 3, "hardly any document was patched: this tests nothing"


@pytest.mark.usefixtures("_counted")
@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32))
def test_any_series(seed: int) -> None:
    series(seed)
