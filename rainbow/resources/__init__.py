"""Resource graphs (JGF, Flux R), their folded summary, and matching. Pure: no broker, no store, no Flux."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rainbow.resources.answer import Answer, Unmet
    from rainbow.resources.index import ClusterIndex, Matches
    from rainbow.resources.json_stream import Blocks
    from rainbow.resources.matcher import Matcher
    from rainbow.resources.matching import match
    from rainbow.resources.reader import read_graph
    from rainbow.resources.subsystem_reader import read_subsystem, subsystem_name
    from rainbow.resources.summary import Summary

_WHERE = {
    "Answer": "answer",
    "Blocks": "json_stream",
    "ClusterIndex": "index",
    "Matcher": "matcher",
    "Matches": "index",
    "Summary": "summary",
    "Unmet": "answer",
    "match": "matching",
    "read_graph": "reader",
    "read_subsystem": "subsystem_reader",
    "subsystem_name": "subsystem_reader",
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
