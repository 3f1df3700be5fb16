"""Valid messages, to be changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Kind:
    """Valid messages of one kind: where they go, and a document. `sign` signs as an agent does."""

    name: str
    exchange: str
    key: str
    document: dict[str, Any]
    binary: bool = False
    sign: bool = False
    headers: dict[str, Any] = field(default_factory=dict)


def jobspec() -> dict[str, Any]:
    return {
        "version": 1,
        "resources": [
            {"type": "slot", "count": 1, "label": "s", "with": [{"type": "core", "count": 1}]},
        ],
        "tasks": [{"command": ["true"], "slot": "s", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": 60}},
    }


def jgf() -> dict[str, Any]:
    nodes = {
        "0": {"metadata": {"type": "cluster", "name": "c"}},
        "1": {"metadata": {"type": "node", "name": "n1", "rank": 0, "properties": {"fast": ""}}},
        "2": {"metadata": {"type": "core", "size": 4}},
    }
    return {"graph": {"nodes": nodes, "edges": [{"source": "0", "target": "1"}, {"source": "1", "target": "2"}]}}


def io() -> dict[str, Any]:
    nodes = {"io0": {"metadata": {"type": "io"}}, "io1": {"metadata": {"type": "shm", "size": 1}}}
    return {"graph": {"nodes": nodes, "edges": [{"source": "1", "target": "io1", "relation": "contains"}]}}
