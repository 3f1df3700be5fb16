"""Jobs that wait, simulated: the classes that really hold, rank and bind them, against clusters as discrete events.

`make simulate` runs it after the simulation of decisions. Scenarios:

- `federation`: 20 clusters of random size and speed, 20,000 jobs of log-normal length, against one pool of all cores.
- `shares`: five users of weights 1, 1, 2, 4 and 8 on three clusters of unequal speed, all of them with jobs that wait.
- `latecomer`: one user has 100,000 jobs waiting when another one submits 100; and those 100 alone on half the cores.
- `large`: a job of all cores of the largest cluster, under a flow of small ones that fills all clusters.
- `thousand`: 1,000 clusters and 1,000,000 jobs that wait: what an event costs.

The model: a dispatch takes 30 ms to its cluster, a report 20 ms back. A cluster starts jobs first come first served,
without backfill; it reports as an agent does: ends within 0.1 s where it has less waiting than ends in a second, all
else once a second. One scheduler holds a window of each queue, and decides when reports have come. Results go to
build/simulation-waiting.json, and with --plot FILE into a picture.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import math
import random
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import style
from rainbow import topology
from rainbow.brokers.base import Delivery
from rainbow.jobspec import Jobspec, read_cached
from rainbow.jobspec.dialects.simple import simple
from rainbow.jobspec.request import Demand
from rainbow.models.cluster import ClusterRecord, ClusterState
from rainbow.models.job import JobEvent, JobRecord
from rainbow.models.shares import ShareTerms
from rainbow.resources import read_graph
from rainbow_workers.clusters.cache import ClusterCache
from rainbow_workers.clusters.depth import DepthPolicy
from rainbow_workers.records.run_times import RunTimes
from rainbow_workers.scheduling.decide import Decider, Job
from rainbow_workers.scheduling.deciding import Deciding
from rainbow_workers.scheduling.failover import RateLimiter
from rainbow_workers.scheduling.fair_share import FairShare
from rainbow_workers.scheduling.pending_job import PendingJob
from rainbow_workers.scheduling.round import Round
from rainbow_workers.scheduling.share_terms import SharePolicy
from rainbow_workers.scheduling.waiting import WaitingPolicy
from rainbow_workers.scheduling.window import Window
from rainbow_workers.stores import StoreOptions, open_store
from rainbow_workers.stores.base import Changes, Recorded
from rig import resources

TICK, DISPATCH, REPORT = 0.01, 0.03, 0.02
SOON, LATER = 0.1, 1.0
#: Seconds over which a cluster measures how many jobs end in one.
RATE = 5.0


@dataclass(slots=True, eq=False)
class Run:
    """A job: its user, cores, and seconds on a cluster of speed 1. The times are when it came, started and ended."""

    user: str
    cores: int
    seconds: float
    came: float
    started: float = math.inf
    ended: float = math.inf
    cluster: str = ""


@dataclass(slots=True, eq=False)
class Site:
    """A simulated cluster."""

    name: str
    cores: int
    speed: float
    free: int = 0
    queue: deque[Run] = field(default_factory=deque)
    on_way: Counter[str] = field(default_factory=Counter)
    ends: deque[float] = field(default_factory=deque)
    reserved: int = 0
    reported: float = -math.inf
    due: float = math.inf


class Federation:
    """Clusters, a scheduler's waiting room, and a clock. `policy` says whose turn it is."""

    def __init__(self, sites: Sequence[Site], policy: SharePolicy | None = None, seed: int = 1) -> None:
        self.now = 1_000_000.0
        self.sites = {site.name: site for site in sites}
        self.world = ClusterCache(depth=DepthPolicy())
        self.world.apply(Changes(1, clusters=dict(_records(sites))))
        self.policy = WaitingPolicy()
        self.window = Window()
        self.lanes: dict[str, deque[tuple[Job, Run]]] = {q: deque() for q in topology.waiting_queues()}
        self.held: Counter[str] = Counter()
        self.runs: dict[str, Run] = {}
        self.jobs: list[Run] = []
        store = open_store(StoreOptions(f"memory://{uuid.uuid4().hex}"))
        self.fair_share = FairShare(store, self.world, policy or SharePolicy(), clock=lambda: self.now)
        self.run_times = RunTimes(store, clock=lambda: self.now)
        clusters = SimpleNamespace(changes=lambda since: Changes(since))
        decider, turns = Decider(self.world), RateLimiter(1e9)
        self.deciding = Deciding(
            SimpleNamespace(clusters=clusters),  # type: ignore[arg-type]
            self.world,
            decider,
            turns,
            random.Random(seed),
        )
        self._specs: dict[int, Jobspec] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()
        self._states: dict[str, ClusterState] = {}
        #: Processor seconds of the scheduler's classes, and how many times they looked.
        self.cost, self.looks = 0.0, 0
        #: Whether the run times of jobs are told, as the recorder does.
        self.notes = True
        for site in sites:
            site.free = site.cores
            self._report(site)
        # They have reported before anything is submitted.
        while self._events:
            self.now = max(self.now, self._events[0][0])
            heapq.heappop(self._events)[2]()

    # -- what users do ---------------------------------------------------------------------------------------

    def submit(self, user: str, seconds: float, cores: int = 1) -> Run:
        run = Run(user, cores, seconds, self.now)
        spec = self._specs.get(cores) or self._specs.setdefault(
            cores, read_cached(simple(["true"], tasks=cores, cores_per_task=1))
        )
        job = Job(f"job{next(self._number)}", user, spec, frozenset({"*"}), self.now)
        self.lanes[f"{topology.WAITING}.{topology.waiting_lane(user)}"].append((job, run))
        self.jobs.append(run)
        return run

    @property
    def waiting(self) -> int:
        return len(self.window) + sum(map(len, self.lanes.values()))

    # -- time ------------------------------------------------------------------------------------------------

    def run(self, until: Callable[[], bool], each: Callable[[], None] = lambda: None) -> None:
        """Let time go on until `until` holds; `each` is called once a second."""
        second = self.now
        self._look()
        while not until():
            assert self._events, "nothing happens any more"
            self.now = max(self.now + TICK, math.ceil(self._events[0][0] / TICK) * TICK)
            while self._events and self._events[0][0] <= self.now:
                heapq.heappop(self._events)[2]()
            if self._states or any(len(lane) and self.held[q] < self.policy.window for q, lane in self.lanes.items()):
                self._look()
            if self.now >= second + 1.0:
                second = self.now
                each()

    def _after(self, seconds: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._number), what))

    # -- the scheduler ---------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Take what was reported, and place what there is room for."""
        self._refill()
        began = time.process_time()
        states, self._states = self._states, {}
        reserved = {name: Demand(0, self.sites[name].reserved, 0) for name in states}
        self.world.apply(Changes(self.world.version + 1, states=states, reserved=reserved))
        self.fair_share.sync()
        placed: list[tuple[str, PendingJob]] = []
        while True:
            round_ = Round(self.window, self.policy.patience, self.now, self.fair_share)
            decided = self.deciding.release(round_, self.now)
            for pending, decision in zip(decided.jobs, decided.decisions, strict=True):
                assert pending.job is not None
                assert decision is not None
                assert decision.cluster is not None
                demand = pending.job.jobspec.demand
                self.fair_share.charge([(pending.job, decision.cluster)])
                self.world.settle(decision.cluster, demand)
                site = self.sites[decision.cluster]
                site.reserved += demand.cores
                sums = {site.name: Demand(0, site.reserved, 0)}
                self.world.apply(Changes(self.world.version + 1, reserved=sums))
                placed.append((decision.cluster, pending))
            if not round_.full:
                break
        self.cost += time.process_time() - began
        self.looks += 1
        for name, pending in placed:
            self.held[pending.delivery.queue] -= 1
            self._dispatch(self.sites[name], self.runs.pop(pending.id))

    def _refill(self) -> None:
        for queue, lane in self.lanes.items():
            while lane and self.held[queue] < self.policy.window:
                job, run = lane.popleft()
                self.runs[job.id] = run
                self.held[queue] += 1
                self.window.add(PendingJob(Delivery(queue, b""), job.id, job, fresh=True, parked=True), self.now)

    # -- clusters --------------------------------------------------------------------------------------------

    def _dispatch(self, site: Site, run: Run) -> None:
        run.cluster = site.name
        site.on_way["cores"] += run.cores

        def arrive() -> None:
            site.on_way["cores"] -= run.cores
            site.queue.append(run)
            self._start(site)
            self._changed(site)

        self._after(DISPATCH, arrive)

    def _start(self, site: Site) -> None:
        while site.queue and site.queue[0].cores <= site.free:
            run = site.queue.popleft()
            site.free -= run.cores
            run.started, run.ended = self.now, self.now + run.seconds / site.speed

            def end(run: Run = run) -> None:
                site.free += run.cores
                site.ends.append(self.now)
                if self.notes:
                    self._note(site, run)
                self._start(site)
                self._changed(site)

            self._after(run.seconds / site.speed, end)

    def _note(self, site: Site, run: Run) -> None:
        times = {"running": run.started, "ended": self.now}
        record = JobRecord.model_construct(
            id="", state="completed", cluster=site.name, user=run.user, times=times, attempt=1
        )
        event = JobEvent.model_construct(id="", state="completed", at=self.now, attempt=1)
        self.run_times.note([event], [Recorded(lambda: record, applied=True)])

    def _rate(self, site: Site) -> float:
        while site.ends and site.ends[0] < self.now - RATE:
            site.ends.popleft()
        return len(site.ends) / RATE

    def _changed(self, site: Site) -> None:
        gap = SOON if sum(run.cores for run in site.queue) < max(1.0, self._rate(site)) else LATER
        at = max(self.now, site.reported + gap)
        if at < site.due:
            site.due = at
            self._after(at - self.now, lambda: self._report(site) if site.due == at else None)

    def _report(self, site: Site) -> None:
        site.due, site.reported = math.inf, self.now
        values = {
            "nodes_free": int(site.free == site.cores),
            "cores_free": site.free,
            "gpus_free": 0,
            "jobs_pending": len(site.queue),
            "ends_per_s": self._rate(site),
        }
        state = ClusterState.model_construct(values=values, at=self.now, heartbeat_at=self.now, alive=True)
        on_way = site.on_way["cores"]

        def heard() -> None:
            # What was sent since is in no report yet.
            since = site.on_way["cores"] - on_way
            site.reserved = on_way + max(0, since)
            self._states[site.name] = state

        self._after(REPORT, heard)


def _records(sites: Sequence[Site]) -> Iterator[tuple[str, ClusterRecord]]:
    packed: dict[int, tuple[bytes, str]] = {}
    for site in sites:
        if site.cores not in packed:
            summary = read_graph(resources(nodes=1, cores=site.cores, host="host"))
            packed[site.cores] = summary.to_bytes(), summary.digest
        data, digest = packed[site.cores]
        yield site.name, ClusterRecord(name=site.name, registration="r", identity="i", summary=data, digest=digest)


def pool(jobs: Sequence[Run], sites: Sequence[Site]) -> float:
    """When the last of these jobs of one core starts if each goes to the core that is free first: one pool."""
    cores = [(0.0, number, site.speed) for number, site in enumerate(sites) for _ in range(site.cores)]
    heapq.heapify(cores)
    last = 0.0
    for run in jobs:
        last, number, speed = heapq.heappop(cores)
        heapq.heappush(cores, (last + run.seconds / speed, number, speed))
    return last


# -- scenarios ---------------------------------------------------------------------------------------------------


def unequal(cores: int = 16) -> list[Site]:
    return [Site("fast", cores, 2.0), Site("middle", cores, 1.0), Site("slow", cores, 0.25)]


def federation(seed: int, jobs: int = 20_000, count: int = 20) -> dict[str, Any]:
    rng = random.Random(seed)
    sites = [Site(f"c{n:02}", rng.choice((16, 32, 64, 128)), 2 ** rng.uniform(-2, 2)) for n in range(count)]
    made = Federation(sites, seed=seed)
    for _ in range(jobs):
        made.submit("alice", rng.lognormvariate(math.log(10.0), 1.0))
    ideal = pool(made.jobs, sites)
    began = made.now
    made.run(lambda: not made.waiting)
    empty = made.now  # from here on nothing could go to the fastest cluster
    made.run(lambda: all(run.started < math.inf for run in made.jobs))
    last = max(run.started for run in made.jobs)
    fastest = max(sites, key=lambda site: site.speed)
    use = {site.name: _use(made.jobs, site, began, last) for site in (fastest, min(sites, key=lambda s: s.speed))}
    parts = [max(0.0, min(empty, r.ended) - r.started) for r in made.jobs if r.cluster == fastest.name]
    return {
        "over_ideal": (last - began) / ideal,
        "fastest_idle_share": 1 - sum(parts) / (fastest.cores * (empty - began)),
        "scheduler_us_per_job": 1e6 * made.cost / jobs,
        "series": {"ideal": ideal, "use": list(use.values()), "all": _use(made.jobs, None, began, last, sites)},
    }


def _use(jobs: Sequence[Run], site: Site | None, began: float, last: float, sites: Sequence[Site] = ()) -> list[float]:
    """The share of the cores that was busy in each second."""
    cores = site.cores if site is not None else sum(s.cores for s in sites)
    busy = [0.0] * (int(last - began) + 1)
    for run in jobs:
        if site is not None and run.cluster != site.name:
            continue
        first, end = run.started - began, min(run.ended, last) - began
        for second in range(int(first), min(int(end), len(busy) - 1) + 1):
            busy[second] += min(end, second + 1) - max(first, second)
    return [amount / cores for amount in busy[:-1]]


def shares(seed: int, seconds: float = 180.0) -> dict[str, Any]:
    weights = {"a": 1.0, "b": 1.0, "c": 2.0, "d": 4.0, "e": 8.0}
    terms = {user: ShareTerms(weight=weight) for user, weight in weights.items()}
    made = Federation(unequal(), SharePolicy(terms), seed)
    for user in weights:
        for _ in range(int(seconds * 52)):
            made.submit(user, 1.0)
    began = made.now
    made.run(lambda: made.now >= began + seconds)
    rows: list[dict[str, float]] = []
    for minute in range(int(seconds // 60)):
        had = Counter[str]()
        for run in made.jobs:
            start, end = run.started - began - 60 * minute, run.ended - began - 60 * minute
            had[run.user] += max(0.0, min(60.0, end) - max(0.0, start)) if start < math.inf else 0.0
        rows.append({user: had[user] / sum(had.values()) for user in weights})
    parts = [[row[user] / weights[user] for user in weights] for row in rows]
    return {
        "off_by_most": max(abs(row[u] - w / sum(weights.values())) for row in rows for u, w in weights.items()),
        "jain_least": min(sum(p) ** 2 / (len(p) * sum(x * x for x in p)) for p in parts),
        "series": {"weights": weights, "started": {u: _moving(made.jobs, u, began, seconds) for u in weights}},
    }


def _moving(jobs: Sequence[Run], user: str, began: float, seconds: float) -> list[float]:
    """Cores that a user had, by second."""
    out = [0.0] * int(seconds)
    for run in jobs:
        if run.user == user and run.started < math.inf:
            first, end = run.started - began, run.ended - began
            for second in range(int(first), min(int(end), len(out) - 1) + 1):
                out[second] += min(end, second + 1) - max(first, second)
    return out


def latecomer(seed: int, backlog: int = 100_000, late: int = 100) -> dict[str, Any]:
    made = Federation(unequal(), seed=seed)
    for _ in range(backlog):
        made.submit("alice", 1.0)
    began = made.now
    made.run(lambda: made.now >= began + 30.0)
    mine = [made.submit("bob", 1.0) for _ in range(late)]
    made.run(lambda: all(run.started < math.inf for run in mine))
    alone = Federation(unequal(8), seed=seed)
    others = [alone.submit("bob", 1.0) for _ in range(late)]
    alone.run(lambda: all(run.started < math.inf for run in others))
    waits = [median(run.started - run.came for run in runs) for runs in (mine, others)]
    return {
        "wait_over_half_alone": waits[0] / waits[1],
        "wait_s": waits[0],
        "series": {
            name: sorted(r.started - r.came for r in runs) for name, runs in (("late", mine), ("alone", others))
        },
    }


def large(seed: int, cores: int = 64, longest: float = 60.0) -> dict[str, Any]:
    rng = random.Random(seed)
    made = Federation(
        [Site("big", cores, 1.0), Site("small", cores // 2, 1.0), Site("other", cores // 2, 1.0)], seed=seed
    )
    for _ in range(20 * cores):
        made.submit("alice", min(longest, rng.lognormvariate(math.log(10.0), 1.0)))
    began = made.now
    made.run(lambda: made.now >= began + 30.0)
    whole = made.submit("bob", 10.0, cores)
    made.run(lambda: whole.started < math.inf)
    return {"wait_s": whole.started - whole.came, "longest_s": longest, "patience_s": made.policy.patience}


def thousand(seed: int, clusters: int = 1000, jobs: int = 1_000_000, seconds: float = 10.0) -> dict[str, Any]:
    rng = random.Random(seed)
    sites = [Site(f"c{n:04}", rng.choice((16, 32, 64)), 2 ** rng.uniform(-2, 2)) for n in range(clusters)]
    made = Federation(sites, seed=seed)
    made.notes = False
    users = [f"user{n}" for n in range(50)]
    for number in range(jobs):
        made.submit(users[number % len(users)], rng.lognormvariate(math.log(10.0), 1.0))
    began = made.now
    made.run(lambda: made.now >= began + 2.0)  # all clusters are full
    made.cost, made.looks, before, began = 0.0, 0, made.waiting, made.now
    made.run(lambda: made.now >= began + seconds)
    placed = before - made.waiting
    return {
        "jobs_placed_per_s": placed / (made.now - began),
        "looks_per_s": made.looks / (made.now - began),
        "scheduler_us_per_job": 1e6 * made.cost / placed,
        "waiting": made.waiting,
    }


SCENARIOS: dict[str, Callable[[int], dict[str, Any]]] = {
    "federation": federation,
    "shares": shares,
    "latecomer": latecomer,
    "large": large,
    "thousand": thousand,
}


def draw(found: dict[str, dict[str, Any]], target: Path) -> None:
    figure, (left, middle, right) = style.chart(13, 4.0, 3)
    series = found["federation"]["series"]
    left.plot(series["all"], label="all cores")
    left.plot(series["use"][0], label="the fastest cluster")
    left.plot(series["use"][1], ":", label="the slowest cluster")
    left.axvline(series["ideal"], color="grey", linestyle="--", label="one pool would end")
    left.set(xlabel="s", ylabel="busy", title="Use, until the last job starts", ylim=(0, 1.05))
    series = found["shares"]["series"]
    users = [*series["started"]]
    middle.stackplot(
        range(len(series["started"][users[0]])),
        [series["started"][user] for user in users],
        labels=[f"weight {series['weights'][user]:g}" for user in users],
    )
    middle.set(xlabel="s", ylabel="cores", title="Five users who all want more", ylim=(0, 48))
    series = found["latecomer"]["series"]
    for name, label in (("late", "behind 100,000 of another user"), ("alone", "alone, on half the cores")):
        right.plot(series[name], label=label)
    right.set(xlabel="job", ylabel="s", title="Waits of 100 jobs", ylim=(0, None))
    for axes in (left, middle, right):
        axes.legend(loc="lower right", frameon=axes is middle)
    style.save(figure, target)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks simulate-waiting", description=__doc__)
    parser.add_argument("--only", action="append", choices=[*SCENARIOS])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plot", type=Path, help="draw into this file")
    given = parser.parse_args(arguments)
    found: dict[str, dict[str, Any]] = {}
    for name in given.only or SCENARIOS:
        began = time.monotonic()
        found[name] = SCENARIOS[name](given.seed)
        print(f"{name} ({time.monotonic() - began:.0f} s)")
        for key, value in found[name].items():
            if key != "series":
                print(f"  {key:28} {value:12.3f}", flush=True)
    target = Path("build/simulation-waiting.json")
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps({"seed": given.seed, "results": found}, indent=2) + "\n")
    if given.plot and not given.only:
        draw(found, given.plot)
    return 0
