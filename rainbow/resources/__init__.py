"""Resource graphs (JGF, Flux R), their folded summary, and matching. Pure: no broker, no store, no Flux."""

from __future__ import annotations

from rainbow.resources.index import ClusterIndex, Matches
from rainbow.resources.matcher import Answer, Matcher, Unmet, match
from rainbow.resources.reader import read_graph, read_subsystem, subsystem_name
from rainbow.resources.summary import Summary

__all__ = [
    "Answer",
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
