"""Read a resource graph of any known form into a summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from rainbow.errors import InvalidGraph
from rainbow.resources.document import Source, from_yaml, text_of
from rainbow.resources.hostlist import Hostlist, HostRange
from rainbow.resources.identity import Identity, runs
from rainbow.resources.idset import IdSet
from rainbow.resources.jgf import CONTAINMENT, JgfRows, clip, well_formed
from rainbow.resources.json_stream import Blocks, Cursor, NotJson
from rainbow.resources.rset import read_rset
from rainbow.resources.subsystem_reader import subsystem_name
from rainbow.resources.summary import Summary, VertexKeys

_DOMINANT_NAMES = frozenset({"cluster", "nodes", CONTAINMENT})
"""What the containment graph is called in the field."""


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
    parts = _Parts(dominant, known)
    if isinstance(source, Mapping):
        parts.mapping(source)
    else:
        text = text_of(source)
        try:
            parts.cursor(Cursor(text))
        except NotJson:
            document = from_yaml(text)
            if not isinstance(document, Mapping):
                raise InvalidGraph(f"{clip(document)} is no resource graph: give JGF or Flux R") from None
            parts = _Parts(dominant)
            parts.mapping(document)
    return parts.summary()


class _Parts:
    """What is found at the top of a document, whichever way it is walked."""

    def __init__(self, dominant: str, known: Blocks | None = None) -> None:
        self.dominant, self.known = dominant, known
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
        rows = self.rows = JgfRows(self.dominant)
        self.seen.clear()
        for key in cursor.items():
            self.seen.add(key)
            kind = cursor.peek()
            if key == "nodes" and kind == "[":
                for vertices in cursor.blocks("nodes", rows.listed, self.known):
                    rows.add_vertices(vertices)
            elif key == "nodes" and kind == "{":
                pairs = cursor.pairs()
                while some := list(islice(pairs, 512)):
                    rows.add_vertices(rows.keyed(some))
            elif key == "edges" and kind == "[":
                for edges in cursor.blocks(f"edges {self.dominant}", rows.edges, self.known):
                    rows.add_edges(edges)
            else:
                self._odd(key, cursor.value())

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
            return self._folded(self.rows)
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

    def _folded(self, rows: JgfRows) -> Summary:
        for key in ("nodes", "edges"):
            if key not in self.seen:
                raise InvalidGraph(f"graph.{key} is missing")
        made, keys = rows.folded()
        targets = [rows.targets[v] for v in made.targets]
        hosts = Hostlist(_piece(target.name) for target in targets)
        properties: dict[str, list[tuple[int, int]]] = {}
        for ordinal, target in enumerate(targets):
            for name in target.properties:
                spans = properties.setdefault(name, [])
                if spans and spans[-1][1] == ordinal:
                    spans[-1] = (spans[-1][0], ordinal + 1)
                else:
                    spans.append((ordinal, ordinal + 1))
        identity = Identity(
            len(targets),
            hosts,
            runs(target.rank for target in targets),
            {name: IdSet(spans) for name, spans in properties.items()},
        )
        packed = VertexKeys.of([keys[v] if v >= 0 else "" for v in made.order])
        title = self.other.get("name")
        return Summary(
            made.root,
            identity,
            packed,
            name=well_formed(title, "name") if isinstance(title, str) else None,
            dominant=self.dominant,
            warnings=tuple(rows.warnings),
        )


def _piece(name: str) -> HostRange:
    """A host name as it stands, even where it is none by RFC 29."""
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :]
    if not digits or not digits.isascii() or len(digits) > 18:
        return HostRange(name, -1, -1)
    return HostRange(stem, int(digits), int(digits) + 1, len(digits) if digits[0] == "0" else 1)
