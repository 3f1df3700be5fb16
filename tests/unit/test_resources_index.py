"""The index of clusters: grouped, remembered by request, brought up to date for what changed only."""

from __future__ import annotations

from typing import Any

import pytest

from rainbow.jobspec.request import Constraint, Count, Request, Requirement, Want
from rainbow.resources import ClusterIndex, Summary, match, read_graph
from rainbow.resources.matching.index import Names
from rainbow.resources.matching.matcher import Matcher
from resource_texts import graph, request

SMALL, LARGE = "cluster(2xnode(4xcore))", "cluster(4xnode(8xcore,gpu))"


def folded(text: str, **more: Any) -> Summary:
    return read_graph(graph(text), **more)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each time a graph is really counted."""
    calls: list[str] = []
    real = Matcher._fit

    def fit(self: Matcher, view: Any, *more: Any) -> bool:
        calls.append(view.type)
        return real(self, view, *more)

    monkeypatch.setattr(Matcher, "_fit", fit)
    return calls


def index(**clusters: str) -> ClusterIndex:
    made = ClusterIndex()
    for name, text in clusters.items():
        made.update(name, folded(text))
    return made


def test_answers() -> None:
    clusters = index(a=SMALL, b=LARGE, c=SMALL, d=LARGE)
    wide = clusters.query(request("node2(core4)"))
    assert list(wide) == list(wide.candidates) == ["a", "c", "b", "d"]
    assert (len(wide), bool(wide), "a" in wide, "e" in wide) == (4, True, True, False)
    some = clusters.query(request("slot3(gpu1)"))
    assert list(some.candidates) == ["b", "d"]
    assert some.unmet("b") == ()
    assert [one.code for one in some.unmet("a")] == ["missing-type"]
    assert (some.slots("a"), some.slots("b")) == (0, 1)
    none = clusters.query(request("node99"))
    assert (len(none), bool(none)) == (0, False)
    assert len(clusters) == 4
    with pytest.raises(KeyError):
        some.unmet("e")


def test_equal_clusters_are_counted_once_and_known_requests_not_at_all(counted: list[str]) -> None:
    clusters = index(**{f"c{n}": (SMALL, LARGE)[n % 2] for n in range(100)})
    assert len(clusters.query(request("node3")).candidates) == 50
    assert len(counted) == 2
    assert len(clusters.query(request("node3")).candidates) == 50
    assert len(counted) == 2
    # A cluster of a known shape more, and one less: nothing is counted again.
    clusters.update("more", folded(LARGE))
    clusters.remove("c1")
    clusters.remove("unknown")
    assert len(clusters.query(request("node3")).candidates) == 50
    assert len(counted) == 2
    clusters.update("new", folded("cluster(9xnode(core))"))
    assert "new" in clusters.query(request("node3"))
    assert len(counted) == 3


def test_a_changed_cluster_changes_its_answers_only(counted: list[str]) -> None:
    clusters = index(a=SMALL, b=SMALL, c=LARGE)
    asked = request("node3")
    assert list(clusters.query(asked)) == ["c"]
    clusters.update("a", folded(LARGE))
    assert sorted(clusters.query(asked)) == ["a", "c"]
    clusters.update("c", folded(SMALL))
    assert list(clusters.query(asked)) == ["a"]
    assert len(counted) == 2
    same = clusters.summary("a")
    version = clusters.version
    clusters.update("a", same)
    assert clusters.version == version


def test_constraints_are_asked_of_each_cluster_and_again_only_where_it_changed() -> None:
    clusters = index(a=SMALL, b=LARGE)
    asked = request("node1", Constraint("hostlist", ("node[2-3]",)))
    assert list(clusters.query(asked)) == ["b"]
    assert clusters.query(asked).unmet("a")[0].code == "constraint"
    clusters.update("a", folded(LARGE))
    assert list(clusters.query(asked)) == ["a", "b"]
    clusters.remove("b")
    assert list(clusters.query(asked)) == ["a"]


def test_clusters_that_differ_in_software_only_are_counted_once_for_each_combination(counted: list[str]) -> None:
    clusters = ClusterIndex()
    for number in range(20):
        io = {
            "graph": {
                "nodes": {"v": {"metadata": {"type": "shm", "note": str(number)}}},
                "edges": [{"source": source, "target": "v"} for source in ("1", "6")[: number % 3]],
            }
        }
        clusters.update(f"c{number}", folded(SMALL, subsystems={"io": io}))
    wish = Requirement("io", "type", "match", (("match", "shm"),))
    asked = Request((Want("node", Count(2, 2), requires=(wish,)),))
    assert list(clusters.query(asked)) == [f"c{n}" for n in range(20) if n % 3 == 2]
    assert len(counted) <= 3
    clusters.update("c2", clusters.summary("c2").without_subsystem("io"))
    assert "c2" not in clusters.query(asked)
    assert clusters.query(asked).unmet("c2")[0].code == "missing-subsystem"


def test_a_cluster_may_ask_for_fluxions_walk_too() -> None:
    clusters = index(a="cluster(node(socket(memory[4])))")
    clusters.update("b", clusters.summary("a"), "fluxion")
    found = clusters.query(request("node1(memory4)"))
    assert list(found) == ["a"]
    assert found.unmet("b")[0].code == "fluxion-walk"
    clusters.update("b", clusters.summary("a"))
    assert sorted(clusters.query(request("node1(memory4)"))) == ["a", "b"]


def test_answers_kept_are_bounded(counted: list[str]) -> None:
    clusters = ClusterIndex(max_requests=3)
    clusters.update("a", folded(SMALL))
    for count in (1, 2, 3, 1, 4, 1):
        clusters.query(request(f"node{count}"))
    assert len(counted) == 4
    clusters.query(request("node2"))
    assert len(counted) == 5


def test_names_are_one_sequence_over_shared_lists() -> None:
    lists = [["a", "b"], [], ["c"], ["d", "e", "f"]]
    names = Names(lists)
    assert list(names) == ["a", "b", "c", "d", "e", "f"]
    assert [names[i] for i in range(-6, 6)] == list("abcdef") * 2
    assert (names[1:4], "e" in names, "z" in names, len(names)) == (["b", "c", "d"], True, False, 6)
    for at in (6, -7):
        with pytest.raises(IndexError):
            names[at]
    assert len(Names([])) == 0


def test_the_index_says_what_matching_one_by_one_says() -> None:
    texts = [
        SMALL,
        LARGE,
        "cluster(rack(2xnode(2xsocket(4xcore,gpu))))",
        "cluster(node(64xcore,8xgpu))",
        "cluster(3xsocket(core))",
    ]
    clusters = index(**{f"c{n}": text for n, text in enumerate(texts)})
    for wanted in (
        "node1",
        "slot4(core4)",
        "slot2(core4,gpu1)",
        "node1,slot1(core4)",
        "rack1(slot2(socket1))",
        "socket3",
    ):
        asked = request(wanted)
        expected = {f"c{n}" for n, text in enumerate(texts) if match(asked, folded(text)).match}
        found = clusters.query(asked)
        assert set(found) == expected
        for name in clusters.names():
            assert (found.unmet(name) == ()) == (name in expected)
            assert (found.slots(name) > 0) == (name in expected)
