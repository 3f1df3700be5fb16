"""Summaries: what is stored, what compares equal, and how subsystems are linked later."""

from __future__ import annotations

from typing import Any

import pytest

from rainbow.errors import InvalidGraph
from rainbow.jobspec.request import Count, Request, Requirement, Want
from rainbow.ranges.hostlist import Hostlist
from rainbow.ranges.idset import IdSet
from rainbow.resources import Summary, match, read_graph, subsystem_name
from rainbow.resources.graph.identity import Identity, cut, runs
from resource_texts import graph, request


def io(*links: tuple[str, str]) -> dict[str, Any]:
    nodes = {
        "io0": {"metadata": {"type": "io"}},
        "a": {"metadata": {"type": "shm"}},
        "b": {"metadata": {"type": "nvme"}},
    }
    return {"graph": {"nodes": nodes, "edges": [{"source": s, "target": t} for s, t in links]}}


def wants(kind: str, value: str, count: int = 1) -> Request:
    wish = Requirement("io", "type", "match", (("match", value),))
    return Request((Want(kind, Count(count, count), requires=(wish,)),))


def test_equal_clusters_have_one_shape_key_and_digests_of_their_own() -> None:
    first = read_graph(graph("cluster(rack(2xnode(4xcore)),rack(node(gpu)))"))
    other_order = read_graph(graph("cluster(rack(node(gpu)),rack(2xnode(4xcore)))"))
    assert first.shape_key == other_order.shape_key
    assert first.root is other_order.root
    assert first.digest != other_order.digest  # other names at other places
    assert first.digest == read_graph(graph("cluster(rack(2xnode(4xcore)),rack(node(gpu)))")).digest
    assert first.shape_key != read_graph(graph("cluster(rack(2xnode(4xcore),node(gpu)))")).shape_key


def test_bytes_bring_everything_back() -> None:
    summary = read_graph(
        graph("cluster(2xrack(3xnode(4xcore,memory[8])))"), subsystems={"io": io(("2", "a"), ("4", "b"))}
    )
    again = Summary.from_bytes(summary.to_bytes())
    assert again.root is summary.root
    assert (again.digest, again.subsystems, again.describe()) == (summary.digest, ("io",), summary.describe())
    assert str(again.identity.hosts) == str(summary.identity.hosts)
    for asked in (wants("node", "shm"), wants("core", "nvme"), wants("core", "shm"), request("node6(core4)")):
        assert match(asked, again) == match(asked, summary)


def test_subsystems_come_and_go() -> None:
    bare = read_graph(graph("cluster(2xnode(2xcore))"))
    linked = Summary.from_bytes(bare.to_bytes()).with_subsystem("io", io(("1", "a")))
    assert linked.shape_key == bare.shape_key
    assert match(wants("node", "shm"), linked).match
    assert not match(wants("node", "shm"), bare).match
    again = linked.with_subsystem("io", io(("1", "b"), ("4", "b")))
    assert not match(wants("node", "shm"), again).match
    assert match(wants("node", "nvme", 2), again).match
    assert again.without_subsystem("io").digest == bare.digest
    assert bare.without_subsystem("io") is bare


def test_a_subsystem_may_use_keys_of_the_cluster_as_its_own() -> None:
    """Then the edge is an internal one: names are looked for in the document first."""
    document = io(("1", "a"))
    document["graph"]["nodes"]["1"] = {"metadata": {"type": "own"}}
    linked = read_graph(graph("cluster(2xnode(2xcore))")).with_subsystem("io", document)
    assert not match(wants("node", "shm"), linked).match


def test_the_software_of_a_user_space_without_links_is_of_all_nodes() -> None:
    summary = read_graph(graph("cluster(2xnode(2xcore))"))
    assert not match(wants("node", "shm"), summary.with_subsystem("io", io())).match, "no software of a user space"

    def software(*links: tuple[str, str]) -> dict[str, Any]:
        document = io(*links)
        for vertex in document["graph"]["nodes"].values():
            vertex["metadata"] = {"type": "package", "attributes": dict(vertex["metadata"])}
        return document

    assert match(wants("node", "shm", 2), summary.with_subsystem("io", software())).match
    # One link, and it is only where a link leads.
    assert not match(wants("node", "nvme"), summary.with_subsystem("io", software(("1", "a")))).match
    # Also as it is stored.
    again = Summary.from_bytes(summary.with_subsystem("io", software()).to_bytes())
    assert match(wants("node", "shm", 2), again).match


def test_links_on_resource_sets_go_by_host_name_or_rank() -> None:
    summary = read_graph(
        {"version": 1, "execution": {"R_lite": [{"rank": "0-3", "children": {"core": "0"}}], "nodelist": ["n[5-8]"]}}
    )
    assert match(wants("node", "shm", 2), summary.with_subsystem("io", io(("n5", "a"), ("2", "a")))).match
    with pytest.raises(InvalidGraph, match="the cluster has no vertex 'n9'"):
        summary.with_subsystem("io", io(("n9", "a")))


def test_edges_to_nothing_and_vertices_that_nobody_links() -> None:
    summary = read_graph(graph("cluster(2xnode(2xcore))"))
    with pytest.raises(InvalidGraph, match="the subsystem has no vertex 'z'"):
        summary.with_subsystem("io", io(("1", "z")))
    with pytest.raises(InvalidGraph, match="the cluster has no vertex '99'"):
        summary.with_subsystem("io", io(("99", "a")))
    assert summary.with_subsystem("io", io(("1", "a"))).warnings == ("io: nothing links to vertex 'b'",)
    refused: tuple[Any, ...] = (
        {},
        {"graph": {}},
        {"graph": {"nodes": 3}},
        {"graph": {"nodes": {"a": 1}}},
        "[1]",
        {"graph": {"nodes": {}, "edges": 1}},
    )
    for wrong in refused:
        with pytest.raises(InvalidGraph):
            summary.with_subsystem("io", wrong)


def test_a_subsystem_names_itself() -> None:
    assert subsystem_name(io(("1", "a"))) == "io"
    nameless = {"graph": {"nodes": {"a": {"metadata": {"type": "shm"}}}, "edges": [{"source": "1", "target": "a"}]}}
    assert subsystem_name(nameless, "given") == "given"
    with pytest.raises(InvalidGraph, match="no name"):
        subsystem_name(nameless)


def test_every_vertex_is_found_at_its_place() -> None:
    document = graph("cluster(rack(ssd,2xnode(2xsocket(2xcore),gpu)),node(core),rack(node(core)))")
    summary = read_graph(document)
    for key, node in document["graph"]["nodes"].items():
        kind = node["metadata"]["type"]
        holders = summary.locate(key)
        assert holders is not None
        if kind == "node":
            (ordinal,) = holders.targets
            assert summary.identity.hosts is not None
            assert summary.identity.hosts[ordinal] == node["metadata"]["name"]
        else:
            assert len(holders.others) == 1
        linked = summary.with_subsystem("io", io((key, "a")))
        assert match(wants(kind, "shm"), linked).match, key
        assert not match(wants(kind, "shm", 2), linked).match, key
    assert summary.locate("nobody") is None


def test_description_for_people() -> None:
    summary = read_graph(graph("cluster(2xrack(3xnode(2xsocket(4xcore),gpu)),memory[16])"))
    assert summary.describe() == "cluster(memory[16], 2 x rack(3 x node(gpu, 2 x socket(4 x core))))"
    many = read_graph(graph("cluster(" + ",".join(f"node({n}xcore)" for n in range(1, 200)) + ")"))
    assert len(many.describe()) < 1000


# -- identities ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "asked", "found"),
    [
        ("n[0-9],m[5-7]", "n3,m6", [3, 11]),
        ("n[0-9],m[5-7]", "n[8-20],m[0-5]", [8, 9, 10]),
        ("n[001-020]", "n[001-003]", [0, 1, 2]),
        ("n[001-020]", "n[1-3],n01", []),
        ("n[8-12]", "n[8-12]", [0, 1, 2, 3, 4]),
        ("n[08-12]", "n08,n10,n9", [0, 2]),
        ("a,b,c,b", "b", [1, 3]),
        ("node[0-3],node[0-3]", "node2", [2, 6]),
        ("rack[1-2]n7", "rack2n7", [1]),
        ("rack1n[1-9],rack2n[1-9]", "rack[1-2]n3", [2, 11]),
        ("x[1-3]-ib", "x2-ib,x[3-9]-ib", [1, 2]),
        ("n[0-3]", "other", []),
    ],
)
def test_names_to_ordinals(names: str, asked: str, found: list[int]) -> None:
    hosts = Hostlist.parse(names)
    assert list(Identity(len(hosts), hosts).with_hosts(Hostlist.parse(asked))) == found


def test_ranks_to_ordinals() -> None:
    identity = Identity(6, ranks=runs([4, 5, -1, 6, 0, 5]))
    assert identity.ranks == ((4, 2, 0), (6, 1, 3), (0, 1, 4), (5, 1, 5))
    assert list(identity.with_ranks(IdSet.parse("5-6"))) == [1, 3, 5]
    assert list(identity.with_ranks(IdSet.parse("1-3,7"))) == []


def test_cutting_a_hostlist() -> None:
    hosts = Hostlist.parse("a[1-5],x,b[07-09]")
    for ranges in ([(0, 9)], [(1, 3), (5, 7)], [(8, 9), (0, 1)], [(4, 8)]):
        assert list(Hostlist(cut(hosts, ranges))) == [hosts[i] for a, b in ranges for i in range(a, b)]
