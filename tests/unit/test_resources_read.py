"""Reading resource graphs: four dialects of JGF, in several wrappings, and what is refused with which words."""

from __future__ import annotations

import gzip
import io
import json
import lzma
from pathlib import Path
from typing import Any

import pytest
import yaml

from rainbow.errors import InvalidGraph
from rainbow.ranges.hostlist import Hostlist
from rainbow.ranges.idset import IdSet
from rainbow.resources import Blocks, Summary, read_graph
from rainbow.resources.graph import document as documents
from rainbow.resources.graph import json_stream
from rainbow.resources.readers import patch, reader

VERTICES = {
    "0": {"type": "cluster", "name": "tiny0"},
    "1": {"type": "node", "name": "n1", "rank": 0, "properties": {"ssd": ""}},
    "2": {"type": "core"},
    "3": {"type": "core"},
    "4": {"type": "memory", "size": 8, "unit": "GB"},
    "5": {"type": "node", "name": "n2", "rank": 1},
    "6": {"type": "core"},
}
PAIRS = [("0", "1"), ("1", "2"), ("1", "3"), ("1", "4"), ("0", "5"), ("5", "6")]


def keyed(edge: Any) -> dict[str, Any]:
    nodes = {key: {"label": key, "metadata": metadata} for key, metadata in VERTICES.items()}
    return {"name": "tiny", "graph": {"directed": True, "nodes": nodes, "edges": edge}}


def listed(edges: Any) -> dict[str, Any]:
    return {"graph": {"nodes": [{"id": k, "metadata": m} for k, m in VERTICES.items()], "edges": edges}}


def ends(pair: tuple[str, str], **more: Any) -> dict[str, Any]:
    return {"source": pair[0], "target": pair[1], **more}


DIALECTS = {
    "A": keyed(
        [ends(p, relation="contains", metadata={}) for p in PAIRS]
        + [ends((b, a), relation="in", metadata={}) for a, b in PAIRS]
    ),
    "B": listed([ends(p, metadata={"subsystem": "containment"}) for p in PAIRS]),
    "C": listed(
        [ends(p, metadata={"name": {"containment": "contains"}}) for p in PAIRS]
        + [ends((b, a), metadata={"name": {"containment": "in"}}) for a, b in PAIRS]
    ),
    "D": listed([ends(p) for p in PAIRS]),
    "edges first": {"graph": {"edges": [ends(p) for p in PAIRS], "nodes": listed([])["graph"]["nodes"]}},
    "numbers": {
        "graph": {
            "nodes": [{"id": int(k), "metadata": m} for k, m in VERTICES.items()],
            "edges": [{"source": int(a), "target": int(b)} for a, b in PAIRS],
        }
    },
    "R around it": {"version": 1, "execution": {"R_lite": []}, "scheduling": {"graph": DIALECT_D}}
    if (DIALECT_D := listed([ends(p) for p in PAIRS])["graph"])
    else {},
}


@pytest.mark.parametrize("name", DIALECTS)
def test_all_dialects_fold_to_the_same(name: str) -> None:
    plain = read_graph(DIALECTS["D"])
    found = read_graph(DIALECTS[name])
    assert found.describe() == "cluster(node(core), node(2 x core, memory[8 GB]))"
    assert found.shape_key == plain.shape_key
    assert (found.nodes, found.cores, found.gpus, found.totals["memory"]) == (2, 3, 0, 8)
    assert str(found.identity.hosts) == str(plain.identity.hosts)
    assert found.warnings == ()


def test_the_name_in_the_document_is_kept() -> None:
    assert read_graph(DIALECTS["A"]).name == "tiny"
    assert read_graph(DIALECTS["B"]).name is None


def test_every_wrapping_reads_the_same(tmp_path: Path) -> None:
    document = DIALECTS["A"]
    text = json.dumps(document)
    (tmp_path / "g.json").write_text(text)
    (tmp_path / "g.json.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "g.json.xz").write_bytes(lzma.compress(text.encode()))
    (tmp_path / "g.yaml").write_text(yaml.safe_dump(document))
    (tmp_path / "bom.json").write_bytes(b"\xef\xbb\xbf" + text.encode())
    sources: list[Any] = [
        text,
        text.encode(),
        io.BytesIO(text.encode()),
        io.BytesIO(lzma.compress(text.encode())),
        document,
    ]
    sources += sorted(tmp_path.iterdir())
    sources += [str(path) for path in sorted(tmp_path.iterdir())]
    sources += [yaml.safe_dump(document), text.replace('"edges": [', '"edges": [ ')[:-2] + ",}}"]
    assert {read_graph(source).digest for source in sources} == {read_graph(text).digest}


def test_shorthand_names() -> None:
    """Left out, a name is basename (else type) and id (else the key)."""
    vertices = [
        {"id": "0", "metadata": {"type": "cluster"}},
        {"id": "7", "metadata": {"type": "node"}},
        {"id": "8", "metadata": {"type": "node", "id": 3}},
        {"id": "9", "metadata": {"type": "node", "id": 4, "basename": "fat"}},
    ]
    summary = read_graph({"graph": {"nodes": vertices, "edges": [ends(("0", str(n))) for n in (7, 8, 9)]}})
    assert set(summary.identity.hosts or ()) == {"node7", "node3", "fat4"}


def test_several_roots_get_one_above_them() -> None:
    document = listed([ends(p) for p in PAIRS if p[0] != "0"])
    summary = read_graph(document)
    assert (summary.nodes, summary.cores) == (2, 3)
    assert "cluster" not in summary.totals
    assert "1 vertices hang nowhere" in summary.warnings[0]


def test_a_vertex_contained_twice_counts_once() -> None:
    summary = read_graph(listed([*(ends(p) for p in PAIRS), ends(("5", "2"))]))
    assert summary.cores == 3
    assert "'2' is contained more than once" in summary.warnings[0]


def changed(*, nodes: Any = None, edges: Any = None) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(DIALECTS["D"]))
    if nodes is not None:
        document["graph"]["nodes"] = nodes
    if edges is not None:
        document["graph"]["edges"] = edges
    return document


ONE = {"id": "0", "metadata": {"type": "cluster"}}
REFUSED = [
    (changed(edges=[*(ends(p) for p in PAIRS), ends(("5", "99"))]), "edge '5' -> '99': there is no vertex '99'"),
    (changed(edges=[ends(("98", "1"))]), "there is no vertex '98'"),
    (changed(edges=[*(ends(p) for p in PAIRS), ends(("6", "0"))]), "edges run in a circle"),
    (changed(edges=[ends(("0", "1")), ends(("5", "6")), ends(("6", "5"))]), "edges run in a circle at vertex"),
    (changed(edges=[ends(("1", "1"))]), "circle"),
    (changed(edges=[]), "no edges"),
    (changed(nodes=[]), "no vertices"),
    (changed(edges=[{"source": "0"}]), "without target"),
    (changed(edges=[ends(("0", "1"), relation="knows")]), "no edges"),
    (changed(edges=["0-1"]), "is not an object"),
    (changed(edges={"0": "1"}), "graph.edges is"),
    (changed(nodes=[ONE, ONE]), "vertex '0' is defined twice"),
    (changed(nodes=[{"metadata": {"type": "cluster"}}]), "without an id"),
    (changed(nodes=[{"id": "0"}]), "vertex '0': no metadata"),
    (changed(nodes=[{"id": "0", "metadata": {}}]), "vertex '0': metadata.type is None"),
    (changed(nodes=[{"id": "0", "metadata": {"type": "core", "size": -1}}]), "size -1"),
    (changed(nodes=[{"id": "0", "metadata": {"type": "core", "size": "4"}}]), "size '4'"),
    (changed(nodes=[{"id": "0", "metadata": {"type": "core", "size": 1.5}}]), "size 1.5"),
    (changed(nodes=[{"id": "0", "metadata": {"type": "core", "unit": 3}}]), "unit 3"),
    (changed(nodes=[{"id": "0", "metadata": {"type": "node", "properties": "ssd"}}]), "properties is 'ssd'"),
    ({"graph": {"nodes": []}}, "no vertices|edges is missing"),
    ({"graph": {"nodes": {}, "hyperedges": []}}, "hyperedges"),
    ({"graphs": []}, "list of graphs"),
    ({"graph": []}, "graph is"),
    ({}, "neither a resource graph"),
    ([], "no resource graph"),
    ("{", "neither JSON nor YAML"),
    ('{"graph": {"nodes": [' + "[" * 100_000, "nested too deeply|neither JSON nor YAML"),
    (b"\xff\xfe\x00", "cannot read"),
    ("no-such-file.json", "cannot read no-such-file.json"),
    (gzip.compress(b"{}", mtime=0)[:-3], "cannot read"),
]


@pytest.mark.parametrize(("source", "words"), REFUSED)
def test_what_is_wrong_is_named(source: Any, words: str) -> None:
    with pytest.raises(InvalidGraph, match=words) as caught:
        read_graph(source if not isinstance(source, list) else json.dumps(source))
    assert "\n" not in str(caught.value)
    if isinstance(source, dict):
        with pytest.raises(InvalidGraph, match=words):
            read_graph(json.dumps(source))


def test_a_graph_that_is_too_deep_or_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = [{"id": str(n), "metadata": {"type": "box"}} for n in range(500)]
    with pytest.raises(InvalidGraph, match="more than 200 levels"):
        read_graph({"graph": {"nodes": chain, "edges": [ends((str(n), str(n + 1))) for n in range(499)]}})
    monkeypatch.setattr(documents, "MAX_BYTES", 1000)
    with pytest.raises(InvalidGraph, match="the document has more than"):
        read_graph(gzip.compress(b" " * 5000))


# -- large documents, in blocks ------------------------------------------------------------------


@pytest.fixture
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "_BLOCK", 4096)


def large(nodes: int, *, indent: int | None = None, gone: int = -1) -> str:
    vertices: list[dict[str, Any]] = [{"id": "c", "metadata": {"type": "cluster", "odd": [{"a": 1}, {"b": 2}]}}]
    edges = []
    for n in range(nodes):
        # Texts that look like the border between two elements must not be taken for one.
        trap = '}}, {"id": "x"' if n % 7 == 0 else 'é\\"'
        vertices.append({"id": f"n{n}", "metadata": {"type": "node", "name": f"host{n}", "note": trap, "rank": n}})
        edges.append(ends(("c", f"n{n}")))
        for core in range(4):
            if n != gone or core:
                vertices.append({"id": f"n{n}.{core}", "metadata": {"type": "core", "note": {"deep": [{}, {}]}}})
                edges.append(ends((f"n{n}", f"n{n}.{core}")))
    return json.dumps({"graph": {"nodes": vertices, "edges": edges}}, indent=indent)


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("indent", [None, 1])
def test_a_large_document_reads_as_its_mapping_does(indent: int | None) -> None:
    text = large(200, indent=indent)
    assert len(text) > 5 * json_stream._BLOCK
    streamed, whole = read_graph(text), read_graph(json.loads(text))
    assert streamed.digest == whole.digest
    assert streamed.cores == 800


@pytest.mark.usefixtures("_small_blocks")
def test_known_blocks_change_nothing_and_are_used() -> None:
    known = Blocks()
    first = read_graph(large(200), known=known)
    assert first.digest == read_graph(large(200)).digest
    before = set(known._made)
    again = read_graph(large(200, gone=90), known=known)
    assert again.digest == read_graph(large(200, gone=90)).digest
    assert again.cores == 799
    assert len(set(known._made) - before) < len(before) / 3


@pytest.mark.usefixtures("_small_blocks")
def test_a_change_is_patched_and_nothing_new_is_only_looked_at() -> None:
    known = Blocks()
    first = read_graph(large(200), known=known)
    assert read_graph(large(200), known=known) is first
    read_graph(large(200, gone=90), known=known)
    graph = known.last.graph
    assert read_graph(large(200), known=known).digest == first.digest
    assert known.last.graph is graph
    assert graph.patches == 2


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("bound", ["MIN_CHANGED", "MAX_PATCHES"])
def test_after_much_has_changed_the_graph_is_read_in_full(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patch, bound, 1)
    monkeypatch.setattr(patch, "MAX_SHARE", 500 if bound == "MIN_CHANGED" else 1)
    known = Blocks()
    for gone in (-1, 90, 120, 30):
        summary = read_graph(large(200, gone=gone), known=known)
        assert summary.digest == read_graph(large(200, gone=gone)).digest
        assert known.last.graph.patches <= (bound == "MAX_PATCHES")


def test_of_a_graph_that_is_too_large_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_KEPT", 100)
    known = Blocks()
    for nodes in (10, 100):
        assert read_graph(large(nodes), known=known).digest == read_graph(large(nodes)).digest
        assert (known.last is not None) == (nodes == 10)


@pytest.mark.usefixtures("_small_blocks")
def test_what_is_wrong_costs_nothing_of_what_is_known() -> None:
    known = Blocks()
    read_graph(large(200), known=known)
    with pytest.raises(InvalidGraph):
        read_graph(large(200)[:-5], known=known)
    with pytest.raises(InvalidGraph, match="defined twice"):
        read_graph(large(200).replace('"n9.1"', '"n9.2"'), known=known)
    read_graph(large(200, gone=90), known=known)
    assert known.last.graph.patches == 1


@pytest.mark.parametrize("host", ["n" + "9" * 19, "0" * 20, "n08"])
def test_a_host_of_a_graph_is_found_by_its_name(host: str) -> None:
    vertices = {"c": {"metadata": {"type": "cluster"}}, "n": {"metadata": {"type": "node", "name": host}}}
    edges = [{"source": "c", "target": "n", "relation": "contains"}]
    summary = read_graph({"graph": {"nodes": vertices, "edges": edges}})
    assert summary.identity.with_hosts(Hostlist.parse(host)) == IdSet([(0, 1)])


def test_keys_too_far_apart_for_a_difference() -> None:
    vertices: list[dict[str, Any]] = [{"id": str(n), "metadata": {"type": "box"}} for n in (2**63 - 1, -(2**63) + 1)]
    edges = [ends((vertices[0]["id"], vertices[1]["id"]))]
    summary = read_graph({"graph": {"nodes": vertices, "edges": edges}})
    assert summary.keys is not None
    assert summary.keys.position(vertices[1]["id"]) == 1


@pytest.mark.usefixtures("_small_blocks")
def test_known_blocks_are_bounded() -> None:
    known = Blocks(max_chars=20_000)
    read_graph(large(200), known=known)
    assert 0 < known._chars <= 20_000


@pytest.mark.usefixtures("_small_blocks")
def test_a_damaged_block_is_refused() -> None:
    text = large(200)
    at = text.index('"n120.2"')
    with pytest.raises(InvalidGraph):
        read_graph(text[:at] + "}" + text[at:])
    with pytest.raises(InvalidGraph):
        read_graph(text[: len(text) // 2])


def test_a_summary_of_another_version_or_damaged_is_refused() -> None:
    import msgpack

    data = read_graph(DIALECTS["A"]).to_bytes()
    other = msgpack.unpackb(data)
    damaged: tuple[Any, ...] = ({**other, "v": 99}, {**other, "shapes": []}, {**other, "hosts": 3}, {"v": 1}, [], 3)
    for document in damaged:
        with pytest.raises(InvalidGraph):
            Summary.from_bytes(msgpack.packb(document))
    for cut in range(0, len(data), 7):
        with pytest.raises(InvalidGraph):
            Summary.from_bytes(data[:cut])
