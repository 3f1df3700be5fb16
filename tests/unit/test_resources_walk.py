"""Where Fluxion's walk refuses what counting allows, and where both agree."""

from __future__ import annotations

import pytest

from rainbow.resources import match, read_graph
from resource_texts import graph, request

BOTH = [
    ("slot4(core2)", "cluster(2xnode(4xcore))"),
    ("node2(slot1(core2,gpu1))", "cluster(2xnode(4xcore,gpu))"),
    ("slot1(core2)", "cluster(rack(node(socket(2xcore))))"),
    ("node1(slot2(core2))", "cluster(node(2xsocket(2xcore)))"),
    ("slot1(node2(socket1(core1)))", "cluster(2xnode(socket(core)))"),
    ("slot2(memory3)", "cluster(node(2xmemory[4]))"),
    ("slot2(core1-4)", "cluster(node(8xcore))"),
    ("xor_slot1(gpu1),xor_slot1(core2)", "cluster(node(2xcore))"),
]

ONLY_COUNTING = [
    # After the first matched vertex, the next must be its child.
    ("node1(memory4)", "cluster(node(socket(memory[4])))"),
    # A slot settles where all its types are direct children.
    ("slot1(core2,gpu2)", "cluster(node(2xsocket(core,gpu)))"),
    ("slot1(core2,gpu1)", "cluster(node(gpu,socket(2xcore)))"),
    ("slot2(node1)", "cluster(node(core),rack(2xnode(core)))"),
    # Siblings of one type, or a resource beside a slot at the same vertex.
    ("slot1(socket1(core1),socket1(core2))", "cluster(node(2xsocket(2xcore)))"),
    ("socket1(core1),slot1(core1)", "cluster(node(2xsocket(2xcore)))"),
    # A count of nothing.
    ("slot1(core1,gpu0)", "cluster(node(core,gpu))"),
    # Of a range in a slot, the first slot takes its largest possible value.
    ("slot2(memory2..,core1)", "cluster(node(2xcore,4xmemory))"),
]


@pytest.mark.parametrize(("wanted", "on"), BOTH)
def test_walk_and_counting_agree(wanted: str, on: str) -> None:
    summary = read_graph(graph(on))
    assert match(request(wanted), summary).match
    assert match(request(wanted), summary, matcher="fluxion").match


@pytest.mark.parametrize(("wanted", "on"), ONLY_COUNTING)
def test_the_walk_refuses(wanted: str, on: str) -> None:
    summary = read_graph(graph(on))
    assert match(request(wanted), summary).match
    refused = match(request(wanted), summary, matcher="fluxion")
    assert not refused.match
    assert refused.unmet[0].code == "fluxion-walk"


def test_counting_has_to_agree_as_well() -> None:
    """Of two slots under one resource the walk looks at the last only, and can say yes wrongly."""
    summary = read_graph(graph("cluster(node(socket(core)))"))
    wanted = request("node1(slot1(socket1(memory2)),slot1(socket1(core1)))")
    assert not match(wanted, summary, matcher="fluxion").match
