"""Matching and registering: milliseconds, ratios and growth. Everything is made here; no data is needed.

`run()` gives the figures; as a script they are printed. Times are CPU times of the thread, since nothing here waits
for anything and the machine may be busy with other things. Ratios compare two things measured in the same run.
"""

from __future__ import annotations

import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from rainbow.jobspec.request import SLOT, Constraint, Count, Request, Requirement, Want
from rainbow.resources import Blocks, ClusterIndex, Summary, match, read_graph


def want(kind: str, count: int, *children: Want, requires: tuple[Requirement, ...] = ()) -> Want:
    return Want(kind, Count(count, count), children, requires=requires)


def slots(nodes: int, per_node: int, cores: int, gpus: int = 0, constraint: Constraint | None = None) -> Request:
    """``node[n] > slot[p] > core[c], gpu[g]``."""
    inside = [want("core", cores)] + ([want("gpu", gpus)] if gpus else [])
    return Request((want("node", nodes, want(SLOT, per_node, *inside)),), constraint)


def new_requests() -> Iterator[Request]:
    """Requests of shapes not seen before, of the usual kinds."""
    for number in range(1, 1_000_000):
        yield slots(1 + number % 40, 1 + number % 7, 1 + number // 7, number % 3)
        yield Request((want(SLOT, number, want("core", 1 + number % 5)),))


def rset(nodes: int, cores: int = 32, gpus: int = 4, **execution: Any) -> dict[str, Any]:
    children = {"core": f"0-{cores - 1}"} | ({"gpu": f"0-{gpus - 1}"} if gpus else {})
    lite = [{"rank": f"0-{nodes - 1}", "children": children}]
    body = {"R_lite": lite, "nodelist": [f"node[0-{nodes - 1}]"], "starttime": 0, "expiration": 0, **execution}
    return {"version": 1, "execution": body}


def jgf(nodes: int, cores: int, gone: int | None = None) -> dict[str, Any]:
    """A cluster as Fluxion writes it (dialect B). Node `gone` has lost its first core."""
    vertices: list[dict[str, Any]] = []
    edges: list[dict[str, Any]] = []

    def add(parent: int | None, kind: str, number: int, rank: int, path: str) -> int:
        key = len(vertices)
        metadata = {
            "type": kind,
            "basename": kind,
            "name": f"{kind}{number}",
            "id": number,
            "uniq_id": key,
            "rank": rank,
            "exclusive": False,
            "unit": "",
            "size": 1,
            "paths": {"containment": f"{path}/{kind}{number}"},
        }
        vertices.append({"id": str(key), "metadata": metadata})
        if parent is not None:
            edges.append({"source": str(parent), "target": str(key), "metadata": {"subsystem": "containment"}})
        return key

    root = add(None, "cluster", 0, -1, "")
    for number in range(nodes):
        node = add(root, "node", number, number, "/cluster0")
        for core in range(cores):
            key = add(node, "core", core, number, f"/cluster0/node{number}")
            if number == gone and core == 0:
                lost = key
    if gone is not None:
        del vertices[lost], edges[lost - 1]
    return {"graph": {"nodes": vertices, "edges": edges}}


def clocked(call: Callable[[], Any], times: int = 1) -> float:
    """CPU seconds of one call: the fastest of `times`."""
    best = float("inf")
    for _ in range(times):
        begun = time.thread_time()
        call()
        best = min(best, time.thread_time() - begun)
    return best


def index_of(clusters: int, shapes: int = 16) -> ClusterIndex:
    index = ClusterIndex()
    summaries = [read_graph(rset(8 + 4 * n, 16 + 4 * (n % 8), n % 5)) for n in range(shapes)]
    for number in range(clusters):
        index.update(f"cluster{number}", summaries[number % shapes])
    return index


def new_shape_s(index: ClusterIndex, requests: Iterator[Request], times: int = 200) -> float:
    """Median seconds of a request of a shape not seen before."""
    taken = []
    for _ in range(times):
        request = next(requests)
        begun = time.thread_time()
        len(index.query(request).candidates)
        taken.append(time.thread_time() - begun)
    return statistics.median(taken)


def clusters() -> dict[str, float]:
    requests = new_requests()
    thousand, more = index_of(1000), index_of(10_000)
    new_1000, new_10000 = new_shape_s(thousand, requests), new_shape_s(more, requests)
    known = slots(2, 2, 4)
    thousand.query(known)
    known_s = clocked(lambda: [thousand.query(known).candidates for _ in range(1000)], 3) / 1000
    summary = thousand.summary("cluster1")

    def changed() -> None:
        thousand.update("cluster0", summary)
        thousand.query(known)
        thousand.update("cluster0", thousand.summary("cluster16"))
        thousand.query(known)

    return {
        "new_shape_ms_1000": new_1000 * 1e3,
        "new_shape_ms_10000": new_10000 * 1e3,
        "known_shape_us_1000": known_s * 1e6,
        "growth_clusters_10x": new_10000 / new_1000,
        "changed_cluster_us_1000": clocked(changed, 20) / 2 * 1e6,
    }


def nodes() -> dict[str, float]:
    """One cluster of equal nodes: reading R, and a new request, at three sizes."""
    figures: dict[str, float] = {}
    both: list[float] = []
    clocked(lambda: read_graph(json.dumps(rset(10))), 100)  # warm up
    for size in (100, 10_000, 100_000):
        text = json.dumps(rset(size))
        load = clocked(partial(read_graph, text), 50)
        summary = read_graph(text)
        asked = min(_new_request_s(summary) for _ in range(3))
        figures[f"nodes_{size}_load_us"], figures[f"nodes_{size}_new_us"] = load * 1e6, asked * 1e6
        both.append(load + asked)
    figures["growth_nodes_1000x"] = max(both) / min(both)
    return figures


def _new_request_s(summary: Summary) -> float:
    requests = new_requests()
    return statistics.median(clocked(lambda: match(next(requests), summary)) for _ in range(200))


def different(count: int = 1024) -> dict[str, float]:
    """Nodes that differ by name, property and subsystem metadata, not by shape."""
    document = jgf(count, 4)
    for node in document["graph"]["nodes"]:
        metadata = node["metadata"]
        if metadata["type"] == "node":
            number = metadata["id"]
            metadata["name"] = f"host-{number * 7919 % 65536:x}"
            metadata["properties"] = {f"only{number}": "", "even" if number % 2 == 0 else "odd": ""}
    vertices = {f"v{n}": {"metadata": {"type": "os", "version": f"1.{n}.0"}} for n in range(count)}
    keys = [n["id"] for n in document["graph"]["nodes"] if n["metadata"]["type"] == "node"]
    edges = [{"source": key, "target": f"v{n}", "relation": "contains"} for n, key in enumerate(keys)]
    summary = read_graph(document, subsystems={"os": {"graph": {"nodes": vertices, "edges": edges}}})
    figures = {}
    kinds: dict[str, Callable[[int], Request]] = {
        "plain": lambda n: slots(4, 1, 1 + n % 4),
        "property": lambda n: slots(1 + n, 1, 2, 0, Constraint("properties", ("even",))),
        "hostlist": lambda n: slots(1, 1, 2, 0, Constraint("hostlist", (f"host-{n * 7919 % 65536:x}",))),
        "requires": lambda n: Request(
            (want("node", 1 + n, requires=(Requirement("os", "version", "range", (("min", f"1.{n}.0"),)),)),)
        ),
        "requires_every_second": lambda n: Request(
            (want("node", 1 + n, requires=(Requirement("os", "version", "even", ()),)),)
        ),
    }
    for name, make in kinds.items():
        match(make(0), summary, algorithms=ALGORITHMS)
        requests = [make(n) for n in range(1, 40)]
        taken = [clocked(partial(match, request, summary, algorithms=ALGORITHMS)) for request in requests]
        figures[f"different_{count}_{name}_ms"] = statistics.median(taken) * 1e3
    return figures


class Even:
    """A match algorithm that scatters: every second node meets it."""

    def accepting(self, arguments: Any) -> Callable[[str], bool]:
        return lambda value: int(value.split(".")[1]) % 2 == 0


ALGORITHMS = {"even": Even()}


def constrained(count: int = 100_000) -> dict[str, float]:
    """Constraints on many nodes, once what they look up is indexed."""
    properties = {"gpu": f"0-{count // 2}"}
    summary = read_graph(rset(count, properties=properties))
    scattered = read_graph(rset(count, properties={"odd": ",".join(map(str, range(1, count, 2)))}))
    figures = {}
    kinds: dict[str, Callable[[int], Constraint]] = {
        "two_hosts": lambda n: Constraint("hostlist", (f"node{n},node{n + 5}",)),
        "not_four_hosts": lambda n: Constraint("not", (Constraint("hostlist", (f"node[{n}-{n + 3}]",)),)),
        "range": lambda n: Constraint("hostlist", (f"node[{n}-{count // 2 + n}]",)),
        "property": lambda n: Constraint("properties", ("gpu",)),
        "scattered_property": lambda n: Constraint("properties", ("odd",)),
        "ranks": lambda n: Constraint("ranks", (f"{n}-{n + 100}",)),
    }
    for name, make in kinds.items():
        where = scattered if name.startswith("scattered") else summary
        match(slots(1, 1, 1, 0, make(0)), where)
        requests = [slots(1 + n % 2, 1, 1 + n // 2, 0, make(n)) for n in range(1, 60)]
        taken = [clocked(partial(match, request, where)) for request in requests]
        figures[f"constraint_{name}_us"] = statistics.median(taken) * 1e6
    return figures


def registering(count: int = 10_000, cores: int = 32) -> dict[str, float]:
    """Reading a large JGF, over `json.loads` of the same text; and reading it again with one core gone, over that."""
    text = json.dumps(jgf(count, cores))
    changed = json.dumps(jgf(count, cores, gone=count // 3))
    gc.collect()
    parse = clocked(lambda: json.loads(text), 2)
    whole = clocked(lambda: read_graph(text), 2)
    known = Blocks()
    read_graph(text, known=known)
    # There and back: each is a change of one node.
    again = statistics.median(clocked(lambda: read_graph(turn, known=known)) for turn in (changed, text) * 3)
    return {
        "register_ms": whole * 1e3,
        "register_ratio": whole / parse,
        "reregister_ratio": again / whole,
    }


_PEAK = "; print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"


def memory() -> dict[str, float]:
    """Peak memory of a process that reads a graph of 350,000 vertices from a file: ours, and `json.loads`."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "graph.json"
        file.write_text(json.dumps(jgf(10_000, 34)))
        bare = _python("import re, json, rainbow.resources.readers.reader" + _PEAK)
        parsed = _python(f"import re, json; kept = json.loads(open({str(file)!r}).read())" + _PEAK)
        folded = _python(
            "import re; from pathlib import Path; from rainbow.resources import read_graph; "
            f"kept = read_graph(Path({str(file)!r}))" + _PEAK
        )
    return {
        "memory_350000_mb": folded,
        "memory_json_mb": parsed,
        "memory_ratio": folded / parsed,
        "memory_import_mb": bare,
    }


def _python(code: str) -> float:
    """Run code that prints kB in a new process; MB."""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return int(done.stdout) / 1024


def run() -> dict[str, float]:
    """All figures. The keys of design note 6 are among them."""
    figures: dict[str, float] = {}
    for part in (clusters, nodes, different, constrained, registering, memory):
        gc.collect()
        figures |= part()
    return figures


if __name__ == "__main__":
    for name, value in run().items():
        print(f"{name:36} {value:12.3f}")
