"""Resource graphs and summaries of strangers: refused fast, or read in a time that grows with their size."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from rainbow.errors import InvalidGraph
from rainbow.resources import Summary, read_graph
from rainbow.resources.readers.received import received
from rig import Rig, resources

#: Seconds for one graph, on a machine that runs other tests as well.
FAST = 20.0

CORES = {"core": "0-3"}


def rset(entries: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"version": 1, "execution": {"R_lite": entries, **more}}


ENDLESS = "0-9007199254740991"
BOMBS: dict[str, dict[str, Any]] = {
    "endless ranks": rset([{"rank": ENDLESS, "children": CORES}]),
    "endless ranks with a name": rset([{"rank": ENDLESS, "node": "n", "children": CORES}]),
    "endless ranks of which one has a name": rset([{"rank": ENDLESS, "children": CORES}], nodelist=["n1"]),
    "many ranks of which one has a name": rset([{"rank": "0-16000000", "children": CORES}], nodelist=["n1"]),
    "a named rank among many": rset(
        [{"rank": "0-16000000", "children": CORES}, {"rank": "17000000", "node": "n", "children": CORES}]
    ),
    "ranks that overlap": rset([{"rank": f"{n}-{n + 10_000}", "children": {f"k{n}": "0"}} for n in range(4000)]),
}


@pytest.mark.parametrize("name", BOMBS)
def test_what_would_take_long_is_refused_fast(name: str) -> None:
    began = time.monotonic()
    with pytest.raises(InvalidGraph):
        read_graph(BOMBS[name])
    assert time.monotonic() - began < FAST


def test_ranks_apart_take_no_time_that_grows_with_their_square() -> None:
    many = 12_000
    document = rset(
        [{"rank": str(2 * n), "children": {"core": f"0-{n}"}} for n in range(many)],
        nodelist=[f"h[0-{many - 1}]"],
        properties={f"p{n}": str(2 * n) for n in range(3000)},
    )
    began = time.monotonic()
    made = read_graph(document)
    assert time.monotonic() - began < FAST
    assert (made.nodes, made.cores) == (many, many * (many + 1) // 2)
    assert all(len(made.identity.with_property(f"p{n}")) == 1 for n in (0, 1, 2999))


def subsystem(links: int, nodes_of: int = 1) -> dict[str, Any]:
    """A chain of vertices, each linked to by one of `nodes_of` nodes."""
    nodes = {f"v{n}": {"metadata": {"type": "io"}} for n in range(links)}
    edges = [{"source": f"v{n}", "target": f"v{n + 1}"} for n in range(links - 1)]
    edges += [{"source": f"node{n % nodes_of}", "target": f"v{n}"} for n in range(links)]
    return {"graph": {"nodes": nodes, "edges": edges}}


def test_a_chain_of_links_is_followed_so_far_and_no_further() -> None:
    began = time.monotonic()
    assert read_graph(resources(), subsystems={"io": subsystem(300)}).subsystems == ("io",)
    with pytest.raises(InvalidGraph, match="links too many"):
        read_graph(resources(3000), subsystems={"io": subsystem(20_000, 3000)})
    assert time.monotonic() - began < FAST


# -- packed summaries -------------------------------------------------------------------------------------------


def whole() -> Summary:
    document = resources(nodes=6)
    document["execution"]["properties"] = {"fast": "0-2,4", "ssd": "1"}
    return read_graph(document, subsystems={"io": subsystem(3)})


def test_a_good_summary_is_taken_as_it_is() -> None:
    made = whole()
    assert received(made.to_bytes()).to_bytes() == made.to_bytes()
    assert received(made.to_bytes()).digest == made.digest


def spoil(path: tuple[Any, ...], value: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for step in path[:-1]:
            document = document[step]
        document[path[-1]] = value

    return change


EVIL: list[Any] = [None, -1, 1 << 63, 1.5, True, "x", b"x", [], {}, [[]], [1, 2, 3], "x" * 2000]
PATHS: list[tuple[Any, ...]] = [
    ("v",), ("shapes",), ("hosts",), ("ranks",), ("properties",), ("subsystems",), ("dominant",),
    ("shapes", 0), ("shapes", 0, 0), ("shapes", 0, 1), ("shapes", 0, 2), ("shapes", 0, 3), ("shapes", 0, 4),
    ("shapes", -1, 4, 0), ("shapes", -1, 4, 1), ("hosts", 0), ("hosts", 0, 0), ("hosts", 0, 1), ("hosts", 0, 2),
    ("hosts", 0, 3), ("hosts", 0, 4), ("ranks", 0), ("ranks", 0, 0), ("ranks", 0, 1), ("ranks", 0, 2),
    ("properties", "fast"), ("properties", "fast", 0), ("properties", "fast", -1), ("subsystems", "io"),
    ("subsystems", "io", 0), ("subsystems", "io", 0, 0), ("subsystems", "io", 0, 1), ("subsystems", "io", 0, 2),
    ("subsystems", "io", 0, 2, 0), ("more",),
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS, ids=str)
def test_a_summary_is_checked_value_by_value(path: tuple[Any, ...]) -> None:
    """Refused, or as good as any: everything that is done with a summary works."""
    for value in EVIL:
        document = msgpack.unpackb(whole().to_bytes())
        spoil(path, value)(document)
        _refused_or_good(msgpack.packb(document))


def test_random_changes_never_make_a_summary_that_fails_later() -> None:
    rng = random.Random(5)
    good = whole().to_bytes()
    for _ in range(3000):
        raw = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        _refused_or_good(bytes(raw))


def _refused_or_good(packed: bytes) -> None:
    try:
        made = received(packed)
    except InvalidGraph:
        return
    assert Summary.from_bytes(made.to_bytes()).digest == made.digest
    made.describe()
    repr((made.nodes, made.cores, made.gpus, made.subsystems, made.shape_key))
    for name in ("node0", "node5", "nowhere"):
        made.locate(name)


@pytest.mark.parametrize(
    "shapes",
    [
        [["a", 1, "", False, []]] + [["a", 1, "", False, [n, 1]] for n in range(3000)],  # deep
        [["a", 1, "", False, []]] + [["a", 1, "", False, [n, 1 << 40]] for n in range(60)],  # many
        [[f"t{n}", 1, "", False, []] for n in range(2000)],  # of many types
    ],
)
def test_shapes_are_bounded(shapes: list[Any]) -> None:
    document = msgpack.unpackb(whole().to_bytes())
    with pytest.raises(InvalidGraph):
        received(msgpack.packb({**document, "shapes": shapes}))


def test_a_registration_that_is_not_good_changes_nothing(rig: Rig) -> None:
    """A crafted summary is answered; the cluster stays as it was, and jobs go there."""
    rig.register("blue")
    document = msgpack.unpackb(read_graph(resources()).to_bytes())
    document["shapes"][0][0] = 7
    with pytest.raises(Exception, match="damaged summary"):
        rig.register("blue", summary=msgpack.packb(document))
    for bomb in BOMBS.values():
        with pytest.raises(Exception, match=r"R: "):
            rig.rpc.call({"op": "register", "cluster": "blue", "identity": "identity-of-blue", "graph": bomb})
    assert rig.submit(command=["true"])["status"] == "assigned"
