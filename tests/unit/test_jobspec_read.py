"""Canonical jobspec and V1: what is accepted, and the request that comes of it."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from rainbow.errors import InvalidJobspec
from rainbow.jobspec import Cache, Constraint, Count, Demand, Request, Want, read, read_cached


def core(count: Any = 1) -> dict[str, Any]:
    return {"type": "core", "count": count}


def slot(*inside: dict[str, Any], count: Any = 1, label: str = "task") -> dict[str, Any]:
    return {"type": "slot", "count": count, "label": label, "with": list(inside)}


def node(*inside: dict[str, Any], count: Any = 1) -> dict[str, Any]:
    return {"type": "node", "count": count, "with": list(inside)}


def document(*resources: dict[str, Any], version: Any = 1, **system: Any) -> dict[str, Any]:
    return {
        "version": version,
        "resources": list(resources),
        "tasks": [{"command": ["app"], "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": 0, **system}},
    }


def want(kind: str, number: int, *children: Want) -> Want:
    return Want(kind, Count(number, number), children)


def refusal(given: Any, dialect: Any = None) -> str:
    with pytest.raises(InvalidJobspec) as caught:
        read(given, dialect=dialect)
    return str(caught.value)


GPU = {"type": "gpu", "count": 2}


def test_request_and_demand_of_v1() -> None:
    jobspec = read(document(node(slot(core(3), GPU, count=4), count=2), constraints={"hostlist": ["a"]}))
    assert jobspec.dialect == "V1"
    assert jobspec.request == Request(
        (want("node", 2, want("slot", 4, want("core", 3), want("gpu", 2))),), Constraint("hostlist", ("a",))
    )
    assert jobspec.demand == Demand(nodes=2, cores=24, gpus=16)
    assert jobspec.duration == 0.0


def test_same_shape_is_the_same_request() -> None:
    one = document(slot(core(2), label="a"), duration=60, job={"name": "x"}, environment={"A": "b"})
    other = document(slot(core(2), label="b"), duration=1, cwd="/tmp")
    other["tasks"][0]["command"] = ["another", "one"]
    assert read(one).request == read(other).request
    assert hash(read(one).request) == hash(read(json.dumps(other)).request)
    assert read(one).request != read(document(slot(core(3)))).request
    assert read(one).name == "x"


@pytest.mark.parametrize(
    "resource",
    [
        slot(core()),
        slot(core(), GPU),
        slot(GPU, core()),
        node(slot(core())),
        node(slot(core(), {"type": "gpu", "count": 0})),
    ],
)
def test_four_forms_are_v1(resource: dict[str, Any]) -> None:
    assert read(document(resource), dialect="V1").dialect == "V1"


@pytest.mark.parametrize(
    "resources",
    [
        [slot(GPU)],
        [slot(core(), core())],
        [slot(node(core()))],
        [slot(slot(core()))],
        [node(slot(node()))],
        [slot(core()), slot(core())],
        [{"type": "rack", "count": 1, "with": [slot(core())]}],
        [slot({"type": "core", "count": 1, "with": [{"type": "pu", "count": 1}]})],
        [slot(core("1-3"))],
        [slot(core(), count={"min": 2})],
        [node(slot(core()), {"type": "memory", "count": 1})],
    ],
)
def test_other_forms_are_canonical(resources: list[dict[str, Any]]) -> None:
    assert read(document(*resources)).dialect == "canonical"
    assert "V1" in refusal(document(*resources), "V1")


def test_more_tasks_in_a_slot_are_canonical() -> None:
    given = document(slot(core()))
    given["tasks"][0]["count"] = {"per_slot": 2}
    assert read(given).dialect == "canonical"
    assert "per_slot" in refusal(given, "V1")
    given["tasks"][0]["count"] = {"total": 2}
    assert read(given, dialect="V1").dialect == "V1"


def changed(path: str, value: Any, version: int = 1) -> dict[str, Any]:
    """A valid document with the value at `path` replaced; `...` removes it."""
    made = copy.deepcopy(document(node(slot(core(), GPU)), version=version))
    holder: Any = made
    *way, last = [int(part) if part.isdecimal() else part for part in path.split(".")]
    for part in way:
        holder = holder[part]
    if value is ...:
        del holder[last]
    else:
        holder[last] = value
    return made


SLOT = "resources.0.with.0"


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        ("version", ..., "version"),
        ("version", 2, "version"),
        ("version", 0, "version"),
        ("version", "1", "version"),
        ("version", True, "version"),
        ("version", 1.0, "version"),
        ("resources", ..., "resources"),
        ("resources", {}, "resources"),
        ("resources", [], "resources"),
        ("resources", ["x"], "resources[0]"),
        ("tasks", ..., "tasks"),
        ("tasks", {}, "tasks"),
        ("tasks", [], "tasks"),
        ("tasks.0", "x", "tasks[0]"),
        ("attributes", ..., "attributes"),
        ("attributes", None, "attributes"),
        ("attributes", 1, "attributes"),
        ("attributes.foo", 1, "attributes"),
        ("attributes.user", None, "attributes.user"),
        ("attributes.system", [], "attributes.system"),
        ("extra", 1, "unknown key 'extra'"),
        ("resources.0.type", ..., "resources[0].type"),
        ("resources.0.type", ["node"], "resources[0].type"),
        ("resources.0.count", ..., "resources[0].count"),
        ("resources.0.count", 0, "resources[0].count"),
        ("resources.0.with", 42, "resources[0].with"),
        ("resources.0.with", None, "resources[0].with"),
        ("resources.0.with", [], "no slot"),
        ("resources.0.speed", 1, "resources[0]"),
        ("resources.0.exclusive", "blah", "resources[0].exclusive"),
        ("resources.0.exclusive", None, "resources[0].exclusive"),
        ("resources.0.unit", ["x"], "resources[0].unit"),
        ("resources.0.id", 0, "resources[0].id"),
        (f"{SLOT}.label", ..., "resources[0].with[0].label"),
        (f"{SLOT}.label", ["x"], "resources[0].with[0].label"),
        (f"{SLOT}.with", [], "resources[0].with[0].with"),
        (f"{SLOT}.with", ..., "resources[0].with[0].with"),
        (f"{SLOT}.with.0.count", 0, "resources[0].with[0].with[0].count"),
        (f"{SLOT}.with.1.count", -1, "resources[0].with[0].with[1].count"),
        ("tasks.0.command", ..., "tasks[0].command"),
        ("tasks.0.command", "app", "tasks[0].command"),
        ("tasks.0.command", [], "tasks[0].command"),
        ("tasks.0.command", [1], "tasks[0].command"),
        ("tasks.0.command", ["a\0b"], "tasks[0].command"),
        ("tasks.0.slot", ..., "tasks[0].slot"),
        ("tasks.0.slot", 1, "tasks[0].slot"),
        ("tasks.0.count", ..., "tasks[0].count"),
        ("tasks.0.count", 1, "tasks[0].count"),
        ("tasks.0.count", {}, "tasks[0].count"),
        ("tasks.0.count", {"total": 1, "per_slot": 1}, "tasks[0].count"),
        ("tasks.0.count", {"total": 0}, "tasks[0].count.total"),
        ("tasks.0.count", {"per_slot": True}, "tasks[0].count.per_slot"),
        ("tasks.0.count", {"each": 1}, "tasks[0].count"),
        ("tasks.0.count", {"per_resource": 1}, "tasks[0].count.per_resource"),
        ("tasks.0.count", {"per_resource": {"type": "core", "count": 1}}, "tasks[0].count"),
        ("tasks.0.env", {}, "tasks[0]"),
        ("tasks.0.attributes", {"x": 1}, "tasks[0].attributes.x"),
        ("tasks.0.distribution", 1, "tasks[0].distribution"),
        ("attributes.system", {"cwd": "/"}, "attributes.system.duration"),
        ("attributes.system.duration", "1h", "attributes.system.duration"),
        ("attributes.system.duration", -1, "attributes.system.duration"),
        ("attributes.system.duration", True, "attributes.system.duration"),
        ("attributes.system.duration", "60", "attributes.system.duration"),
        ("attributes.system.cwd", 1, "attributes.system.cwd"),
        ("attributes.system.job", "x", "attributes.system.job"),
        ("attributes.system.shell", [], "attributes.system.shell"),
        ("attributes.system.environment", None, "attributes.system.environment"),
        ("attributes.system.constraints", ["x"], "attributes.system.constraints"),
        ("attributes.system.dependencies", {}, "attributes.system.dependencies"),
        ("attributes.system.dependencies", [{"scheme": "a", "value": 1}], "attributes.system.dependencies[0]"),
        ("attributes.system.shell", {"options": {"per-resource": {"count": 8}}}, "per-resource"),
    ],
)
def test_refusals_name_the_place(path: str, value: Any, place: str) -> None:
    problem = refusal(changed(path, value))
    assert problem.startswith("jobspec: ")
    assert place in problem


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("attributes.system", {}),
        ("attributes.system", ...),
        ("attributes.user", {"any": [1]}),
        ("tasks.0.slot", "nowhere"),
        ("attributes.system.dependencies", [{"scheme": "after", "value": "f1"}]),
        (f"{SLOT}.with.1.count", 0),
        ("resources.0.exclusive", True),
        ("attributes.system.requires", {"software": []}),
    ],
)
def test_accepted_in_version_1(path: str, value: Any) -> None:
    assert read(changed(path, value)).dialect == "V1"


@pytest.mark.parametrize("version", [999, 9999])
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("attributes", None),
        ("attributes.system.duration", "3600"),
        ("attributes.system", {"cwd": "/"}),
        ("tasks", []),
        ("tasks.0.count", {"per_resource": {"type": "core", "count": 1}}),
        ("resources.0.with", []),
    ],
)
def test_experiments_have_looser_rules(version: int, path: str, value: Any) -> None:
    assert read(changed(path, value, version)).dialect == "canonical"
    assert "version" in refusal(changed("version", version), "V1")


def test_gpu_zero_is_of_version_1() -> None:
    assert "count" in refusal(changed(f"{SLOT}.with.1.count", 0, 9999))


def test_alternatives_cost_the_dearest() -> None:
    def either(*inside: dict[str, Any]) -> dict[str, Any]:
        return slot(*inside, count=2) | {"type": "xor_slot"}

    jobspec = read(document(node(either(core(8)), either(core(2), GPU), slot(core())), version=9999))
    assert [child.type for child in jobspec.request.resources[0].children] == ["xor_slot", "xor_slot", "slot"]
    assert jobspec.demand == Demand(nodes=1, cores=17, gpus=4)


@pytest.mark.parametrize(
    ("labels", "named", "kinds"),
    [
        (("a", "b"), ("a", "b"), ["slot", "slot"]),
        (("a", "b"), ("elsewhere",), ["xor_slot", "xor_slot"]),
        (("a", "a"), ("a",), ["xor_slot", "xor_slot"]),
        (("a",), ("elsewhere",), ["slot"]),
    ],
)
def test_sibling_slots_that_no_task_tells_apart_are_alternatives(
    labels: tuple[str, ...], named: tuple[str, ...], kinds: list[str]
) -> None:
    given = document(node(*(slot(core(), label=label) for label in labels)), version=9999)
    given["tasks"] = [{"command": ["x"], "slot": name, "count": {"total": 1}} for name in named]
    (top,) = read(given).request.resources
    assert [child.type for child in top.children] == kinds


def test_ranges_ask_for_their_least() -> None:
    count = {"min": 2, "max": 16, "operator": "*", "operand": 2}
    jobspec = read(document(node(slot(core("4,9")), count=count)))
    assert jobspec.request.resources[0].count == Count(2, 16)
    assert jobspec.demand == Demand(nodes=2, cores=8)


def test_known_texts_are_not_read_again() -> None:
    cache = Cache(max_entries=2, max_bytes=10_000)
    texts = [json.dumps(document(slot(core(n)))) for n in (1, 2, 3)]
    first = cache.read(texts[0])
    assert cache.read(texts[0]) is first
    assert cache.read(texts[0], dialect="V1") is not first
    for text in texts[1:]:
        cache.read(text)
    assert len(cache) == 2
    again = cache.read(texts[0])
    assert again is not first
    assert again == first
    swapped = dict(reversed(list(document(slot(core(9))).items())))
    assert cache.read(document(slot(core(9)))) is cache.read(swapped)
    cache.clear()
    assert len(cache) == 0
    assert read_cached(texts[0]) is read_cached(texts[0])


def test_cache_is_bounded_by_bytes_and_keeps_no_refusals() -> None:
    text = json.dumps(document(slot(core())))
    cache = Cache(max_entries=100, max_bytes=len(text) + 10)
    cache.read(text)
    cache.read(text.replace('"app"', '"two"'))
    assert len(cache) == 1
    for bad in ("nonsense", {"a": {1}}, {"a": float("nan")}, "x" * 2_000_000):
        with pytest.raises(InvalidJobspec):
            cache.read(bad)
    assert len(cache) == 1
