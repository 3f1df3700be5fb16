"""Schedulers and clusters as discrete events, with the code that really decides: how it scales beyond one machine.

`make simulate` simulates 1,000 jobs a second, spread over several schedulers that each have a view of their own, onto
100 to 100,000 clusters that report as agents do: every 10 s, and on a change, but once a second at most. Deciding is
timed; what a job waits for is simulated. Results go to build/simulation.json, and with --plot FILE into a picture.

The model: nodes are given out whole, first come first served, without backfill. Jobs take 1, 2, 4 or 8 nodes for an
exponentially distributed time, chosen such that `load` of all nodes are busy. A decision reaches its cluster one tick
later. The store hands each scheduler, with every batch, the sums of reservations and the reports it has not seen; a
report ends the reservations of all jobs that the cluster had by then.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import resource
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import style
from rainbow.jobspec import read
from rainbow.jobspec.dialects.simple import simple
from rainbow.jobspec.request import Demand
from rainbow.models.cluster import ClusterRecord, ClusterState
from rainbow.resources import read_graph
from rainbow_workers.clusters.cache import ClusterCache
from rainbow_workers.scheduling.decide import Decider, Job
from rainbow_workers.stores.base import Changes
from rig import resources

TICK = 0.05
REPORT_EVERY, REPORT_AT_MOST = 10.0, 1.0
CORES = 8
#: Nodes of a job, and how often.
SIZES = ((1, 8), (2, 4), (4, 2), (8, 1))
MEAN_NODES = sum(n * often for n, often in SIZES) / sum(often for _, often in SIZES)
NODES = [8 * (1 + kind) for kind in range(16)]
_NONE = Demand()


@dataclass(slots=True)
class Site:
    """A simulated cluster."""

    free: int
    queue: deque[tuple[int, float, float]] = field(default_factory=deque)
    running: int = 0
    reported: float = 0.0
    report_at: float = 0.0


class Truth:
    """What the store has: sums of reservations and reports, and who has not seen which."""

    def __init__(self, names: list[str], schedulers: int) -> None:
        self.reserved = dict.fromkeys(names, _NONE)
        self.states: dict[str, ClusterState] = {}
        self.unseen_reserved: list[set[str]] = [set() for _ in range(schedulers)]
        self.unseen_states: list[set[str]] = [set() for _ in range(schedulers)]
        self.version = 1

    def set_reserved(self, name: str, demand: Demand) -> None:
        self.reserved[name] = demand
        for unseen in self.unseen_reserved:
            unseen.add(name)

    def report(self, name: str, state: ClusterState) -> None:
        self.states[name] = state
        for unseen in self.unseen_states:
            unseen.add(name)
        if self.reserved[name] is not _NONE:
            self.set_reserved(name, _NONE)

    def changes(self, who: int) -> Changes:
        self.version += 1
        seen = Changes(
            self.version,
            states={n: self.states[n] for n in self.unseen_states[who]},
            reserved={n: self.reserved[n] for n in self.unseen_reserved[who]},
        )
        self.unseen_states[who] = set()
        self.unseen_reserved[who] = set()
        return seen


def simulate(
    clusters: int, *, selection: str, rate: float, seconds: float, schedulers: int, load: float, seed: int
) -> dict[str, float]:
    rng = random.Random(seed)
    names = [f"c{n:06}" for n in range(clusters)]
    sites = {name: Site(NODES[n % len(NODES)]) for n, name in enumerate(names)}
    total = sum(site.free for site in sites.values())
    mean_s = load * total / (rate * MEAN_NODES)
    worlds = _worlds(names, schedulers)
    deciders = [Decider(w, selection=selection) for w in worlds]
    specs = {n: read(simple(["true"], nodes=n, cores_per_task=CORES)) for n, _ in SIZES}
    sizes, weights = [n for n, _ in SIZES], [often for _, often in SIZES]
    truth = Truth(names, schedulers)
    ends: list[tuple[float, str, int]] = []
    for name, site in sites.items():  # a machine that has been busy for a while
        while rng.random() < load and (n := rng.choices(sizes, weights)[0]) <= site.free:
            heapq.heappush(ends, (rng.expovariate(1 / mean_s), name, n))
            site.free -= n
            site.running += 1
    waits: list[float] = []
    deciding: list[float] = []
    applying = 0.0
    arriving: list[tuple[str, int, float, float]] = []
    due: list[tuple[float, str]] = []
    for name, site in sites.items():
        truth.report(name, _state(site))
        site.report_at = rng.uniform(0, REPORT_EVERY)
        due.append((site.report_at, name))
    heapq.heapify(due)
    reports = 0
    warm = seconds / 3

    def changed(name: str, site: Site, now: float) -> None:
        at = max(now, site.reported + REPORT_AT_MOST)
        if at < site.report_at:
            site.report_at = at
            heapq.heappush(due, (at, name))

    def start(name: str, site: Site, now: float) -> None:
        while site.queue and site.queue[0][0] <= site.free:
            n, took, came = site.queue.popleft()
            site.free -= n
            site.running += 1
            heapq.heappush(ends, (now + took, name, n))
            if came > warm:
                waits.append(now - came)

    for tick in range(round(seconds / TICK)):
        now = tick * TICK
        while ends and ends[0][0] <= now:
            at, name, n = heapq.heappop(ends)
            site = sites[name]
            site.free += n
            site.running -= 1
            start(name, site, at)
            changed(name, site, now)
        for name, n, took, came in arriving:
            site = sites[name]
            site.queue.append((n, took, came))
            start(name, site, now)
            changed(name, site, now)
        arriving.clear()
        while due and due[0][0] <= now:
            at, name = heapq.heappop(due)
            site = sites[name]
            if at == site.report_at:
                reports += 1
                truth.report(name, _state(site))
                site.reported, site.report_at = now, now + REPORT_EVERY
                heapq.heappush(due, (site.report_at, name))
        for who in range(schedulers):
            count = _poisson(rng, rate * TICK / schedulers)
            began = time.perf_counter()
            worlds[who].apply(truth.changes(who))
            applying += time.perf_counter() - began
            decided = []
            for _ in range(count):
                n = rng.choices(sizes, weights)[0]
                job = Job("", "u", specs[n], frozenset({"*"}), now)
                began = time.perf_counter()
                decision = deciders[who].decide(job, now, rng)
                deciding.append(time.perf_counter() - began)
                assert decision.cluster is not None
                worlds[who].reserve(decision.cluster, specs[n].demand)
                decided.append((decision.cluster, specs[n].demand))
                r = truth.reserved[decision.cluster]
                truth.set_reserved(decision.cluster, Demand(r.nodes + n, r.cores + n * CORES, 0))
                arriving.append((decision.cluster, n, rng.expovariate(1 / mean_s), now))
            for name, demand in decided:
                worlds[who].settle(name, demand)
            worlds[who].apply(truth.changes(who))
    # Who still waits counts with what it has waited so far.
    waits += [seconds - came for site in sites.values() for _, _, came in site.queue if came > warm]
    waits.sort()
    deciding.sort()
    return {
        "clusters": clusters,
        "jobs": len(deciding),
        "mean_job_s": mean_s,
        "decide_us_median": median(deciding) * 1e6,
        "decide_us_p99": deciding[int(0.99 * len(deciding))] * 1e6,
        "reports_per_s": reports / seconds,
        "follow_us_per_s": applying / schedulers / seconds * 1e6,
        "started_at_once": sum(w <= 2 * TICK for w in waits) / len(waits),
        "wait_p99_over_mean_job": waits[int(0.99 * len(waits))] / mean_s,
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _worlds(names: Iterable[str], count: int) -> list[ClusterCache]:
    summaries = [read_graph(resources(nodes=nodes, cores=CORES)) for nodes in NODES]
    packed = [(s.to_bytes(), s.digest) for s in summaries]
    records = {}
    for number, name in enumerate(names):
        data, digest = packed[number % len(packed)]
        records[name] = ClusterRecord(name=name, registration="r", identity="i", summary=data, digest=digest)
    worlds = [ClusterCache() for _ in range(count)]
    for world in worlds:
        world.apply(Changes(1, clusters=records))
    return worlds


def _state(site: Site) -> ClusterState:
    values: dict[str, Any] = {
        "nodes_free": site.free,
        "cores_free": site.free * CORES,
        "jobs_pending": len(site.queue),
        "jobs_running": site.running,
    }
    return ClusterState.model_construct(values=values, at=0.0, heartbeat_at=0.0, alive=True)


def _poisson(rng: random.Random, mean: float) -> int:
    count, left = 0, rng.expovariate(1)
    while left < mean:
        count += 1
        left += rng.expovariate(1)
    return count


def draw(results: dict[str, list[dict[str, float]]], target: Path) -> None:
    figure, (left, right) = style.chart(11, 4.2, 2)
    for selection, rows in results.items():
        x = [row["clusters"] for row in rows]
        left.loglog(x, [row["decide_us_median"] for row in rows], "o-", label=f"{selection}: median")
        left.loglog(x, [row["decide_us_p99"] for row in rows], "o:", label=f"{selection}: 99 of 100")
        right.semilogx(x, [100 * row["started_at_once"] for row in rows], "o-", label=selection)
    left.set(xlabel="clusters", ylabel="µs", title="A decision, known kind of job", ylim=(1, 1000))
    right.set(xlabel="clusters", ylabel="%", title="Jobs that start at once", ylim=(0, 102))
    for axes in (left, right):
        axes.legend()
    style.save(figure, target)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks simulate", description=__doc__)
    parser.add_argument("--clusters", default="100,1000,10000,100000")
    parser.add_argument("--selection", default="least-loaded,random")
    parser.add_argument("--rate", type=float, default=1000.0, help="jobs a second")
    parser.add_argument("--seconds", type=float, default=60.0, help="simulated")
    parser.add_argument("--schedulers", type=int, default=4)
    parser.add_argument("--load", type=float, default=0.75)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plot", type=Path, help="draw into this file")
    given = parser.parse_args(arguments)
    results: dict[str, list[dict[str, float]]] = {}
    for selection in given.selection.split(","):
        for count in given.clusters.split(","):
            began = time.monotonic()
            found = simulate(
                int(count),
                selection=selection,
                rate=given.rate,
                seconds=given.seconds,
                schedulers=given.schedulers,
                load=given.load,
                seed=given.seed,
            )
            results.setdefault(selection, []).append(found)
            print(f"{selection}, {count} clusters ({time.monotonic() - began:.0f} s)")
            for name, value in found.items():
                print(f"  {name:28} {value:12.3f}", flush=True)
    target = Path("build/simulation.json")
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps({"settings": vars(given), "results": results}, indent=2, default=str) + "\n")
    if given.plot:
        draw(results, given.plot)
    return 0
