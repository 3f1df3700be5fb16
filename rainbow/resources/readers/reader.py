"""Read a resource graph of any known form into a summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from rainbow.errors import InvalidGraph
from rainbow.ranges.hostlist import Hostlist
from rainbow.ranges.idset import IdSet
from rainbow.resources.graph.document import Source, from_yaml, text_of
from rainbow.resources.graph.identity import Identity, runs
from rainbow.resources.graph.json_stream import Blocks, Cursor, NotJson
from rainbow.resources.readers.jgf import CONTAINMENT, EdgeBlock, Graph, JgfRows, VertexBlock, clip, well_formed
from rainbow.resources.readers.patch import Patch, Unlike, patchable
from rainbow.resources.readers.rset import ranks_by_property, read_rset
from rainbow.resources.readers.subsystem_reader import subsystem_name
from rainbow.resources.readers.summary import Summary

_DOMINANT_NAMES = frozenset({"cluster", "nodes", CONTAINMENT})
"""What the containment graph is called in the field."""

MAX_KEPT = 2_000_000
MAX_KEPT_BLOCKS = 50_000
"""Of larger graphs, and of those that came in more parts, no more than the blocks is kept for the next time."""


def read_graph(
    source: Source,
    *,
    subsystems: Mapping[str, Source] | Sequence[Source] = (),
    dominant: str | None = None,
    known: Blocks | None = None,
) -> Summary:
    """Read a cluster: JGF in any dialect, Flux R, or a reply of ``flux resource list``.

    Args:
        source: a document as text, bytes, mapping, path or binary file; JSON or YAML; `.gz` and `.xz` too.
        subsystems: further graphs, by name; a plain sequence takes each name from its document.
        dominant: the subsystem of a JGF whose edges make the tree (containment when not given).
        known: keeps what blocks of the document were made into; reading a document again that changed a little
            then costs a fraction.

    Raises:
        InvalidGraph: anything wrong with it, naming the vertex or edge. Nothing else is raised.
    """
    try:
        tree = CONTAINMENT if dominant in _DOMINANT_NAMES or not dominant else dominant
        summary = _read(source, tree, known)
        named = subsystems.items() if isinstance(subsystems, Mapping) else map(_named, subsystems)
        for name, document in named:
            summary = summary.with_subsystem(name, document)
    except RecursionError:
        raise InvalidGraph("the document is nested too deeply") from None
    return summary


def _named(source: Source) -> tuple[str, Source]:
    return subsystem_name(source), source


def _read(source: Source, dominant: str, known: Blocks | None = None) -> Summary:
    if isinstance(source, Mapping):
        parts = _Parts(dominant)
        parts.mapping(source)
        return parts.summary()
    text = text_of(source)
    last = known.last if known is not None else None
    if isinstance(last, Last) and last.dominant == dominant:
        # Should anything be wrong, reading in full finds the words for it.
        with suppress(NotJson, InvalidGraph, RecursionError):
            return _streamed(text, _Parts(dominant, known, last))
    try:
        return _streamed(text, _Parts(dominant, known))
    except NotJson:
        document = from_yaml(text)
        if not isinstance(document, Mapping):
            raise InvalidGraph(f"{clip(document)} is no resource graph: give JGF or Flux R") from None
        parts = _Parts(dominant)
        parts.mapping(document)
        return parts.summary()


def _streamed(text: str, parts: _Parts) -> Summary:
    parts.cursor(Cursor(text))
    return parts.summary()


@dataclass(frozen=True, slots=True)
class Last:
    """The document that was read last, and its summary."""

    dominant: str
    vertices: list[VertexBlock]
    edges: list[EdgeBlock]
    summary: Summary
    graph: Graph | None
    """None when it has not the form that patches start from."""


class _Parts:
    """What is found at the top of a document, whichever way it is walked.

    With `last` blocks of rows are only collected, for most of them will be the same as last time.
    """

    def __init__(self, dominant: str, known: Blocks | None = None, last: Last | None = None) -> None:
        self.dominant, self.known, self.last = dominant, known, last
        self.vertices: list[VertexBlock] = []
        self.edges: list[EdgeBlock] = []
        self.name: str | None = None
        self.rows: JgfRows | None = None
        self.seen: set[str] = set()
        self.other: dict[str, Any] = {}

    # Streaming: the cursor stands before the document.
    def cursor(self, cursor: Cursor) -> None:
        if cursor.peek() != "{":
            value = cursor.value()
            cursor.finish()
            raise InvalidGraph(f"{clip(value)} is no resource graph: give JGF or Flux R")
        for key in cursor.items():
            if key == "graph" and cursor.peek() == "{":
                self._graph_cursor(cursor)
            elif key == "scheduling" and cursor.peek() == "{":
                for inner in cursor.items():
                    if inner == "graph" and cursor.peek() == "{":
                        self._graph_cursor(cursor)
                    else:
                        cursor.value()
            else:
                self.other[key] = cursor.value()
        cursor.finish()

    def _graph_cursor(self, cursor: Cursor) -> None:
        if self.rows is not None and self.last is not None:
            raise InvalidGraph("a second graph, while the first one has not been looked at")
        rows = self.rows = JgfRows(self.dominant)
        self.seen.clear()
        self.vertices, self.edges = [], []
        for key in cursor.items():
            self.seen.add(key)
            kind = cursor.peek()
            if key == "nodes" and kind == "[":
                for vertices in cursor.blocks("nodes", rows.listed, self.known):
                    self._add_vertices(rows, vertices)
            elif key == "nodes" and kind == "{":
                pairs = cursor.pairs()
                while some := list(islice(pairs, 512)):
                    self._add_vertices(rows, rows.keyed(some))
            elif key == "edges" and kind == "[":
                for edges in cursor.blocks(f"edges {self.dominant}", rows.edges, self.known):
                    self._add_edges(rows, edges)
            else:
                self._odd(key, cursor.value())

    def _add_vertices(self, rows: JgfRows, block: VertexBlock) -> None:
        if self.known is not None:
            self.vertices.append(block)
        if self.last is None:
            rows.add_vertices(block)

    def _add_edges(self, rows: JgfRows, block: EdgeBlock) -> None:
        if self.known is not None:
            self.edges.append(block)
        if self.last is None:
            rows.add_edges(block)

    def mapping(self, document: Mapping[str, Any]) -> None:
        for key, value in document.items():
            if key == "graph" and isinstance(value, Mapping):
                self._graph_mapping(value)
            elif key == "scheduling" and isinstance(value, Mapping):
                if isinstance(value.get("graph"), Mapping):
                    self._graph_mapping(value["graph"])
            else:
                self.other[str(key)] = value

    def _graph_mapping(self, graph: Mapping[str, Any]) -> None:
        rows = self.rows = JgfRows(self.dominant)
        self.seen = set(map(str, graph))
        for key, value in graph.items():
            if key == "nodes" and isinstance(value, list):
                rows.add_vertices(rows.listed(value))
            elif key == "nodes" and isinstance(value, Mapping):
                rows.add_vertices(rows.keyed(list(value.items())))
            elif key == "edges" and isinstance(value, list):
                rows.add_edges(rows.edges(value))
            else:
                self._odd(str(key), value)

    @staticmethod
    def _odd(key: str, value: object) -> None:
        if key in ("nodes", "edges"):
            raise InvalidGraph(f"graph.{key} is {clip(value)}; give a list")
        if key == "hyperedges":
            raise InvalidGraph("a graph of hyperedges is no resource graph: edges with source and target are needed")

    def summary(self) -> Summary:
        other = self.other
        if self.rows is not None:
            return self._labelled(self._folded(self.rows))
        if "graphs" in other:
            raise InvalidGraph("a list of graphs is no cluster: register each graph by itself")
        if "execution" in other:
            root, identity = read_rset(other)
            return Summary(root, identity)
        for key in ("all", "R"):  # replies of `flux resource list` and `flux resource status`
            inner = other.get(key)
            if isinstance(inner, Mapping) and "execution" in inner:
                return _read(inner, self.dominant)
        if "graph" in other:
            raise InvalidGraph(f"graph is {clip(other['graph'])}; give an object with nodes and edges")
        if "R_lite" in other or "version" in other:
            raise InvalidGraph("R: execution is missing (RFC 20)")
        raise InvalidGraph("neither a resource graph (graph.nodes, graph.edges) nor Flux's R (execution)")

    def _labelled(self, made: Summary) -> Summary:
        """Add the properties that R gives to ranks, where the graph is inside an R."""
        execution = self.other.get("execution")
        given = execution.get("properties") if isinstance(execution, Mapping) else None
        return made if given is None else made.with_properties(ranks_by_property(given))

    def _folded(self, rows: JgfRows) -> Summary:
        for key in ("nodes", "edges"):
            if key not in self.seen:
                raise InvalidGraph(f"graph.{key} is missing")
        title = self.other.get("name")
        name = well_formed(title, "name") if isinstance(title, str) else None
        if self.last is not None:
            made = self._again(self.last, name)
            if made is not None:
                return made
            for vertices in self.vertices:
                rows.add_vertices(vertices)
            for edges in self.edges:
                rows.add_edges(edges)
        graph = rows.folded()
        made = self._summary(graph, name, tuple(rows.warnings))
        if self.known is not None:
            whole = not rows.warnings and patchable(graph)
            self._keep(Last(self.dominant, self.vertices, self.edges, made, graph if whole else None))
        return made

    def _again(self, last: Last, name: str | None) -> Summary | None:
        """The summary when little or nothing changed since `last`; None when the whole graph must be folded."""
        assert self.known is not None
        if last.vertices == self.vertices and last.edges == self.edges:
            return last.summary.named(name)
        if last.graph is None:
            return None
        try:
            patch = Patch(last.graph, (last.vertices, self.vertices), (last.edges, self.edges))
        except Unlike:
            return None
        self.known.last = None  # until it is whole again
        patch.apply()
        made = self._summary(last.graph, name, ())
        self._keep(Last(self.dominant, self.vertices, self.edges, made, last.graph))
        return made

    def _keep(self, last: Last) -> None:
        assert self.known is not None
        vertices = sum(len(block.keys) for block in last.vertices)
        fits = vertices <= MAX_KEPT and len(last.vertices) + len(last.edges) <= MAX_KEPT_BLOCKS
        self.known.last = last if fits else None

    def _summary(self, graph: Graph, name: str | None, warnings: tuple[str, ...]) -> Summary:
        targets = [graph.targets[v] for v in graph.folded.targets]
        properties: dict[str, list[tuple[int, int]]] = {}
        for ordinal, target in enumerate(targets):
            for label in target.properties:
                spans = properties.setdefault(label, [])
                if spans and spans[-1][1] == ordinal:
                    spans[-1] = (spans[-1][0], ordinal + 1)
                else:
                    spans.append((ordinal, ordinal + 1))
        identity = Identity(
            len(targets),
            Hostlist(target.piece for target in targets),
            runs(target.rank for target in targets),
            {label: IdSet(spans) for label, spans in properties.items()},
        )
        return Summary(
            graph.folded.root,
            identity,
            graph.packed_keys(),
            name=name,
            dominant=self.dominant,
            warnings=warnings,
        )
