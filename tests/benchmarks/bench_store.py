"""What the store costs: wall time of each operation on a local Redis, server and client together.

``python tests/benchmarks/bench_store.py [redis://HOST:PORT/DB]`` prints a table; without a URL a private server is
started. ``run()`` gives the figures: microseconds per item in batches of 100, milliseconds per call otherwise, and for
heartbeats also the share of one core that 1,000 a second take of the client. ``_us`` is the median wall time,
``_best_us`` the shortest, ``_cpu_us`` the processor time of client and server together.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import redis

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from rainbow.jobspec.request import Demand
from rainbow.models.cluster import ClusterRecord, StateReport
from rainbow.models.job import JobEvent
from rainbow_workers.stores import StoreOptions, open_store
from rainbow_workers.stores.base import Assignment, Store
from servers import Private, start_redis

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


class Meter:
    """Times calls on batches: wall time, and the processor time of this process and of the server together, which
    other work on the machine disturbs less."""

    def __init__(self, url: str) -> None:
        self._server = redis.Redis.from_url(url)

    def _cpu(self) -> float:
        info = self._server.info("cpu")
        return time.process_time() + float(info["used_cpu_user"]) + float(info["used_cpu_sys"])

    def batches(self, name: str, call: Callable[[Any], object], batches: Sequence[Any]) -> dict[str, float]:
        cpu = self._cpu()
        spent = [seconds(partial(call, batch)) for batch in batches]
        cpu = self._cpu() - cpu
        each = 1e6 / BATCH
        return {
            f"{name}_us": median(spent) * each,
            f"{name}_best_us": min(spent) * each,
            f"{name}_cpu_us": cpu / len(batches) * each,
        }

    def close(self) -> None:
        self._server.close()


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def milliseconds(call: Callable[[], object], times: int) -> float:
    return median(seconds(call) for _ in range(times)) * 1e3


def assignments(now: float) -> list[Assignment]:
    demand = Demand(1, 4, 0)
    return [
        Assignment(
            str(uuid.uuid4()), 1, f"c{i % CLUSTERS}", f"user{i % 5}", "hello", demand, now, now + i / 1e4, ANSWER
        )
        for i in range(BATCH)
    ]


def measure(store: Store, meter: Meter, rounds: int = 100) -> dict[str, float]:
    now = time.time()
    for i in range(CLUSTERS):
        store.clusters.put(
            ClusterRecord(name=f"c{i}", registration=f"r{i}", identity="bench", summary=os.urandom(2000)), None
        )
    version = store.clusters.changes(0).version
    batches = [assignments(now + i / 10) for i in range(rounds)]

    def assign(batch: list[Assignment]) -> None:
        nonlocal version
        version = store.jobs.assign(batch, version).changes.version

    out = meter.batches("assign", assign, batches)
    for state in ("accepted", "running", "completed"):
        events = [
            [JobEvent(id=a.id, attempt=1, cluster=a.cluster, state=state, at=now, flux_id="f123") for a in batch]
            for batch in batches
        ]
        out |= meter.batches(f"record_{state}", store.jobs.record, events)
    values = {"nodes_free": 10, "cores_free": 400, "gpus_free": 0, "jobs_pending": 3, "jobs_running": 7, "up": True}
    reports = [
        [
            StateReport(cluster=f"c{j}", registration=f"r{j}", values={**values, "cores_free": i}, included=[(a.id, 1)])
            for j, a in enumerate(batch)
        ]
        for i, batch in enumerate(batches)
    ]
    cpu = time.process_time()
    out |= meter.batches("report", lambda batch: store.clusters.report(batch, time.time()), reports)
    out["heartbeats_1000_share"] = (time.process_time() - cpu) / (rounds * BATCH) * 1000
    out["changes_100_states_ms"] = milliseconds(lambda: store.clusters.changes(version), 20)
    latest = store.clusters.changes(0).version
    out["changes_nothing_ms"] = milliseconds(lambda: store.clusters.changes(latest), 200)
    out["changes_all_ms"] = milliseconds(lambda: store.clusters.changes(0), 20)
    out["get_100_ms"] = milliseconds(lambda: store.jobs.get([a.id for a in batches[0]]), 20)
    out["find_100_ms"] = milliseconds(
        lambda: store.jobs.find(state="completed", cluster="c1", user="user1", limit=100), 20
    )
    return out


def run(url: str | None = None) -> dict[str, float]:
    with contextlib.ExitStack() as stack:
        where = url or stack.enter_context(private_server())
        store = open_store(StoreOptions(where, prefix=f"rainbow-bench-{uuid.uuid4().hex[:8]}:"))
        stack.callback(store.close)
        meter = Meter(where)
        stack.callback(meter.close)
        return measure(store, meter)


if __name__ == "__main__":
    for name, value in run(sys.argv[1] if len(sys.argv) > 1 else None).items():
        print(f"{name:28} {value:10.2f}")
