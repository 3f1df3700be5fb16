"""A federation of clusters as discrete events, in front of which jobs wait: the scheduler's classes are the real ones.

A dispatch takes 30 ms to its cluster, a report 20 ms back. A cluster starts jobs first come first served, without
backfill; it reports as an agent does: ends within 0.1 s where it has less waiting than ends in a second, all else once
a second. One scheduler holds a window of each queue, and decides when reports have come.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

from rainbow import topology
from rainbow.brokers.base import Delivery
from rainbow.jobspec import Jobspec, read_cached
from rainbow.jobspec.dialects.simple import simple
from rainbow.jobspec.request import Demand
from rainbow.models.cluster import ClusterRecord, ClusterState, StateValue
from rainbow.models.job import JobEvent, JobRecord
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
            SimpleNamespace(clusters=clusters),
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
        values: dict[str, StateValue] = {
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
