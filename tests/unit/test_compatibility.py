"""What an image needs of nodes: comparing, reading, matching, choosing."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from rainbow.errors import InvalidJobspec
from rainbow.jobspec import read, simple
from rainbow.jobspec.compatibility import carrying, read_compatibility
from rainbow.jobspec.request import Demand, HostNeed, Request
from rainbow.resources import ClusterIndex, Summary, match, read_graph
from rainbow.resources.backends.vertex import VertexBackend
from rainbow.resources.compatibility import Compatibility, compiled
from rainbow.resources.matching.host_needs import kept, score
from rainbow_workers.selection import Selections
from rainbow_workers.selection.base import JobView, Load
from resource_texts import graph, request

# -- values ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "yes", "no"),
    [
        ("4.1", ["4.1", "4.1.0", " 4.1 "], ["4.1.1", "", "x"]),
        (">=4.1,<5", ["4.1", "4.1.6", "4.10", "4.9.9"], ["4.0.9", "5", "5.0.0", ""]),
        (">=4.1,<5 | ==3.1.*", ["4.2", "3.1", "3.1.4"], ["3.10", "3.2"]),
        ("==4.1.*", ["4.1", "4.1.9"], ["4.10", "4.2"]),
        ("!=4.0.3", ["4.0.4", "mpich"], ["4.0.3", "4.0.3.0"]),
        ("~=4.1.2", ["4.1.2", "4.1.9"], ["4.1.1", "4.2", "5"]),
        ("OpenMPI | mpich", ["openmpi", "MPICH"], ["intel-mpi"]),
        ("*", ["", "anything"], []),
        ("amd64", ["x86_64", "AMD64", "x86-64"], ["aarch64"]),
        (">=5.15.0-91", ["5.15.0-91-generic", "5.15.0-100-generic", "6.1.0-18-amd64"], ["5.15.0-9-generic", "5.4.0"]),
        (">=535.104", ["535.104.05", "550.54.15"], ["535.98"]),
        (">=2023.2", ["2023.2.0", "2024.0"], ["2021.8"]),
        ("<1.0", ["1.0rc1", "0.9"], ["1.0"]),
        ("13th Gen Intel(R)", ["13th gen intel(r)"], ["12th gen"]),
    ],
)
def test_values(value: str, yes: list[str], no: list[str]) -> None:
    test = compiled(value)
    assert [given for given in yes if not test(given)] == []
    assert [given for given in no if test(given)] == []


def test_no_value_raises() -> None:
    odd = ["", "|", ">=", ">=,", "~=x", "==.*", "²", "9" * 300, "\n", "a|", ">=1|b", "<<1"]
    for value in odd:
        for given in odd:
            assert Compatibility().accepting({"value": value})(given) in (True, False)
    assert not Compatibility().accepting({})("1")


# -- reading --------------------------------------------------------------------------------------------------


def test_any_jobspec_carries_needs() -> None:
    items: list[dict[str, Any]] = [
        {"attribute": "mpi.version", "value": ">=4"},
        {"attribute": "cpu.target", "value": "amd64", "if_known": True},
        {"attribute": "os.vendor", "value": "ubuntu", "weight": 2},
    ]
    nextgen = {
        "version": 1,
        "resources": {"a": {"type": "node", "count": 1}},
        "tasks": [{"command": ["x"], "resources": "a"}],
    }
    for document in (
        simple(["x"]),
        simple(["x"], nodes=1, requires=[{"name": "io", "field": "a", "match": 1}]),
        nextgen,
    ):
        plain = read(document)
        found = read(carrying(document, items))
        assert found.dialect == plain.dialect
        assert found.request.host == (HostNeed("mpi.version", ">=4"), HostNeed("cpu.target", "amd64", True))
        assert found.preferences == ((HostNeed("os.vendor", "ubuntu"), 2),)
        assert found.request.resources == plain.request.resources
        twice = read(carrying(carrying(document, items[:1]), items[:1]))
        assert twice.request.host == (HostNeed("mpi.version", ">=4"),)
        assert "compatibility" not in str(document)


@pytest.mark.parametrize(
    "items",
    [
        "mpi",
        [1],
        [{"attribute": "a"}],
        [{"attribute": "", "value": "x"}],
        [{"attribute": "a", "value": 1}],
        [{"attribute": "a", "value": "x", "colour": "red"}],
        [{"attribute": "a", "value": "x", "weight": 0}],
        [{"attribute": "a", "value": "x", "weight": float("inf")}],
        [{"attribute": "a", "value": "x", "weight": True}],
        [{"attribute": "a", "value": "x", "if_known": 1}],
        [{"attribute": "a", "value": "x" * 257}],
        [{"attribute": "a" * 129, "value": "x"}],
        [{"attribute": "a", "value": "x"}] * 65,
    ],
)
def test_what_is_no_need(items: Any) -> None:
    with pytest.raises(InvalidJobspec, match="compatibility"):
        read_compatibility(items)


def test_a_document_with_something_else_there() -> None:
    users: tuple[Any, ...] = (1, {"rainbow": []}, {"rainbow": {"compatibility": {}}})
    for user in users:
        with pytest.raises(InvalidJobspec):
            carrying({**simple(["x"]), "attributes": {"system": {"duration": 0}, "user": user}}, [])


# -- matching -------------------------------------------------------------------------------------------------


def subsystem(rows: Mapping[str, tuple[list[str], dict[str, Any]]]) -> dict[str, Any]:
    """Vertices by key: what links to them, and their metadata."""
    nodes = {"root": {"metadata": {"type": "root"}}, **{key: {"metadata": meta} for key, (_, meta) in rows.items()}}
    edges = [
        {"source": source, "target": key, "relation": "contains"}
        for key, (links, _) in rows.items()
        for source in links
    ]
    return {"graph": {"nodes": nodes, "edges": edges}}


def cluster() -> Summary:
    """Four nodes: OpenMPI 4.1.2 on two, MPICH 4.0 and OpenMPI 3.1 on the others; ior on one; properties."""
    document = graph("cluster(4xnode(4xcore))")
    names = {v["metadata"].get("name"): key for key, v in document["graph"]["nodes"].items()}
    for at in (0, 1):
        document["graph"]["nodes"][names[f"node{at}"]]["metadata"]["properties"] = {"cpu.target=amd64": "", "ssd": ""}
    one, two, three, four = (names[f"node{at}"] for at in range(4))
    summary = read_graph(document)
    mpi = subsystem(
        {
            "m0": ([one, two], {"type": "mpi", "implementation": "OpenMPI", "version": "4.1.2"}),
            "m1": ([three], {"type": "mpi", "implementation": "mpich", "version": "4.0"}),
            "m2": ([three, four], {"type": "mpi", "implementation": "OpenMPI", "version": "3.1"}),
        }
    )
    spack = subsystem({"p": ([one], {"type": "package", "name": "ior", "version": "3.3.0"})})
    hardware = subsystem(
        {"h": ([one, three], {"type": "hardware.gpu.available=yes", "gpu.driver.version": "535.104.05"})}
    )
    whole = next(key for key, v in document["graph"]["nodes"].items() if v["metadata"]["type"] == "cluster")
    cpu = subsystem({"c": ([whole], {"type": "cpu", "features": "sse4_2 avx avx2"})})
    for name, made in (("mpi", mpi), ("spack", spack), ("hardware", hardware), ("cpu", cpu)):
        summary = summary.with_subsystem(name, made)
    return Summary.from_bytes(summary.to_bytes())


def asking(text: str, *needs: tuple[str, str] | HostNeed) -> Request:
    host = tuple(need if isinstance(need, HostNeed) else HostNeed(*need) for need in needs)
    return Request(request(text).resources, None, host)


OPENMPI = ("mpi.implementation", "openmpi")


@pytest.mark.parametrize(
    ("needs", "nodes"),
    [
        ([OPENMPI], 4),
        ([OPENMPI, ("mpi.version", ">=4")], 2),
        ([("mpi.version", ">=4")], 3),
        ([OPENMPI, ("mpi.version", "<4")], 2),
        ([OPENMPI, ("mpi.version", "<4"), ("spack.ior", ">=3")], 0),
        ([("spack.ior", ">=3.3,<4")], 1),
        ([("spack.ior", ">=4")], 0),
        ([("hardware.gpu.available", "yes")], 2),
        ([("hardware.gpu.driver.version", ">=535")], 2),
        ([("cpu.target", "x86_64")], 2),
        ([HostNeed("cpu.target", "x86_64", True)], 4),
        ([HostNeed("cpu.target", "arm64", True)], 2),
        ([("ssd", "true")], 2),
        ([("cpu.features", "avx2 avx")], 4),
        ([("cpu.features", "avx512f")], 0),
        ([("kernel.version", "*")], 0),
    ],
)
def test_which_nodes_meet_needs(needs: list[Any], nodes: int) -> None:
    summary = cluster()
    host = asking("node1(core1)", *needs).host
    assert len(kept(summary, host)) == nodes
    for count in range(1, 5):
        asked = asking(f"node{count}(core4)", *needs)
        fits = count <= nodes
        assert match(asked, summary).match is fits
        backends = ClusterIndex(), VertexBackend()
        for backend in backends:
            backend.update("c", summary)
            assert bool(list(backend.query(asked).candidates)) is fits
    assert match(asking(f"slot{4 * nodes or 1}(core1)", *needs), summary).match is bool(nodes)
    assert not match(asking(f"slot{4 * nodes + 1}(core1)", *needs), summary).match


def test_the_first_unmet_need_is_named_with_numbers() -> None:
    summary = cluster()

    def why(text: str, *needs: Any) -> str:
        answer = match(asking(text, *needs), summary)
        assert answer.unmet[0].code == "compatibility"
        return f"{answer.unmet[0].path}: {answer.unmet[0].detail}"

    assert why("node1(core1)", ("mpi.version", ">=5")) == (
        "needs mpi.version >=5: none of 4 nodes meet that; there is 3.1 on 2, 4.1.2 on 2, 4.0 on 1"
    )
    assert why("node1(core1)", ("kernel.version", ">=6")) == (
        "needs kernel.version >=6: none of 4 nodes meet that; nothing is said of it"
    )
    assert why("node1(core1)", ("spack.ior", "*"), ("mpi.version", "4.0")) == (
        "needs mpi.version 4.0: 1 of 4 nodes meet that, none with the other needs; "
        "there is 3.1 on 2, 4.1.2 on 2, 4.0 on 1"
    )
    assert why("node1(core1)", ("mpi.implementation", "mpich"), ("mpi.version", ">=4.1")) == (
        "needs mpi.implementation mpich: 1 of 4 nodes meet that, none with the other needs; "
        "there is OpenMPI on 4, mpich on 1"
    )
    assert why("node3(core1)", ("hardware.gpu.available", "yes")) == (
        "needs hardware.gpu.available yes: 2 of 4 nodes meet that, too few for the job; there is yes on 2"
    )
    # What has nothing to do with the image is said as ever.
    assert match(asking("node9(core1)", OPENMPI), summary).unmet[0].code == "too-few-nodes"


# -- choosing -------------------------------------------------------------------------------------------------


class Fleet:
    def __init__(self, free: Mapping[str, int], **summaries: Summary) -> None:
        self.free, self.summaries = free, summaries

    def load(self, cluster: str) -> Load:
        return Load(Demand(4, 16), Demand(self.free[cluster], 4 * self.free[cluster]))

    def values(self, cluster: str) -> Mapping[str, Any]:
        return {}

    def summary(self, cluster: str) -> Summary:
        return self.summaries[cluster]


def test_preferences_are_a_score() -> None:
    plain = read_graph(graph("cluster(4xnode(4xcore))"))
    wishes = ((HostNeed("mpi.version", ">=4"), 3.0), (HostNeed("kernel.version", ">=6"), 1.0))
    assert (score(cluster(), wishes), score(plain, wishes), score(plain, ())) == (0.75, 0.0, 0.0)
    selection = Selections().get("compatibility", {})

    def chosen(fleet: Fleet, preferences: Any = wishes) -> tuple[str | None, Any]:
        job = JobView("j", "u", None, 16, Demand(1, 4), preferences=preferences)
        choice = selection.choose(list(fleet.free), fleet, job, random.Random(1))
        return choice.cluster, choice.terms["compatibility"]

    both = {"good": cluster(), "plain": plain}
    assert chosen(Fleet({"good": 1, "plain": 4}, **both)) == ("good", 0.75)
    assert chosen(Fleet({"good": 0, "plain": 4}, **both)) == ("plain", 0.0), "room now comes first"
    assert chosen(Fleet({"good": 1, "plain": 4}, **both), ()) == ("plain", 0.0)
    assert chosen(Fleet({"good": 1, "plain": 4}, good=plain, plain=plain)) == ("plain", 0.0), "a graph that changed"
