"""Reasons: the first unmet need, its code, its place in the request, and numbers."""

from __future__ import annotations

import pytest

from rainbow.jobspec.request import Constraint, Count, Request, Requirement, Want
from rainbow.resources import Unmet, match, read_graph
from resource_texts import graph, request

TEXTS = [
    (
        "node4(slot1(core48,gpu4))",
        "cluster(2xnode(48xcore,4xgpu),6xnode(32xcore))",
        Unmet("too-few-nodes", "needs 4 nodes with that, has 2", "node[4] > slot > core[48], gpu[4]"),
    ),
    ("node3", "cluster(2xnode(core))", Unmet("too-few-nodes", "needs 3 nodes, has 2", "node[3]")),
    (
        "node3(core1)",
        "cluster(2xnode(core))",
        Unmet("too-few-nodes", "needs 3 nodes, has 2", "node[3] > core[1]"),
    ),
    (
        "node1(slot2(core4))",
        "cluster(3xnode(6xcore))",
        Unmet("too-few-cores", "needs 8 cores in one node, the most is 6", "node[1] > slot[2] > core[4]"),
    ),
    ("core9", "cluster(2xnode(4xcore))", Unmet("too-few-cores", "needs 9 cores, has 8", "core[9]")),
    (
        "slot1(core4,gpu1)",
        "cluster(2xnode(2xcore,gpu))",
        Unmet("slot-does-not-fit", "needs 4 cores in one node, the most is 2", "slot > core[4], gpu[1]"),
    ),
    (
        "slot9(core4)",
        "cluster(2xnode(8xcore))",
        Unmet("too-few-slots", "needs 9 slots with that, has 4", "slot[9] > core[4]"),
    ),
    (
        "slot2(core1)",
        "cluster(node(core[8]))",
        Unmet(
            "too-few-slots",
            "needs 2 slots with that, has 1: one core vertex of size 8 goes to one slot as a whole",
            "slot[2] > core[1]",
        ),
    ),
    (
        "rack1(node1)",
        "cluster(node(core))",
        Unmet("missing-type", "there is no rack in this cluster", "rack[1] > node[1]"),
    ),
    (
        "core1,slot1(asic2)",
        "cluster(node(core))",
        Unmet("missing-type", "there is no asic in this cluster", "slot > asic[2]"),
    ),
    (
        "node1,slot1(core1)",
        "cluster(node(2xcore))",
        Unmet("competing", "each need fits by itself, but not all at once", "node[1], slot(core[1])"),
    ),
    (
        "memory9",
        "cluster(node(2xmemory[4]))",
        Unmet("too-few-memory", "needs 9 memory, has 8", "memory[9]"),
    ),
]


@pytest.mark.parametrize(("wanted", "on", "expected"), TEXTS)
def test_the_first_unmet_need(wanted: str, on: str, expected: Unmet) -> None:
    assert match(request(wanted), read_graph(graph(on))).unmet == (expected,)


def test_a_constraint_is_named_when_it_is_what_leaves_too_few() -> None:
    summary = read_graph(graph("cluster(4xnode(core))"))
    only = Constraint(
        "and", (Constraint("hostlist", ("node[0-1]",)), Constraint("not", (Constraint("ranks", ("0",)),)))
    )
    assert match(request("node2", only), summary).unmet == (
        Unmet("constraint", "1 of 4 nodes satisfy hostlist(node[0-1]) and not(ranks(0))", "node[2]"),
    )
    # Too few nodes anyway: then the constraint is not to blame.
    assert match(request("node5", only), summary).unmet[0].code == "too-few-nodes"


def test_requirements_are_named() -> None:
    io = {"graph": {"nodes": {"a": {"metadata": {"type": "shm"}}}, "edges": [{"source": "1", "target": "a"}]}}
    summary = read_graph(graph("cluster(2xnode(core))"), subsystems={"io": io})

    def asked(count: int, subsystem: str, value: str) -> tuple[Unmet, ...]:
        wish = Requirement(subsystem, "type", "match", (("match", value),))
        return match(Request((Want("node", Count(count, count), requires=(wish,)),)), summary).unmet

    assert asked(1, "spack", "gcc") == (
        Unmet("missing-subsystem", "no subsystem spack is registered", "requires spack.type match gcc"),
    )
    assert asked(1, "io", "nvme") == (Unmet("requirement", "none of 2 nodes has that", "requires io.type match nvme"),)
    assert asked(2, "io", "shm")[0].code == "too-few-nodes"
    assert "has 1" in asked(2, "io", "shm")[0].detail


def test_every_no_has_one_reason_in_plain_words() -> None:
    summary = read_graph(graph("cluster(2xrack(2xnode(2xsocket(2xcore),gpu)))"))
    for wanted in ("node5", "slot1(core5)", "rack1(node3)", "slot2(rack1(core9))", "socket1(gpu1)", "slot3(rack1)"):
        (only,) = match(request(wanted), summary).unmet
        assert only.path
        assert "\n" not in only.detail
        assert len(only.detail) < 200
