"""Read a subsystem document, and find the name it gives itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rainbow.errors import InvalidGraph
from rainbow.resources.graph.document import Source, from_yaml, text_of
from rainbow.resources.graph.json_stream import Cursor, NotJson
from rainbow.resources.readers.jgf import clip
from rainbow.resources.readers.subsystem import SubsystemRows, elements


def _document(source: Source) -> Mapping[str, Any]:
    if isinstance(source, Mapping):
        return source
    text = text_of(source)
    try:
        cursor = Cursor(text)
        document = cursor.value()
        cursor.finish()
    except NotJson:
        document = from_yaml(text)
    if not isinstance(document, Mapping):
        raise InvalidGraph(f"{clip(document)} is no subsystem graph")
    return document


def read_subsystem(source: Source | SubsystemRows) -> SubsystemRows:
    """Read a subsystem document (JGF with nodes as object or list), not linked yet.

    Raises:
        InvalidGraph: not such a document.
    """
    if isinstance(source, SubsystemRows):
        return source
    try:
        document = _document(source)
    except RecursionError:
        raise InvalidGraph("the document is nested too deeply") from None
    graph = document.get("graph")
    if not isinstance(graph, Mapping):
        raise InvalidGraph("a subsystem needs graph.nodes and graph.edges")
    rows = SubsystemRows()
    for key, element in elements(graph.get("nodes")):
        rows.vertex(key, element)
    edges: Iterable[Any] = graph.get("edges") or ()
    if not isinstance(edges, list) and edges != ():
        raise InvalidGraph(f"graph.edges is {clip(edges)}; give a list")
    for edge in edges:
        rows.edge(edge)
    return rows


def subsystem_name(source: Source, default: str | None = None) -> str:
    """The name that a subsystem document gives itself.

    The type of its root vertex (the first that no edge of its own leads to), else the file's stem without
    ``-subsystem``, else `default`.
    """
    rows = read_subsystem(source)
    led_to = {target for source_, target in rows.edges if source_ in rows.index}
    linked = {target for _, target in rows.edges} - led_to
    for key, number in rows.index.items():
        kind = rows.rows[number].get("type")
        if kind and key not in led_to and key not in linked:
            return kind
    if isinstance(source, str) and "\n" not in source and "{" not in source:
        source = Path(source)
    if isinstance(source, Path):
        stem = source.name.split(".json")[0].split(".yaml")[0]
        return stem.removesuffix("-subsystem")
    if default is None:
        raise InvalidGraph("a subsystem without a root vertex has no name: give NAME=FILE")
    return default
