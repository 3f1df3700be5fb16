"""The graph backends keep one contract, and the scheduler's cache asks the one that is configured."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rainbow.brokers import ConnectOptions, connect
from rainbow.errors import UnknownPlugin
from rainbow.models.cluster import ClusterRecord
from rainbow.plugins import load, names
from rainbow.resources import read_graph
from rainbow.resources.backends.vertex import Search, TookTooLong
from rainbow.resources.backends.vertex_graph import unfolded
from rainbow.security.tokens import KeyRing
from rainbow_workers.clusters.cache import ClusterCache
from rainbow_workers.service import Service, ServiceOptions
from rainbow_workers.stores import StoreOptions, open_store
from rainbow_workers.stores.base import Changes
from resource_texts import graph, request

sys.path.insert(0, str(Path(__file__).parents[1] / "property"))

from property.cases import make_case
from property.vertex_documents import DocumentGraph


@pytest.fixture(params=["folded", "vertex"])
def backend(request: pytest.FixtureRequest) -> Any:
    return load("rainbow.graphs", request.param)()


def test_both_are_plugins() -> None:
    assert {"folded", "vertex"} <= set(names("rainbow.graphs"))


def test_update_query_remove(backend: Any) -> None:
    backend.update("small", read_graph(graph("cluster(2xnode(4xcore))")))
    backend.update("large", read_graph(graph("cluster(4xnode(8xcore))")))
    both = backend.query(request("node2(core4)"))
    assert set(both.candidates) == {"small", "large"}
    assert (both.slots("large"), both.unmet("large")) == (2, ())
    refused = backend.query(request("node3(core4)"))
    assert list(refused.candidates) == ["large"]
    assert (refused.slots("small"), len(refused.unmet("small"))) == (0, 1)
    backend.update("small", read_graph(graph("cluster(3xnode(core))")))
    assert "small" in backend.query(request("node3")).candidates
    backend.remove("small")
    backend.remove("small")
    left = backend.query(request("node1"))
    assert list(left.candidates) == ["large"]
    with pytest.raises(KeyError):
        left.unmet("small")


def test_subsystems_hosts_and_r(backend: Any) -> None:
    rset = {
        "version": 1,
        "execution": {
            "R_lite": [{"rank": "0-1", "children": {"core": "0-3"}}],
            "nodelist": ["n[0-1]"],
            "properties": {"fast": "1"},
        },
    }
    from rainbow.jobspec.request import Constraint, Requirement

    backend.update("r", read_graph(rset))
    assert backend.query(request("node2(core4)")).slots("r") == 1
    for constraint, slots in (
        (Constraint("hostlist", ("n1",)), 4),
        (Constraint("properties", ("fast",)), 4),
        (Constraint("ranks", ("0",)), 4),
        (Constraint("properties", ("slow",)), 0),
    ):
        assert backend.query(request("node1(core1)", constraint)).slots("r") == min(slots, 1)
    io = {"graph": {"nodes": {"a": {"metadata": {"type": "shm"}}}, "edges": [{"source": "1", "target": "a"}]}}
    backend.update("linked", read_graph(graph("cluster(2xnode(core))"), subsystems={"io": io}))
    wanted = request("node1")
    [node] = wanted.resources
    for value, found in (("shm", 1), ("nvme", 0)):
        requires = (Requirement("io", "type", "match", (("match", value),)),)
        asked = type(wanted)(resources=(type(node)(node.type, node.count, node.children, requires=requires),))
        assert backend.query(asked).slots("linked") == found


def test_a_cluster_matched_as_fluxion_does(backend: Any) -> None:
    backend.update("f", read_graph(graph("cluster(node(core))")), matcher="fluxion")
    assert list(backend.query(request("node1(core1)")).candidates) == ["f"]
    assert not backend.query(request("node1(core2)")).candidates


def test_a_summary_unfolds_to_the_vertices_it_was_folded_from() -> None:
    agreed = 0
    for number in range(150):
        case = make_case(Random(f"unfold:{number}"))
        plain = DocumentGraph(case.graph)
        for name, document in case.subsystems.items():
            plain.link(name, document)
        again = unfolded(read_graph(case.graph, subsystems=case.subsystems))
        assert sorted((v.type, v.size) for v in again.vertices) == sorted((v.type, v.size) for v in plain.vertices)
        try:
            assert Search(again, case.request, 20_000).fits() == Search(plain, case.request, 20_000).fits()
        except TookTooLong:
            continue
        agreed += 1
    assert agreed > 100


def test_the_plain_search_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    made = unfolded(read_graph(graph("cluster(node(12xcore,9xmemory[3]))")))
    with pytest.raises(TookTooLong):
        Search(made, request("core9,memory20"), max_steps=3).fits()
    monkeypatch.setattr("rainbow.resources.backends.vertex.MAX_STEPS", 3)
    backend = load("rainbow.graphs", "vertex")()
    backend.update("deep", read_graph(graph("cluster(node(12xcore,9xmemory[3]))")))
    found = backend.query(request("core9,memory20"))
    assert (list(found.candidates), found.unmet("deep")[0].code, found.slots("deep")) == ([], "budget", 0)


def test_the_cache_asks_the_backend_it_was_given() -> None:
    summary = read_graph(graph("cluster(2xnode(4xcore))"))
    record = ClusterRecord(name="red", registration="r1", identity="here", summary=summary.to_bytes())
    for name in ("folded", "vertex"):
        cache = ClusterCache(graphs=load("rainbow.graphs", name)())
        cache.apply(Changes(version=1, clusters={"red": record}))
        assert list(cache.graphs.query(request("node2(core4)")).candidates) == ["red"]
        unmet = cache.graphs.query(request("node3")).unmet("red")
        assert (unmet[0].code == "no-placement") is (name == "vertex")


def test_a_scheduler_has_the_backend_that_its_settings_name() -> None:
    broker, ring = connect(ConnectOptions("memory://graph-backends")), KeyRing.generate()
    store = open_store(StoreOptions("memory://graph-backends"))
    for name in ("folded", "vertex"):
        service = Service(broker, store, ring, ServiceOptions(graphs=name))
        assert type(service.world.graphs) is load("rainbow.graphs", name)
    with pytest.raises(UnknownPlugin, match="folded, vertex"):
        Service(broker, store, ring, ServiceOptions(graphs="fluxion-library"))
    broker.close()
