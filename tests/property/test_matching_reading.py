"""Any bytes and any document: a summary, or InvalidGraph, and nothing else."""

from __future__ import annotations

import json
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rainbow.errors import InvalidGraph
from rainbow.resources import Summary, read_graph, subsystem_name

GRAPH: dict[str, Any] = {
    "name": "x",
    "graph": {
        "nodes": [
            {"id": "0", "metadata": {"type": "cluster", "size": 1}},
            {"id": "1", "metadata": {"type": "node", "name": "n1", "rank": 0, "properties": {"a": ""}}},
            {"id": "2", "metadata": {"type": "core", "unit": "", "paths": {"containment": "/x/n1/core0"}}},
        ],
        "edges": [
            {"source": "0", "target": "1", "metadata": {"subsystem": "containment"}},
            {"source": "1", "target": "2", "metadata": {"name": {"containment": "contains"}}},
        ],
    },
}
RSET: dict[str, Any] = {
    "version": 1,
    "execution": {
        "R_lite": [{"rank": "0-3", "children": {"core": "0-3"}}],
        "nodelist": ["n[0-3]"],
        "properties": {"a": "0"},
    },
}
IO: dict[str, Any] = {
    "graph": {
        "nodes": {"a": {"metadata": {"type": "shm", "n": 3, "attributes": {"b": True}}}},
        "edges": [{"source": "1", "target": "a", "relation": "contains"}],
    }
}
VALUES: list[Any] = [None, True, 0, -1, 2**70, 1.5, float("nan"), "", "x", "0-", [], {}, [[]], {"a": 1}, "\ud800"]
quick = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def reads(source: Any) -> Summary | None:
    try:
        summary = read_graph(source)
    except InvalidGraph:
        return None
    assert isinstance(summary, Summary)
    assert Summary.from_bytes(summary.to_bytes()).digest == summary.digest
    assert summary.describe()
    return summary


@quick
@given(st.binary(max_size=300))
@example(b"\x1f\x8b")
@example(b"\xfd7zXZ\0")
@example(b"&a [*a]")
@example(b"")
def test_any_bytes(data: bytes) -> None:
    reads(data)


@quick
@given(st.text(max_size=300))
def test_any_text_in_a_document(text: str) -> None:
    reads("{" + text)
    reads('{"graph": ' + text)


def mutated(document: Any, rng: Random, value: Any) -> Any:
    """A copy with one place changed: replaced by `value`, dropped, or doubled."""
    copy = json.loads(json.dumps(document))
    places: list[tuple[Any, Any]] = []

    def collect(inner: Any) -> None:
        for key in list(inner) if isinstance(inner, dict) else range(len(inner)):
            places.append((inner, key))
            if isinstance(inner[key], dict | list):
                collect(inner[key])

    collect(copy)
    where, key = rng.choice(places)
    action = rng.choice(("replace", "replace", "drop", "double"))
    if action == "replace":
        where[key] = value
    elif action == "drop":
        del where[key]
    elif isinstance(where, list):
        where.append(where[key])
    else:
        where[f"{key}2"] = where[key]
    return copy


@pytest.mark.parametrize("document", [GRAPH, RSET, {"all": RSET}, {**RSET, "scheduling": {"graph": GRAPH["graph"]}}])
@quick
@given(st.randoms(use_true_random=False), st.sampled_from(VALUES))
def test_one_thing_wrong(document: Any, rng: Random, value: Any) -> None:
    changed = mutated(document, rng, value)
    mapped = reads(changed)
    try:
        text = json.dumps(changed)
    except (ValueError, UnicodeEncodeError):
        return
    streamed = reads(text)
    assert (mapped is None) == (streamed is None)
    assert mapped is None or streamed is None or mapped.digest == streamed.digest


@quick
@given(st.randoms(use_true_random=False), st.sampled_from(VALUES))
def test_one_thing_wrong_in_a_subsystem(rng: Random, value: Any) -> None:
    changed = mutated(IO, rng, value)
    for act in (lambda: read_graph(GRAPH, subsystems={"io": changed}).to_bytes(), lambda: subsystem_name(changed, "x")):
        with suppress(InvalidGraph):
            act()


@quick
@given(st.binary(max_size=200), st.integers(0, 400), st.integers(0, 255))
def test_damaged_summaries(data: bytes, at: int, byte: int) -> None:
    stored = bytearray(read_graph(GRAPH, subsystems={"io": IO}).to_bytes())
    stored[at % len(stored)] = byte
    for candidate in (data, bytes(stored)):
        try:
            summary = Summary.from_bytes(candidate)
        except InvalidGraph:
            continue
        assert summary.describe()
