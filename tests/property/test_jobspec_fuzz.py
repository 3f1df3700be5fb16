"""Whatever comes in, reading gives a jobspec or says why not, and nothing else happens."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rainbow.errors import InvalidInput, InvalidJobspec
from rainbow.jobspec import read
from rainbow.jobspec.flux.v1 import V1Translator
from rainbow.ranges.hostlist import Hostlist
from rainbow.ranges.idset import IdSet

V1 = {
    "version": 1,
    "resources": [
        {
            "type": "node",
            "count": 2,
            "with": [
                {
                    "type": "slot",
                    "count": 2,
                    "label": "task",
                    "with": [{"type": "core", "count": 4}, {"type": "gpu", "count": 1}],
                }
            ],
        }
    ],
    "tasks": [{"command": ["app"], "slot": "task", "count": {"per_slot": 1}}],
    "attributes": {
        "system": {
            "duration": 60,
            "constraints": {"and": [{"hostlist": ["a[0-3]"]}, {"not": [{"properties": ["x"]}, {"ranks": ["0-3"]}]}]},
            "dependencies": [{"scheme": "afterok", "value": "f1"}],
            "shell": {"options": {"per-resource": {"type": "node"}}},
        }
    },
}
NEXTGEN = {
    "version": 1,
    "resources": {
        "a": {"type": "node", "replicas": 2, "with": [{"type": "core", "count": 2}]},
        "b": {"type": "node", "count": 1, "requires": [{"name": "io", "field": "type", "match": "shm"}]},
    },
    "tasks": [
        {"name": "one", "command": ["x"], "resources": "a"},
        {"group": "g", "depends_on": ["one"], "replicas": 2},
    ],
    "groups": [{"name": "g", "resources": "b", "tasks": [{"local": True, "command": "echo"}, {"command": ["y"]}]}],
}
OLD = {
    "version": 1,
    "resources": V1["resources"],
    "task": {
        "command": ["x"],
        "resources": {"io": {"match": [{"type": "shm"}], "range": [{"field": "v", "min": "1"}]}},
    },
}

KEYS = ["type", "with", "slot", "tasks", "system", "task", "group"]

odd = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**25), 10**25),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["1-", "2-8:2:^", "a[0-", "^", "slot", "node", "a|b", "\ud800", "0", "4,2"]),
    st.just([]),
    st.just({}),
    st.just({"a": 1}),
    st.just({1: 2}),
    st.just(["a"]),
    st.just(b"x"),
    st.just({"min": 2, "max": 9, "operator": "^", "operand": 3}),
)


def assert_one_line(problem: str) -> None:
    assert "\n" not in problem
    assert len(problem) < 1000


def _spots(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        found.append((value, key))
        found += _spots(value[key])
    return found


@st.composite
def damaged(draw: st.DrawFn) -> Any:
    document = copy.deepcopy(draw(st.sampled_from([V1, NEXTGEN, OLD])))
    for _ in range(draw(st.integers(1, 3))):
        spots = _spots(document)
        if not spots:
            break
        holder, key = draw(st.sampled_from(spots))
        what = draw(st.sampled_from(["replace", "delete", "move"]))
        if what == "delete":
            del holder[key]
        elif what == "move" and isinstance(holder, dict):
            holder[draw(st.sampled_from(KEYS))] = copy.deepcopy(holder[key])
        else:
            holder[key] = copy.deepcopy(draw(odd))
    return document


@settings(max_examples=400, deadline=None)
@given(damaged(), st.sampled_from([None, "V1", "canonical", "nextgen", "nextgen-list"]))
def test_damaged_documents(document: Any, dialect: Any) -> None:
    try:
        jobspec = read(document, dialect=dialect)
    except InvalidJobspec as exc:
        assert_one_line(str(exc))
        return
    assert hash(jobspec.request) == hash(read(document, dialect=dialect).request)
    before = json.dumps(jobspec.document)
    try:
        jobs = V1Translator().translate(jobspec)
    except InvalidJobspec:
        jobs = []
    for job in jobs:
        assert read(job.document, dialect="V1").dialect == "V1"
    assert json.dumps(jobspec.document) == before


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(), st.binary(), st.text(alphabet="[]{}:,-&*!|>'\"#%@?\n ab1<.~")))
@example("a: &a [*a]")
@example("<<: {a: 1}")
@example("\x00")
@example("? {a: b}\n: c")
@example("--- a\n--- b\n")
@example("")
def test_any_text(text: str | bytes) -> None:
    with pytest.raises(InvalidJobspec):
        read(text)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_free_attributes_survive(user: dict[str, Any]) -> None:
    document = {**V1, "attributes": {"system": {"duration": 0}, "user": user}}
    for given_as in (document, json.dumps(document), json.dumps(document, ensure_ascii=False).encode()):
        assert read(given_as).document["attributes"]["user"] == user


# -- idsets and hostlists against plain sets and lists --------------------------------------------

ids = st.lists(st.integers(0, 60), max_size=30)


@given(ids, ids)
def test_idsets_are_sets(left: list[int], right: list[int]) -> None:
    a, b = IdSet.of(left), IdSet.of(right)
    x, y = set(left), set(right)
    assert set(a | b) == x | y
    assert set(a & b) == x & y
    assert set(a - b) == x - y
    assert a.isdisjoint(b) == x.isdisjoint(y)
    assert a.issubset(b) == (x <= y)
    assert (a == b) == (x == y)
    assert len(a) == len(x)
    assert list(a) == sorted(x)
    assert IdSet.parse(str(a)) == a
    assert hash(IdSet.parse(f"[{a}]")) == hash(a)
    assert [a.at(i) for i in range(len(a))] == sorted(x)
    assert [a.position(i) for i in a] == list(range(len(a)))
    assert set(a.take(5)) == set(sorted(x)[:5])
    assert {i for i in range(62) if i in a} == x


names = st.lists(
    st.tuples(
        st.sampled_from(["n", "node", "r1n", "", "0"]),
        st.integers(0, 120),
        st.integers(1, 4),
        st.sampled_from(["", "-ib", "5"]),
    ).map(lambda part: f"{part[0]}{part[1]:0{part[2]}d}{part[3]}"),
    max_size=30,
)


@given(names)
def test_hostlists_are_lists(hosts: list[str]) -> None:
    made = Hostlist.parse(hosts)
    assert list(made) == hosts
    assert len(made) == len(hosts)
    assert list(Hostlist.parse(str(made))) == hosts
    assert [made[i] for i in range(len(made))] == hosts
    for name in {*hosts, "n1", "n01", "absent"}:
        assert made.positions(name) == [i for i, other in enumerate(hosts) if other == name]


@given(st.text(alphabet="0123456789,-[]ab ", max_size=20))
def test_any_idset_or_hostlist_text(text: str) -> None:
    for parse in (IdSet.parse, Hostlist.parse):
        try:
            made = parse(text)
        except InvalidInput as exc:
            assert_one_line(str(exc))
        else:
            assert len(made) >= 0
