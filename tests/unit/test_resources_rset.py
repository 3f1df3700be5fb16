"""Flux's R: what it means as a cluster, with ranks, names and properties kept as ranges."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rainbow.errors import InvalidGraph
from rainbow.jobspec.request import Constraint, Count, Request, Want
from rainbow.resources import Blocks, Summary, match, read_graph
from resource_texts import graph


def rset(*lite: tuple[str, dict[str, str]], **execution: Any) -> dict[str, Any]:
    rows = [{"rank": ranks, "children": children} for ranks, children in lite]
    return {"version": 1, "execution": {"R_lite": rows, **execution}}


def nodes_with(summary: Summary, operator: Any, *values: str) -> int:
    """How many nodes a constraint leaves."""
    asked = [Request((Want("node", Count(n, n)),), Constraint(operator, values)) for n in range(1, summary.nodes + 1)]
    return sum(match(one, summary).match for one in asked)


def test_classes_of_ranks() -> None:
    summary = read_graph(
        rset(("0,2-3", {"core": "0-1", "gpu": "0-1"}), ("1", {"core": "0"}), nodelist=["foo[2-3,1,4]"])
    )
    assert summary.describe() == "cluster(3 x node(2 x core, 2 x gpu), node(core))"
    # Names stand for ranks in rising order: foo2 is rank 0, foo3 is 1, foo1 is 2, foo4 is 3.
    for host, rank, cores in (("foo2", "0", 2), ("foo3", "1", 1), ("foo1", "2", 2), ("foo4", "3", 2)):
        for operator, value in (("hostlist", host), ("ranks", rank)):
            for wanted in (1, 2):
                asked = Request((Want("core", Count(wanted, wanted)),), Constraint(operator, (value,)))  # type: ignore[arg-type]
                assert match(asked, summary).match == (wanted <= cores), (host, wanted)


def test_entries_in_any_order_and_ranks_that_occur_twice() -> None:
    one = read_graph(rset(("1", {"core": "0-7"}), ("0", {"core": "0-1"}), nodelist=["f[0-1]"]))
    assert nodes_with(one, "hostlist", "f1") == 1
    twice = read_graph(rset(("0-3", {"core": "0-1"}), ("2-5", {"core": "1-2", "gpu": "0"})))
    assert twice.describe() == "cluster(2 x node(2 x core), 2 x node(2 x core, gpu), 2 x node(3 x core, gpu))"


def test_properties() -> None:
    summary = read_graph(
        rset(
            ("0-9", {"core": "0-3"}),
            nodelist=["n[0-9]"],
            properties={"ssd": "0-4", "odd": "1,3,5,7,9", "mi300@gpu": "9"},
        )
    )
    assert summary.describe() == "cluster(10 x node(4 x core))"
    assert nodes_with(summary, "properties", "ssd") == 5
    assert nodes_with(summary, "properties", "odd", "ssd") == 2
    assert nodes_with(summary, "properties", "^odd", "^ssd") == 2
    assert nodes_with(summary, "properties", "mi300@gpu") == 1
    assert nodes_with(summary, "properties", "mi300") == 0
    for host in range(10):
        both = Constraint("and", (Constraint("hostlist", (f"n{host}",)), Constraint("properties", ("odd",))))
        assert match(Request((Want("node", Count(1, 1)),), both), summary).match == (host % 2 == 1)


def test_properties_count_although_the_graph_inside_lacks_them() -> None:
    inner = graph("cluster(4xnode(2xcore))")
    document = {**rset(("0-3", {"core": "0-1"}), properties={"fast": "1-2", "none": "9"}), "scheduling": inner}
    blocks = Blocks()
    for known in (None, blocks, blocks):
        summary = read_graph(json.dumps(document) if known is not None else document, known=known)
        assert nodes_with(summary, "properties", "fast") == 2
        assert nodes_with(summary, "properties", "none") == 0
    del document["execution"]["properties"]
    assert nodes_with(read_graph(json.dumps(document), known=blocks), "properties", "fast") == 0
    document["execution"]["properties"] = ["fast"]
    with pytest.raises(InvalidGraph, match="R: properties is"):
        read_graph(document)


def test_without_names_and_with_too_few() -> None:
    assert read_graph(rset(("0-3", {"core": "0"}))).identity.hosts is None
    assert read_graph(rset(("0-3", {"core": "0"}), nodelist=[""])).identity.hosts is None
    few = read_graph(rset(("0-3", {"core": "0"}), nodelist=["a[0-1]"]))
    assert nodes_with(few, "hostlist", "a0,a1") == 2
    inside = {"version": 1, "execution": {"R_lite": [{"rank": "0", "node": "x7", "children": {"core": "0"}}]}}
    assert nodes_with(read_graph(inside), "hostlist", "x7") == 1


def test_an_empty_set_and_replies_of_flux_resource() -> None:
    assert read_graph(rset()).totals == {"cluster": 1}
    whole = rset(("0-3", {"core": "0"}))
    assert read_graph({"all": whole, "down": None, "allocated": None}).nodes == 4
    assert read_graph({"R": whole, "drain": {}}).nodes == 4


def test_a_hundred_thousand_ranks_stay_a_few_ranges() -> None:
    document = rset(
        ("0-99999", {"core": "0-31", "gpu": "0-3"}), nodelist=["node[0-99999]"], properties={"gpu": "0-49999"}
    )
    summary = read_graph(document)
    assert (summary.nodes, summary.cores, summary.gpus) == (100_000, 3_200_000, 400_000)
    assert len(summary.identity.hosts.pieces if summary.identity.hosts else ()) <= 2
    assert len(summary.identity.ranks) <= 2
    assert len(summary.to_bytes()) < 1000
    assert nodes_with_at_least(summary, "hostlist", "node[10-60000]", 59_991)


def nodes_with_at_least(summary: Summary, operator: Any, value: str, count: int) -> bool:
    def holds(n: int) -> bool:
        return match(Request((Want("node", Count(n, n)),), Constraint(operator, (value,))), summary).match

    return holds(count) and not holds(count + 1)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"version": 2, "execution": {"R_lite": []}}, "version is 2"),
        ({"execution": {"R_lite": []}}, "version is None"),
        ({"version": 1}, "execution is missing"),
        ({"version": 1, "execution": []}, "execution is not an object"),
        ({"version": 1, "execution": {}}, "R_lite is None"),
        ({"version": 1, "execution": {"R_lite": "foo"}}, "R_lite is 'foo'"),
        ({"version": 1, "execution": {"R_lite": ["0"]}}, "an entry of R_lite"),
        (rset(("0-", {"core": "0"})), "rank"),
        (rset(("-1", {"core": "0"})), "rank"),
        (rset(("0", {"core": "a"})), "core of rank 0"),
        (rset(("0", {"core": "0"}), nodelist="foo"), "nodelist is 'foo'"),
        (rset(("0", {"core": "0"}), nodelist=["a[0-"]), "nodelist"),
        (rset(("0", {"core": "0"}), properties=["x"]), "properties is"),
        (rset(("0", {"core": "0"}), properties={"x": 1.5}), "property 'x'"),
    ],
)
def test_what_is_wrong_is_named(document: Any, words: str) -> None:
    with pytest.raises(InvalidGraph, match=words):
        read_graph(document)
