"""Both graph backends keep the same contract."""

from __future__ import annotations

from typing import Any

import pytest

from rainbow.errors import InvalidGraph
from rainbow.plugins import load, names
from rainbow.resources.vertex import Search, TookTooLong
from rainbow.resources.vertex_graph import VertexGraph
from resource_texts import graph, request


@pytest.fixture(params=["folded", "vertex"])
def backend(request: pytest.FixtureRequest) -> Any:
    return load("rainbow.graphs", request.param)()


def test_both_are_plugins() -> None:
    assert {"folded", "vertex"} <= set(names("rainbow.graphs"))


def test_register_match_remove(backend: Any) -> None:
    backend.register("small", graph("cluster(2xnode(4xcore))"))
    backend.register("large", graph("cluster(4xnode(8xcore))"))
    assert set(backend.clusters()) == {"small", "large"}
    assert set(backend.candidates(request("node2(core4)"))) == {"small", "large"}
    assert set(backend.candidates(request("node3(core4)"))) == {"large"}
    assert backend.match("large", request("node2(core4)")).slots == 2
    refused = backend.match("small", request("node3"))
    assert (refused.match, refused.slots, len(refused.unmet)) == (False, 0, 1)
    backend.register("small", graph("cluster(3xnode(core))"))
    assert backend.match("small", request("node3")).match
    backend.remove("small")
    backend.remove("small")
    assert set(backend.clusters()) == {"large"}
    with pytest.raises(KeyError):
        backend.match("small", request("node1"))


def test_subsystems_and_other_forms(backend: Any) -> None:
    rset = {
        "version": 1,
        "execution": {"R_lite": [{"rank": "0-1", "children": {"core": "0-3"}}], "nodelist": ["n[0-1]"]},
    }
    backend.register("r", rset)
    assert backend.match("r", request("node2(core4)")).slots == 1
    io = {"graph": {"nodes": {"a": {"metadata": {"type": "shm"}}}, "edges": [{"source": "1", "target": "a"}]}}
    backend.register("linked", graph("cluster(node(core))"), {"io": io})
    assert backend.match("linked", request("node1")).match
    for wrong in ({"graph": {"nodes": [], "edges": []}}, "[1]", {"x": 1}, {"graph": {"nodes": {"a": {}}, "edges": []}}):
        with pytest.raises(InvalidGraph):
            backend.register("wrong", wrong)


def test_the_plain_search_gives_up() -> None:
    with pytest.raises(TookTooLong):
        Search(VertexGraph(graph("cluster(node(12xcore,9xmemory[3]))")), request("core9,memory20"), max_steps=3).fits()
