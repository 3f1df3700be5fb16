"""Choosing among many clusters that match: microseconds a choice with `least-loaded`."""

from __future__ import annotations

import random
import time
from statistics import median

from rainbow.jobspec.request import Demand
from rainbow.models.cluster import ClusterRecord, ClusterState
from rainbow.resources import read_graph
from rainbow_workers.clusters.cache import ClusterCache
from rainbow_workers.selection.base import JobView
from rainbow_workers.selection.least_loaded import LeastLoaded
from rainbow_workers.stores.base import Changes
from rig import resources

CLUSTERS = 10_000


def world_of(count: int, shapes: int = 16) -> ClusterCache:
    """A world of `count` clusters of `shapes` different kinds."""
    world = ClusterCache()
    summaries = [read_graph(resources(nodes=4 + kind, cores=8)) for kind in range(shapes)]
    packed = [(s.to_bytes(), s.digest) for s in summaries]
    records = {}
    states = {}
    for number in range(count):
        name = f"c{number:05}"
        data, digest = packed[number % shapes]
        records[name] = ClusterRecord(name=name, registration="r", identity="i", summary=data, digest=digest)
        states[name] = ClusterState(values={"nodes_free": number % 5, "cores_free": 8 * (number % 5)}, heartbeat_at=0)
    world.apply(Changes(1, clusters=records, states=states))
    return world


def run() -> dict[str, float]:
    world = world_of(CLUSTERS)
    names = list(world.clusters)
    job = JobView("j", "u", None, 16, Demand(nodes=2, cores=16))
    selection, rng = LeastLoaded({}), random.Random(1)
    samples = []
    for _ in range(2000):
        began = time.perf_counter()
        selection.choose(names, world, job, rng)
        samples.append(time.perf_counter() - began)
    return {"choose_us_10000": median(samples) * 1e6}


if __name__ == "__main__":
    print(run())
