"""What the store costs: wall time of each operation on a local Redis, server and client together.

``python tests/benchmarks/bench_store.py [redis://HOST:PORT/DB]`` prints a table; without a URL a private server is
started. ``run()`` gives the figures: microseconds per item in batches of 100, milliseconds per call otherwise, and for
heartbeats also the share of one core that 1,000 a second take of the client.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from rainbow_workers.stores import StoreOptions, open_store
from rainbow_workers.stores.base import Assignment, Store
from servers import Private, start_redis

from rainbow.jobspec.request import Demand
from rainbow.models.cluster import ClusterRecord, StateReport
from rainbow.models.job import JobEvent

CLUSTERS = 100
BATCH = 100
ANSWER = {
    "version": 1,
    "status": "assigned",
    "cluster": "c0",
    "total_clusters": 100,
    "total_matches": 60,
    "reasons": {},
}


@contextlib.contextmanager
def private_server() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        server = Private(start_redis, Path(folder))
        try:
            yield server.server.url
        finally:
            server.end()


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def assignments(now: float) -> list[Assignment]:
    demand = Demand(1, 4, 0)
    return [
        Assignment(
            str(uuid.uuid4()), 1, f"c{i % CLUSTERS}", f"user{i % 5}", "hello", demand, now, now + i / 1e4, ANSWER
        )
        for i in range(BATCH)
    ]


def measure(store: Store, rounds: int = 100) -> dict[str, float]:
    now = time.time()
    for i in range(CLUSTERS):
        store.clusters.put(
            ClusterRecord(name=f"c{i}", registration=f"r{i}", identity="bench", summary=os.urandom(2000)), None
        )
    version = store.clusters.changes(0).version
    batches = [assignments(now + i / 10) for i in range(rounds)]
    assign: list[float] = []
    for batch in batches:
        start = time.perf_counter()
        assigned = store.jobs.assign(batch, version)
        assign.append(time.perf_counter() - start)
        version = assigned.changes.version
    out = {"assign_us": median(assign) / BATCH * 1e6}
    for state in ("accepted", "running", "completed"):
        spent = []
        for batch in batches:
            events = [
                JobEvent(id=a.id, attempt=1, cluster=a.cluster, state=state, at=now, flux_id="f123") for a in batch
            ]
            spent.append(timed(lambda events=events: store.jobs.record(events)))  # type: ignore[misc]
        out[f"record_{state}_us"] = median(spent) / BATCH * 1e6
    values = {"nodes_free": 10, "cores_free": 400, "gpus_free": 0, "jobs_pending": 3, "jobs_running": 7, "up": True}
    spent, cpu = [], time.process_time()
    for i in range(rounds):
        reports = [
            StateReport(
                cluster=f"c{j}",
                registration=f"r{j}",
                values={**values, "cores_free": i},
                included=[(batches[i][j].id, 1)],
            )
            for j in range(BATCH)
        ]
        spent.append(timed(lambda reports=reports: store.clusters.report(reports, now + i)))  # type: ignore[misc]
    out["report_us"] = median(spent) / BATCH * 1e6
    out["heartbeats_1000_share"] = (time.process_time() - cpu) / (rounds * BATCH) * 1000
    out["changes_100_states_ms"] = timed(lambda: store.clusters.changes(version)) * 1e3
    version = store.clusters.changes(version).version
    out["changes_nothing_ms"] = median(timed(lambda: store.clusters.changes(version)) for _ in range(200)) * 1e3
    out["changes_all_ms"] = median(timed(lambda: store.clusters.changes(0)) for _ in range(20)) * 1e3
    out["get_100_ms"] = median(timed(lambda: store.jobs.get([a.id for a in b])) for b in batches[:20]) * 1e3
    out["find_100_ms"] = (
        median(
            timed(lambda: store.jobs.find(state="completed", cluster="c1", user="user1", limit=100)) for _ in range(20)
        )
        * 1e3
    )
    return out


def run(url: str | None = None) -> dict[str, float]:
    with contextlib.ExitStack() as stack:
        where = url or stack.enter_context(private_server())
        store = open_store(StoreOptions(where, prefix=f"rainbow-bench-{uuid.uuid4().hex[:8]}:"))
        stack.callback(store.close)
        return measure(store)


if __name__ == "__main__":
    for name, value in run(sys.argv[1] if len(sys.argv) > 1 else None).items():
        print(f"{name:28} {value:10.2f}")
