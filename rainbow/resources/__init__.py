"""Resource graphs (JGF, Flux R), their folded summary, and matching. Pure: no broker, no store, no Flux."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rainbow.resources.graph.json_stream import Blocks
    from rainbow.resources.matching.answer import Answer, Unmet
    from rainbow.resources.matching.index import ClusterIndex, Matches
    from rainbow.resources.matching.match import match
    from rainbow.resources.matching.matcher import Matcher
    from rainbow.resources.readers.reader import read_graph
    from rainbow.resources.readers.subsystem_reader import read_subsystem, subsystem_name
    from rainbow.resources.readers.summary import Summary

_WHERE = {
    "Answer": "matching.answer",
    "Blocks": "graph.json_stream",
    "ClusterIndex": "matching.index",
    "Matcher": "matching.matcher",
    "Matches": "matching.index",
    "Summary": "readers.summary",
    "Unmet": "matching.answer",
    "match": "matching.match",
    "read_graph": "readers.reader",
    "read_subsystem": "readers.subsystem_reader",
    "subsystem_name": "readers.subsystem_reader",
}

__all__ = [
    "Answer",
    "Blocks",
    "ClusterIndex",
    "Matcher",
    "Matches",
    "Summary",
    "Unmet",
    "match",
    "read_graph",
    "read_subsystem",
    "subsystem_name",
]


def __getattr__(name: str) -> Any:
    # Loaded when used: jobspec readers need nothing from here but idsets and hostlists.
    if name in _WHERE:
        return getattr(import_module(f"rainbow.resources.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
