"""Shares of users and accounts, on the scheduler's own classes and a clock that the test turns."""

from __future__ import annotations

import heapq
import itertools
import random
import uuid
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest

from rainbow.brokers.base import Delivery
from rainbow.jobspec import read_cached, simple
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
from rainbow_workers.scheduling.share_terms import SharePolicy, name_of
from rainbow_workers.scheduling.window import Window
from rainbow_workers.stores import StoreOptions, open_store
from rainbow_workers.stores.base import Changes, Recorded, run_time_of
from rig import resources

SMALL = read_cached(simple(["true"], cores_per_task=1))


def weighing(**weights: float) -> dict[str, ShareTerms]:
    return {name: ShareTerms(weight=weight) for name, weight in weights.items()}


SECONDS = {"fast": 0.5, "middle": 1.0, "slow": 4.0}
#: Seconds between two reports.
REPORT = 0.25


class Site:
    """Three clusters of 16 cores whose jobs of one core take 0.5, 1 and 4 s, and users who always have jobs waiting."""

    def __init__(self, policy: SharePolicy) -> None:
        self.now = 1_000_000.0
        self.world = ClusterCache(depth=DepthPolicy())
        summary = read_graph(resources(nodes=1, cores=16, host="host"))
        records = {
            name: ClusterRecord(
                name=name, registration="r", identity="i", summary=summary.to_bytes(), digest=summary.digest
            )
            for name in SECONDS
        }
        self.world.apply(Changes(1, clusters=records))
        self.window = Window()
        self.store = open_store(StoreOptions(f"memory://{uuid.uuid4().hex}"))
        self.fair_share = FairShare(self.store, self.world, policy, clock=lambda: self.now)
        clusters = SimpleNamespace(changes=lambda since: Changes(since))
        decider = Decider(self.world)
        self.deciding = Deciding(
            SimpleNamespace(clusters=clusters),
            self.world,
            decider,
            RateLimiter(1e9),
            random.Random(1),
        )
        self.numbers = itertools.count()
        self.running: list[tuple[float, int, str, tuple[str, str]]] = []
        self.queued: dict[str, list[tuple[str, str]]] = {name: [] for name in SECONDS}
        self.run_times = RunTimes(self.store, clock=lambda: self.now)
        #: Core seconds that ended, by account and user.
        self.had: defaultdict[tuple[str, str], float] = defaultdict(float)

    def wants(self, user: str, account: str = "default", jobs: int = 200, **more: Any) -> None:
        """Keep so many jobs of a user waiting."""
        there = sum(kind.count for kind in self.window.kinds.values() if kind.payer == (account, user))
        for _ in range(jobs - there):
            number = next(self.numbers)
            job = Job(f"job{number}", user, SMALL, frozenset({"*"}), float(number), account=account, **more)
            self.window.add(PendingJob(Delivery("rainbow.waiting.0", b""), job.id, job, parked=True), self.now)

    def step(self) -> None:
        """Report, place what there is room for, and let time go on until the next report."""
        self._report()
        self.fair_share.sync()
        decided = self.deciding.release(Round(self.window, 30.0, self.now, self.fair_share), self.now)
        for pending, decision in zip(decided.jobs, decided.decisions, strict=True):
            assert pending.job is not None
            assert decision is not None
            assert decision.cluster is not None
            self.fair_share.charge([(pending.job, decision.cluster)])
            self.world.settle(decision.cluster, SMALL.demand)
            self.queued[decision.cluster].append(pending.job.payer)
        self._start()
        end = self.now + REPORT
        while self.running and self.running[0][0] <= end:
            self.now, _, cluster, payer = heapq.heappop(self.running)
            self._ended(cluster, payer)
            self._start()
        self.now = end

    def _ended(self, cluster: str, payer: tuple[str, str]) -> None:
        self.had[payer] += SECONDS[cluster]
        times = {"running": self.now - SECONDS[cluster], "ended": self.now}
        record = JobRecord(id="job", state="completed", cluster=cluster, user=payer[1], times=times)
        event = JobEvent(id="job", state="completed", at=self.now)
        self.run_times.note([event], [Recorded(lambda: record, applied=True)])

    def _busy(self, cluster: str) -> int:
        return sum(where == cluster for _, _, where, _ in self.running)

    def _start(self) -> None:
        for cluster, waiting in self.queued.items():
            while waiting and self._busy(cluster) < 16:
                heapq.heappush(
                    self.running,
                    (self.now + SECONDS[cluster], next(self.numbers), cluster, waiting.pop(0)),
                )

    def _report(self) -> None:
        self._start()
        states = {
            name: ClusterState(
                values={
                    "nodes_free": 0,
                    "cores_free": 16 - self._busy(name),
                    "gpus_free": 0,
                    "jobs_pending": len(self.queued[name]),
                    "ends_per_s": 16 / seconds,
                },
                heartbeat_at=self.now,
            )
            for name, seconds in SECONDS.items()
        }
        self.world.apply(Changes(self.world.version + 1, states=states))


def jain(had: dict[Any, float], weights: dict[Any, float]) -> float:
    """Jain's index of what each had for its weight: 1 when all are served alike."""
    parts = [had[name] / weight for name, weight in weights.items()]
    return sum(parts) ** 2 / (len(parts) * sum(part * part for part in parts))


def test_five_saturated_users_get_room_by_their_weights_in_each_minute() -> None:
    weights = {"a": 1.0, "b": 1.0, "c": 2.0, "d": 4.0, "e": 8.0}
    site = Site(SharePolicy(weighing(**weights)))
    total = sum(weights.values())
    for _ in range(2):
        site.had.clear()
        end = site.now + 60.0
        while site.now < end:
            for user in weights:
                site.wants(user)
            site.step()
        had = {user: site.had["default", user] for user in weights}
        everything = sum(had.values())
        assert everything > 0.95 * 60 * 48  # nothing was idle meanwhile
        for user, weight in weights.items():
            assert abs(had[user] / everything - weight / total) < 0.03
        assert jain(had, weights) >= 0.99


def test_accounts_go_before_their_users() -> None:
    """Ten users in an account get no more than the only one of another with the same weight."""
    site = Site(SharePolicy(weighing(boss=3.0), weighing(physics=1.0, biology=1.0, chemistry=2.0)))
    people = [("physics", f"p{n}") for n in range(8)] + [("physics", "boss"), ("biology", "b"), ("chemistry", "c")]
    for minute in range(2):
        site.had.clear()
        end = site.now + 45.0
        while site.now < end:
            for account, user in people:
                site.wants(user, account, jobs=50)
            site.step()
        everything = sum(site.had.values())
        of_account: defaultdict[str, float] = defaultdict(float)
        for (account, _), seconds in site.had.items():
            of_account[account] += seconds
        parts = {account: seconds / everything for account, seconds in of_account.items()}
        assert parts == pytest.approx({"physics": 0.25, "biology": 0.25, "chemistry": 0.5}, abs=0.03), minute
        physics = of_account["physics"]
        assert site.had["physics", "boss"] / physics == pytest.approx(3 / 11, abs=0.03)
        assert site.had["physics", "p0"] / physics == pytest.approx(1 / 11, abs=0.03)


def test_what_an_account_leaves_goes_to_the_others() -> None:
    site = Site(SharePolicy({}, weighing(physics=9.0)))
    end = site.now + 30.0
    while site.now < end:
        site.wants("alice", jobs=100)
        site.step()
    assert site.had["default", "alice"] > 0.95 * 30 * 48


def test_of_a_users_jobs_the_most_urgent_goes_first_then_the_oldest() -> None:
    site = Site(SharePolicy())
    site.wants("alice", jobs=100)
    urgent = Job("urgent", "alice", read_cached(simple(["date"], tasks=2)), frozenset({"*"}), 1e9, priority=31)
    site.window.add(PendingJob(Delivery("rainbow.waiting.0", b""), urgent.id, urgent, parked=True), site.now)
    site.fair_share.sync()
    first, _ = Round(site.window, 30.0, site.now, site.fair_share).offer() or (None, None)
    assert first is not None
    assert first.id == "urgent"


def test_what_an_administrator_sets_holds_at_once_and_goes_before_the_settings() -> None:
    site = Site(SharePolicy(weighing(alice=2.0, bob=5.0), weighing(physics=3.0)))
    other = FairShare(site.store, site.world, SharePolicy(), clock=lambda: site.now)
    table = site.fair_share.table
    site.store.shares.put(name_of("user", "alice"), '{"weight":7,"max_running":3}')
    site.store.shares.put(name_of("account", "biology"), '{"weight":0.5}')
    site.store.shares.put(name_of("account", "broken"), '{"weight":-1}')
    site.fair_share.sync(at_once=True)
    other.sync()
    assert table.terms("user", "alice") == ShareTerms(weight=7, max_running=3)
    assert table.weight("user", "bob") == 5.0
    assert (table.weight("account", "physics"), table.weight("account", "biology")) == (3.0, 0.5)
    assert table.weight("account", "broken") == 1.0
    assert other.table.weight("user", "alice") == 7.0
    site.store.shares.put(name_of("user", "alice"), None)
    site.fair_share.sync(at_once=True)
    assert table.terms("user", "alice") == ShareTerms(weight=2.0)


def test_usage_of_the_release_before_counts_for_the_default_account() -> None:
    site = Site(SharePolicy())
    site.store.shares.charge({"alice": 5.0}, int(site.now // 3600), 3600.0)
    site.fair_share.sync()
    assert site.fair_share.usage().users["default", "alice"] > 0


def test_what_a_cluster_refused_is_not_charged() -> None:
    site = Site(SharePolicy(half_life=1e12))
    site.fair_share.sync()
    job = Job("job", "alice", SMALL, frozenset({"*"}), 0.0)
    cluster = next(iter(SECONDS))
    site.fair_share.charge([(job, cluster)])
    charged = site.fair_share.usage().users["default", "alice"]
    site.fair_share.charge([(job, cluster)])
    site.fair_share.refund(job, cluster)
    assert site.fair_share.usage().users["default", "alice"] == pytest.approx(charged)
    # What is left is put right as usual; what came back has no run time.
    site.store.shares.ran({"alice": 2.0, run_time_of("alice", cluster): 2.0})
    site.now += 2.0
    site.fair_share.sync()
    left = site.fair_share.usage().users["default", "alice"]
    site.fair_share.refund(job, cluster)
    assert 0 < left < charged
    assert site.fair_share.usage().users["default", "alice"] == pytest.approx(0.0, abs=1e-9)
