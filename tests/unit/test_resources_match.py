"""The rules of matching, one by one (graphs and requests as text: see resource_texts.py)."""

from __future__ import annotations

from typing import Any

import pytest

from rainbow.errors import UnknownPlugin
from rainbow.jobspec.request import Constraint, Count, Request, Requirement, Want
from rainbow.resources import Answer, match, read_graph
from resource_texts import Document, graph, request


def ask(wanted: str | Request, on: str | Document, **more: Any) -> Answer:
    asked = request(wanted) if isinstance(wanted, str) else wanted
    return match(asked, read_graph(graph(on) if isinstance(on, str) else on), **more)


YES = [
    ("node2(core4)", "cluster(2xnode(4xcore))"),
    # Levels may be skipped, and a type is looked for at the root as well.
    ("node1(core4)", "cluster(rack(node(2xsocket(2xcore))))"),
    ("cluster1(node1)", "cluster(node(core))"),
    ("rack1(slot1(core2))", "cluster(rack(node(2xcore)))"),
    # A vertex that cannot serve may hold one of the same type that can.
    ("box1(core2)", "cluster(box(box(2xcore),3xgpu))"),
    # Leaves ask for an amount.
    ("memory6", "cluster(node(2xmemory[4]))"),
    ("slot2(memory3)", "cluster(node(2xmemory[4]))"),
    ("slot2(memory3)", "cluster(node(2xmemory[2],2xmemory[1]))"),
    # The smallest allowed count decides.
    ("node2-16(core1)", "cluster(2xnode(core))"),
    ("slot2..(core1)", "cluster(2xnode(core))"),
    # Locality of slots.
    ("slot4(socket1)", "cluster(2xnode(2xsocket(core)))"),
    ("slot1(rack1)", "cluster(rack(node(core)))"),
    ("slot1(node2)", "cluster(rack(node(core)),rack(node(core)))"),
    ("slot1(ssd2)", "cluster(rack(2xssd,node(core)))"),
    ("slot1(core4)", "cluster(2xsocket(2xcore))"),
    ("slot1(core1,gpu1)", "cluster(node(gpu,socket(core)))"),
    ("slot1(core2)", "cluster(storage_node(2xcore),node(core))"),
    # Counts of nothing.
    ("slot1(core2,gpu0)", "cluster(node(2xcore))"),
    # Siblings that fit together.
    ("slot1(core4),slot1(core5)", "cluster(node(4xcore),node(8xcore))"),
    ("core1,slot1(core1)", "cluster(node(3xcore))"),
    ("node1,core1", "cluster(2xnode(core))"),
    ("node1(core1),node1(core1)", "cluster(2xnode(core))"),
    ("node1,slot1(gpu1),socket1", "cluster(node(socket),node(socket(gpu)),node(socket))"),
    ("slot1(node1),slot1(socket2)", "cluster(rack(2xnode(2xsocket)))"),
    ("slot2(core2),slot2(core3)", "cluster(2xnode(5xcore))"),
    # Slots in slots multiply.
    ("slot2(slot2(core2))", "cluster(2xnode(4xcore))"),
    # Alternatives: one of them is enough.
    ("xor_slot1(gpu1),xor_slot1(core2)", "cluster(node(2xcore))"),
    ("node1(xor_slot9(core1),xor_slot2(core1))", "cluster(node(2xcore))"),
]

NO = [
    ("node2(core4)", "cluster(node(4xcore),node(3xcore))"),
    ("node2(core4)", "cluster(node(8xcore))"),
    ("rack1(node1)", "cluster(node(core))"),
    ("memory9", "cluster(node(2xmemory[4]))"),
    ("slot1(socket3)", "cluster(2xnode(2xsocket))"),
    ("slot1(core3)", "cluster(2xnode(2xcore))"),
    ("slot1(ssd2)", "cluster(rack(ssd,node),rack(ssd,node))"),
    ("slot1(core2,ssd1)", "cluster(rack(ssd,node(2xcore)))"),
    # A vertex is never shared by two slots.
    ("slot8(memory1)", "cluster(node(4xmemory[2]))"),
    ("slot2(ssd1)", "cluster(ssd[10])"),
    ("memory2,memory2", "cluster(node(memory[4]))"),
    # What competes, and does not fit.
    ("node1,core1", "cluster(node(2xcore))"),
    ("core1,slot1(core1)", "cluster(node(core))"),
    ("node1(core1),node1(core1)", "cluster(rack(node(2xcore)))"),
    ("socket1(core1),socket1", "cluster(node(socket(2xcore)))"),
    ("slot1(core4),slot1(core5)", "cluster(node(5xcore),node(3xcore))"),
    ("slot1(node1),slot1(socket2)", "cluster(rack(node(2xsocket)))"),
    ("slot1(node1,memory1)", "cluster(node(socket(memory)))"),
    ("node1,slot1(gpu1),socket1", "cluster(node(socket),node(socket(gpu)))"),
    ("slot3(memory2)", "cluster(node(2xmemory[2],memory))"),
    ("xor_slot1(gpu1),xor_slot1(core3)", "cluster(node(2xcore))"),
]


@pytest.mark.parametrize(("wanted", "on"), YES)
def test_yes(wanted: str, on: str) -> None:
    answer = ask(wanted, on)
    assert answer.match
    assert answer.slots >= 1
    assert answer.unmet == ()


@pytest.mark.parametrize(("wanted", "on"), NO)
def test_no(wanted: str, on: str) -> None:
    answer = ask(wanted, on)
    assert not answer.match
    assert answer.slots == 0
    assert len(answer.unmet) == 1


@pytest.mark.parametrize(
    ("wanted", "on", "slots"),
    [
        ("slot2(core4)", "cluster(2xnode(8xcore))", 2),
        ("node2(core4)", "cluster(5xnode(8xcore))", 2),
        ("memory3", "cluster(node(4xmemory[2]))", 2),
        ("core1,slot1(core2)", "cluster(2xnode(4xcore))", 2),
        ("node1,core1", "cluster(4xnode(2xcore))", 2),
        ("slot1(memory3)", "cluster(node(2xmemory[2],2xmemory[1]))", 2),
        ("slot1(gpu1)", "cluster(100xnode(2xgpu))", 200),
    ],
)
def test_how_many_at_once(wanted: str, on: str, slots: int) -> None:
    assert ask(wanted, on).slots == slots


def test_a_request_for_nothing_fits_anywhere() -> None:
    for wanted in ("gpu0", "slot2(core0)", "node0(core5)"):
        answer = ask(wanted, "cluster(node(core))")
        assert (answer.match, answer.slots) == (True, 2**53 - 1)


def test_sets_of_great_size_are_counted_as_ranges() -> None:
    most = 2**53 - 1
    lite = [{"rank": f"0-{2**24 - 1}", "children": {"core": f"0-{most}"}}]
    answer = match(request("node2(core7)"), read_graph({"version": 1, "execution": {"R_lite": lite}}))
    assert (answer.match, answer.slots) == (True, 2**23)


# -- constraints ---------------------------------------------------------------------------------


def constraint(operator: Any, *values: Any) -> Constraint:
    return Constraint(operator, values)


def fleet() -> Document:
    """Four nodes in two racks: node0 fast, node1 fast and old, node2 plain, node3 old."""
    document = graph("cluster(2xrack(2xnode(2xcore)))")
    properties = {"node0": ("fast",), "node1": ("fast", "old"), "node2": (), "node3": ("old",)}
    for node in document["graph"]["nodes"].values():
        metadata = node["metadata"]
        if metadata["type"] == "node":
            metadata["properties"] = dict.fromkeys(properties[metadata["name"]], "")
    return document


HOLDS = [
    (constraint("properties", "fast"), 2),
    (constraint("properties", "fast", "old"), 1),
    (constraint("properties", "^old"), 2),
    (constraint("properties", "^fast", "^old"), 1),
    (constraint("properties", "amd@core"), 0),
    (constraint("hostlist", "node[0-1]", "node3,other"), 3),
    (constraint("hostlist", "node00"), 0),
    (constraint("ranks", "0,2-7"), 3),
    (constraint("and"), 4),
    (constraint("or"), 4),
    (constraint("not"), 0),
    (constraint("not", constraint("properties", "fast")), 2),
    (constraint("not", constraint("properties", "fast"), constraint("properties", "old")), 3),
    (constraint("or", constraint("hostlist", "node2"), constraint("properties", "old")), 3),
    (constraint("and", constraint("ranks", "1-3"), constraint("properties", "^fast")), 2),
]


@pytest.mark.parametrize(("which", "nodes"), HOLDS)
def test_a_constraint_leaves_so_many_nodes(which: Constraint, nodes: int) -> None:
    for wanted in range(1, 5):
        asked = request(f"node{wanted}(core2)", which)
        assert ask(asked, fleet()).match == (wanted <= nodes)
        assert ask(request(f"core{wanted * 2}", which), fleet()).match == (wanted <= nodes)


def test_what_a_constraint_leaves_keeps_its_place() -> None:
    """A rack without usable nodes is still a rack, and slots still have to fit where they had to."""
    on = graph("cluster(2xrack(ssd,node(2xcore)))")
    only = constraint("hostlist", "node0")
    assert ask(request("rack2", only), on).match
    assert not ask(request("rack2(core1)", only), on).match
    assert ask(request("slot2(ssd1)", only), on).match
    nobody = constraint("hostlist", "nobody")
    assert not ask(request("slot1(ssd2)", nobody), on).match
    assert ask(request("slot2(ssd1)", nobody), on).match


def test_one_name_in_several_racks_counts_for_each() -> None:
    on = graph("cluster(2xrack(node(core)))")
    for node in on["graph"]["nodes"].values():
        if node["metadata"]["type"] == "node":
            node["metadata"]["name"] = "node7"
    assert ask(request("node2", constraint("hostlist", "node7")), on).match


# -- requirements --------------------------------------------------------------------------------


def needing(count: int, *requires: Requirement, kind: str = "node", inside: str = "") -> Request:
    children = request(inside).resources if inside else ()
    return Request((Want(kind, Count(count, count), children, requires=requires),))


def wish(field: str, value: str, subsystem: str = "io") -> Requirement:
    return Requirement(subsystem, field, "match", (("match", value),))


def between(field: str, low: str | None = None, high: str | None = None) -> Requirement:
    bounds = [(name, bound) for name, bound in (("max", high), ("min", low)) if bound is not None]
    return Requirement("io", field, "range", tuple(bounds))


def linked() -> Any:
    """node0 has shm; node1 has spack, below which lies version 1.5; core 5 (of node1) has a link as well."""
    on = graph("cluster(2xnode(2xcore))")  # 0 cluster, 1 node (2 3), 4 node (5 6)
    io = {
        "graph": {
            "nodes": {
                "root": {"metadata": {"type": "io"}},
                "a": {"metadata": {"type": "shm", "fast": True, "capacity": 17179869184, "share": 0.5}},
                "b": {"metadata": {"type": "spack"}},
                "c": {"metadata": {"type": "package", "attributes": {"version": "v1.5"}}},
            },
            "edges": [
                {"source": "1", "target": "a", "relation": "contains"},
                {"source": "a", "target": "1", "relation": "in"},
                {"source": "4", "target": "b", "relation": "contains"},
                {"source": "b", "target": "c", "relation": "contains"},
                {"source": "5", "target": "a", "relation": "contains"},
            ],
        }
    }
    return read_graph(on, subsystems={"io": io})


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (needing(1, wish("type", "shm")), True),
        (needing(2, wish("type", "shm")), False),
        (needing(1, wish("type", "shm"), wish("type", "spack")), False),
        (needing(1, wish("type", "spack"), wish("type", "package")), True),
        (needing(1, wish("fast", "true")), True),
        (needing(1, wish("capacity", "17179869184")), True),
        (needing(1, between("version", "1.2", "1.5.0")), True),
        (needing(1, between("version", "1.5.1")), False),
        (needing(1, between("capacity", "1000")), True),
        (needing(1, between("share", "0.2", "0.5")), True),
        (needing(1, wish("type", "shm"), kind="core"), True),
        (needing(2, wish("type", "shm"), kind="core"), False),
        (needing(1, wish("type", "shm"), inside="core2"), True),
        (needing(1, wish("type", "shm"), inside="core3"), False),
        (needing(1, wish("type", "shm", "elsewhere")), False),
        (Request((*needing(1, wish("type", "shm")).resources, *needing(1, wish("type", "spack")).resources)), True),
        (Request((*needing(1, wish("type", "shm")).resources, *needing(1, wish("fast", "true")).resources)), False),
    ],
)
def test_requirements(asked: Request, expected: bool) -> None:
    assert match(asked, linked()).match is expected


def test_what_a_slot_requires_is_required_of_what_is_in_it() -> None:
    inner = Want("node", Count(1, 1), (Want("core", Count(2, 2)),))
    asked = Request((Want("slot", Count(2, 2), (inner,), requires=(wish("type", "shm"),)),))
    assert not match(asked, linked()).match


def test_an_algorithm_of_ones_own() -> None:
    class Prefix:
        def accepting(self, arguments: Any) -> Any:
            return lambda value: value.startswith(arguments["with"])

    asked = needing(1, Requirement("io", "type", "prefix", (("with", "sp"),)))
    assert match(asked, linked(), algorithms={"prefix": Prefix()}).match
    with pytest.raises(UnknownPlugin, match="prefix"):
        match(asked, linked())


# -- many competing needs ------------------------------------------------------------------------


def test_competing_needs_on_many_nodes_are_placed() -> None:
    on = read_graph(graph("cluster(20xrack(18xnode(2xsocket(8xcore,gpu))))"))
    for wanted in ("node20,slot300(core4),slot20(core2,gpu1)", "slot700(core8)", "rack2,node100,slot400(core4)"):
        assert match(request(wanted), on, budget_s=2.0).match
    assert not match(request("node200,slot700(core4)"), on).match


def test_a_budget_that_is_used_up_is_said() -> None:
    on = read_graph(graph("cluster(9xnode(7xcore),8xnode(11xcore),7xnode(13xcore),5xnode(17xcore))"))
    tight = request("slot11(core3),slot13(core5),slot17(core7),slot3(core2),core60")
    answer = match(tight, on, budget_s=1e-9)
    assert not answer.match
    assert answer.unmet[0].code == "budget"
    assert "ms" in answer.unmet[0].detail
