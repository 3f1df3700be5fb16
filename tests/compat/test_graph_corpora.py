"""Resource graphs, resource sets and subsystems that others wrote: each loads or is refused as its folder says."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path

import pytest

from rainbow.errors import InvalidGraph
from rainbow.resources import Summary, read_graph, subsystem_name

pytestmark = pytest.mark.shared

SHARED = Path(os.environ.get("RAINBOW_SHARED", Path(__file__).resolve().parents[2].parent / "shared"))
DATA = SHARED / "data"

# Subgraphs used to cancel part of an allocation: no vertex of these two is the root of a tree.
ROOTLESS = ("node-1-partial-cancel.json", "node-1-partial-cancel-invalid.json")


@pytest.fixture(autouse=True)
def _present() -> None:
    if not DATA.is_dir():
        pytest.skip(f"no shared data at {SHARED} (set RAINBOW_SHARED)")


def _files(folder: str) -> list[Path]:
    found = sorted(path for path in (DATA / folder).rglob("*") if path.is_file())
    assert found, f"{folder} is empty"
    return found


def _problem(path: Path) -> str | None:
    try:
        summary = read_graph(path)
    except InvalidGraph as exc:
        return str(exc)
    again = Summary.from_bytes(summary.to_bytes())
    assert (again.digest, again.shape_key, again.totals) == (summary.digest, summary.shape_key, summary.totals)
    return None


@pytest.mark.parametrize(
    "folder", ["graphs/jgf-v1", "graphs/jgf-v1-old", "graphs/jgf-v1-shorthand", "graphs/jgf-v2", "graphs/derived"]
)
def test_clusters_load(folder: str) -> None:
    assert {p.name: problem for p in _files(folder) if (problem := _problem(p))} == {}


def test_what_is_no_cluster_is_refused() -> None:
    for path in [*_files("graphs/not-clusters"), *_files("graphs/grug-recipes"), *_files("R/invalid")]:
        assert _problem(path), path.name


def test_partial_graphs_load_where_they_have_a_root() -> None:
    refused = {path.name for path in _files("graphs/partial") if _problem(path)}
    assert refused == set(ROOTLESS)


@pytest.mark.parametrize("folder", ["R/flux-core", "R/derived", "R/with-jgf", "R/status"])
def test_resource_sets_load(folder: str) -> None:
    assert {p.name: problem for p in _files(folder) if (problem := _problem(p))} == {}


def test_resource_sets_of_fluxion_load_unless_a_rank_is_none() -> None:
    refused = {p.name: problem for p in _files("R/flux-sched") if (problem := _problem(p))}
    assert list(refused) == ["cancel-rank1_cancel_invalid.json"]
    assert "'-1'" in refused["cancel-rank1_cancel_invalid.json"]


def test_vertices_are_counted_as_the_sources_state() -> None:
    """The list of sources states, for many graphs, how many vertices of which type they hold."""
    checked = 0
    for line in (DATA / "sources.tsv").read_text().splitlines():
        stated = re.search(r"vertex counts \{([^}]*)\}", line)
        path = next((DATA / cell for cell in line.split("\t") if (DATA / cell).is_file()), None)
        if stated is None or path is None or path.name in ROOTLESS or "power" in path.name or "sierra" in path.name:
            continue
        expected = {kind: int(count) for kind, count in re.findall(r"'([^']+)': (\d+)", stated[1])}
        assert read_graph(path).root.counts == expected, path.name
        checked += 1
    assert checked > 30


def test_fluke_has_its_hosts_and_properties() -> None:
    summary = read_graph(DATA / "R/flux-core/fluke.R")
    assert (summary.nodes, summary.cores) == (101, 404)
    assert {name: len(ids) for name, ids in summary.identity.properties.items()} == {"batch": 93, "debug": 8}
    assert str(summary.identity.hosts) == "fluke[3-103]"


def test_simulated_clusters_fold_to_one_shape_and_link_all_their_subsystems() -> None:
    keys = Counter(read_graph(path).shape_key for path in _files("graphs/jgf-v2/lammps48"))
    assert list(keys.values()) == [48]
    for path in _files("graphs/jgf-v2/lammps48")[:6]:
        documents = sorted((DATA / "subsystems/lammps48" / path.stem).glob("*.json"))
        summary = read_graph(path, subsystems=documents)
        assert set(summary.subsystems) == {subsystem_name(document) for document in documents}
        assert summary.shape_key in keys
        assert Summary.from_bytes(summary.to_bytes()).digest == summary.digest


def test_two_hundred_subsystems_on_one_cluster() -> None:
    documents = _files("subsystems/reliabuild/aqua")
    summary = read_graph(DATA / "graphs/jgf-v2/reliabuild/aqua.json", subsystems=documents)
    assert len(summary.subsystems) == len(documents) > 200


def test_a_subsystem_without_links_is_of_all_nodes() -> None:
    summary = read_graph(
        DATA / "graphs/jgf-v2/rainbow-cluster-red.json", subsystems={"modules": DATA / "subsystems/user-modules.json"}
    )
    assert summary.subsystems == ("modules",)
    assert not summary.warnings
    assert {len(holders.targets) for holders, _ in summary.subsystem["modules"].groups} == {summary.nodes}


def test_power_is_read_along_either_subsystem() -> None:
    path = DATA / "graphs/jgf-v1/flux-sched-power.json"
    containment, power = read_graph(path), read_graph(path, dominant="power")
    assert (containment.nodes, containment.totals.get("power")) == (72, None)
    assert power.totals["power"] > 0
    assert "node" in power.root.counts
    stored = json.loads(path.read_text())
    assert read_graph(stored, dominant="cluster").digest == containment.digest
