"""The waiting room's parts that need no broker: depth, the window, a round over the kinds."""

from __future__ import annotations

import random
import uuid
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from rainbow import topology
from rainbow.brokers.base import Delivery
from rainbow.jobspec import read_cached, simple
from rainbow.jobspec.request import Demand
from rainbow.models.cluster import ClusterRecord, ClusterState
from rainbow.models.job import Reason
from rainbow.models.shares import ShareTerms
from rainbow.resources import read_graph
from rainbow_workers.clusters.cache import ClusterCache
from rainbow_workers.clusters.depth import DepthPolicy
from rainbow_workers.scheduling.contention import Contention
from rainbow_workers.scheduling.decide import Decider, Job
from rainbow_workers.scheduling.deciding import Deciding
from rainbow_workers.scheduling.failover import RateLimiter
from rainbow_workers.scheduling.fair_share import FairShare
from rainbow_workers.scheduling.pending_job import PendingJob
from rainbow_workers.scheduling.round import Round
from rainbow_workers.scheduling.share_terms import SharePolicy
from rainbow_workers.scheduling.window import Window
from rainbow_workers.selection.base import Load
from rainbow_workers.stores import StoreOptions, open_store
from rainbow_workers.stores.base import Changes
from rig import resources

SMALL = read_cached(simple(["true"], cores_per_task=1))
LARGE = read_cached(simple(["true"], tasks=16, cores_per_task=1))
ALICE = ("default", "alice")


def record(name: str, cores: int = 16) -> ClusterRecord:
    summary = read_graph(resources(nodes=1, cores=cores, host=name))
    return ClusterRecord(name=name, registration="r", identity="i", summary=summary.to_bytes(), digest=summary.digest)


def state(cores: int, pending: int = 0, **more: Any) -> ClusterState:
    values = {"nodes_free": int(cores == 16), "cores_free": cores, "gpus_free": 0, "jobs_pending": pending, **more}
    return ClusterState(values=values, heartbeat_at=1.0)


def cache(**states: ClusterState) -> ClusterCache:
    made = ClusterCache(depth=DepthPolicy(share=1 / 16, seconds=0.5))
    made.apply(Changes(1, clusters={name: record(name) for name in states}, states=states))
    return made


def pending(number: int, spec: Any = SMALL, user: str = "alice", **more: Any) -> PendingJob:
    job = Job(f"job{number}", user, spec, frozenset({"*"}), float(number), **more)
    return PendingJob(Delivery("rainbow.waiting.0", b""), job.id, job, parked=True)


class Room:
    """A window and a stage that decides, without broker and store."""

    def __init__(self, world: ClusterCache, patience: float = 30.0, **weights: float) -> None:
        self.world = world
        self.window = Window()
        self.patience = patience
        store = SimpleNamespace(clusters=SimpleNamespace(changes=lambda since: Changes(since)))
        shares = SharePolicy({user: ShareTerms(weight=weight) for user, weight in weights.items()})
        self.fair_share = FairShare(open_store(StoreOptions(f"memory://{uuid.uuid4().hex}")), world, shares)
        self.deciding = Deciding(store, world, Decider(world), RateLimiter(1e9), random.Random(1))

    def release(self, now: float) -> dict[str, str | None]:
        self.fair_share.sync()
        decided = self.deciding.release(Round(self.window, self.patience, now, self.fair_share), now)
        for placed, decision in zip(decided.jobs, decided.decisions, strict=True):
            assert placed.job is not None
            assert decision is not None
            assert decision.cluster is not None
            self.fair_share.charge([(placed.job, decision.cluster)])
        return {p.id: d.cluster for p, d in zip(decided.jobs, decided.decisions, strict=True) if d is not None}


# -- depth -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("free", "reserved", "waiting", "rate", "bound", "fits"),
    [
        (1, 0, 0, 0.0, None, True),
        (0, 0, 0, 0.0, None, True),  # one core, a sixteenth, is ahead
        (0, 1, 0, 0.0, None, False),
        (0, 0, 1, 0.0, None, False),  # it waits there for longer than its reservation lasted
        (0, 1, 1, 0.0, None, False),  # the same job is reserved and waits: it counts once
        (0, 3, 3, 8.0, None, True),  # four end in half a second: as many are ahead
        (0, 4, 4, 8.0, None, False),
        (16, 8, 0, 0.0, 8, False),  # as many are on their way there as may wait
        (16, 7, 0, 0.0, 8, True),
        (16, 0, 8, 0.0, 8, False),
        (16, 0, 0, 0.0, 0, False),
        (0, 0, 0, float("nan"), None, True),
    ],
)
def test_a_cluster_gets_ahead_what_its_size_and_its_rate_of_ends_ask_for(
    free: int, reserved: int, waiting: int, rate: float, bound: int | None, fits: bool
) -> None:
    load = Load(Demand(1, 16, 0), Demand(0, free - reserved, 0), waiting)
    values = {"ends_per_s": rate} | ({} if bound is None else {"max_queued": bound})
    policy = DepthPolicy(share=1 / 16, seconds=0.5)
    assert policy.fits(load, Demand(0, reserved, 0), (0, 0, 0), Demand(1, 1, 0), values) is fits


def test_where_no_agent_ever_reported_nothing_waits() -> None:
    world = ClusterCache()
    world.apply(Changes(1, clusters={"byhand": record("byhand")}))
    decider, rng = Decider(world), random.Random(1)
    for number in range(100):
        job = pending(number).job
        assert job is not None
        assert decider.decide(job, 0.0, rng).cluster == "byhand"
        world.reserve("byhand", job.jobspec.demand)


def test_a_user_whose_queue_another_one_fills_gets_another_queue() -> None:
    alice, usual = "alice", topology.waiting_lane("alice")
    bob = next(f"bob{n}" for n in range(100) if topology.waiting_lane(f"bob{n}") == usual)
    window, contention = Window(), Contention()
    full = [replace(pending(n), delivery=Delivery(f"rainbow.waiting.{usual}", b"")) for n in range(9)]
    theirs = replace(pending(9, user=bob), delivery=Delivery(f"rainbow.waiting.{usual}", b""))
    for held in (*full, theirs):
        window.add(held, 0.0)
    assert window.full(11) == {}
    assert (contention.lane(alice), contention.lane(bob)) == (usual, usual)
    contention.full = window.full(10)
    other = contention.lane(bob)
    assert (contention.lane(alice), contention.full) == (usual, {f"rainbow.waiting.{usual}": alice})
    assert other != usual
    # Once it fills that one it stays there, also when others are free.
    contention.full = {**contention.full, f"rainbow.waiting.{other}": bob}
    assert contention.lane(bob) == other
    contention.full = dict.fromkeys(topology.waiting_queues(), "carol")
    assert contention.lane(bob) == usual
    for held in full:
        window.remove(held)
    assert window.full(1) == {f"rainbow.waiting.{usual}": bob}
    window.remove(theirs)
    assert window.full(1) == {}


# -- deciding ----------------------------------------------------------------------------------------------------


def test_deciding_changes_nothing_and_chance_is_handed_in() -> None:
    world = cache(blue=state(16), red=state(16))
    decider = Decider(world)
    job = pending(1).job
    assert job is not None
    free = [world.load(name).free for name in ("blue", "red")]
    picked = [[decider.decide(job, 0.0, random.Random(seed)).cluster for seed in range(20)] for _ in range(2)]
    assert picked[0] == picked[1]
    assert set(picked[0]) == {"blue", "red"}
    assert [world.load(name).free for name in ("blue", "red")] == free


def test_what_found_no_room_is_not_looked_at_again_for_other_users_in_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room(cache(blue=state(1)))
    for number in range(20):
        room.window.add(pending(number, user=f"user{number}"), 0.0)
    room.window.add(pending(20, LARGE, user="user20"), 0.0)
    decided: list[Any] = []
    decide = Decider.decide

    def counted(*args: Any, **more: Any) -> Any:
        decided.append(args[1].jobspec)
        return decide(*args, **more)

    monkeypatch.setattr(Decider, "decide", counted)
    assert len(room.release(1.0)) == 2  # one starts, one is ahead
    assert decided.count(SMALL) == 3
    assert decided.count(LARGE) == 1
    assert {kind.detail for kind in room.window.kinds.values()} == {
        "waits for room: each cluster that can run it is busy (1)"
    }


def test_a_full_cluster_is_not_chosen_and_a_job_that_fits_nowhere_waits() -> None:
    world = cache(blue=state(0, pending=1), red=state(4))
    decider, job = Decider(world), pending(1).job
    assert job is not None
    assert {decider.decide(job, 0.0, random.Random(seed)).cluster for seed in range(20)} == {"red"}
    world.apply(Changes(2, states={"red": state(0, pending=1)}))
    waits = decider.decide(job, 0.0, random.Random(1))
    assert (waits.status, waits.waits, waits.retry_in) == ("held", True, 0.0)
    assert "each cluster that can run it is busy (2)" in str(waits.detail)
    world.apply(Changes(3, states={"blue": state(3)}))
    assert decider.decide(job, 0.0, random.Random(1)).cluster == "blue"


def test_a_new_job_does_not_take_the_room_of_those_that_wait() -> None:
    world = cache(blue=state(4), red=state(4))
    contention = Contention()
    decider, job = Decider(world, contention=contention), pending(1).job
    assert job is not None
    contention.clusters = frozenset({"blue"})
    assert {decider.decide(job, 0.0, random.Random(seed)).cluster for seed in range(20)} == {"red"}
    contention.clusters = None
    assert decider.decide(job, 0.0, random.Random(1)).waits
    contention.clusters = frozenset()
    assert decider.decide(job, 0.0, random.Random(1)).status == "assigned"


def test_a_merely_busy_job_waits_for_as_long_as_it_takes() -> None:
    world = cache(blue=state(16))
    decider = Decider(world, retry_after=5.0, max_attempts=3)
    job = pending(1, tried={"blue": Reason(code="busy")}, attempt=500).job
    assert job is not None
    decision = decider.decide(job, 0.0, random.Random(1))
    assert (decision.status, decision.waits, decision.retry_in) == ("held", True, 300.0)
    job.tried = {"blue": Reason(code="error")}
    assert decider.decide(job, 0.0, random.Random(1)).status == "unsatisfiable"


# -- the window -------------------------------------------------------------------------------------------------------


def test_jobs_of_a_kind_go_by_priority_and_then_by_age() -> None:
    room = Room(cache(blue=state(2)))
    for number, priority in ((3, 16), (1, 16), (2, 20)):
        room.window.add(pending(number, priority=priority), 0.0)
    assert list(room.release(10.0)) == ["job2", "job1", "job3"]  # two start, one is ahead
    assert len(room.window) == 0


def test_a_kind_that_does_not_fit_is_skipped_as_a_whole() -> None:
    world = cache(blue=state(3))
    room = Room(world)
    for number in range(100):
        room.window.add(pending(number, LARGE), 0.0)
    room.window.add(pending(200), 0.0)
    looked = []
    decide = room.deciding._decider.decide
    room.deciding._decider.decide = lambda job, *a, **k: (looked.append(job.id), decide(job, *a, **k))[1]  # type: ignore[func-returns-value, method-assign]
    assert room.release(1000.0) == {"job200": "blue"}
    assert looked == ["job0", "job200"]
    assert len(room.window) == 100


@pytest.mark.parametrize(("cores", "step"), [(16, 1), (8, 2), (5, 3)])
def test_whose_turn_it_is_and_is_passed_for_long_is_bound_early(cores: int, step: int) -> None:
    """After `patience`, less what the job takes of the largest cluster: one of all its cores never finds room."""
    large = read_cached(simple(["true"], tasks=cores, cores_per_task=1))
    world = cache(blue=state(3))
    room = Room(world, patience=30.0)
    room.window.add(pending(1, large), 0.0)
    room.window.add(pending(2, large), 0.0)
    for at in range(step + 1):
        world.apply(Changes(at + 2, states={"blue": state(3)}, reserved={"blue": Demand()}))
        room.window.add(pending(100 + at), 0.0)
        placed = room.release(100.0 + 10 * at)
        for job in placed:
            world.settle("blue", (large if job == "job1" else SMALL).demand)
        if at < step:
            assert placed == {f"job{100 + at}": "blue"}
        else:
            assert placed.get("job1") == "blue"
            assert "job2" not in placed, "one of a kind at a time"


def test_nobody_is_bound_early_who_only_waits_his_turn() -> None:
    room = Room(cache(blue=state(0, pending=1)), patience=30.0)
    for number in range(10):
        room.window.add(pending(number), 0.0)
    for now in range(0, 1000, 10):
        assert room.release(float(now)) == {}


def test_users_get_room_by_their_weights() -> None:
    world = cache(blue=state(16))
    room = Room(world, bob=3.0)
    for number in range(60):
        room.window.add(pending(number), 0.0)
        room.window.add(pending(100 + number, user="bob"), 0.0)
    placed: list[str] = []
    for step in range(4):
        now = room.release(1000.0 + step)
        placed += now
        for _ in now:
            world.settle("blue", SMALL.demand)
        world.apply(Changes(step + 2, states={"blue": state(10)}))
    bobs = sum(int(job[3:]) >= 100 for job in placed)
    assert len(placed) > 40
    assert abs(bobs / len(placed) - 0.75) < 0.03


def test_who_comes_later_is_not_behind_all_of_another() -> None:
    room = Room(cache(blue=state(10)))
    for number in range(50):
        room.window.add(pending(number), 0.0)
    assert len(room.release(1.0)) == 11
    room.world.apply(Changes(2, states={"blue": state(3)}))
    for _ in range(11):
        room.world.settle("blue", SMALL.demand)
    for number in (100, 101):
        room.window.add(pending(number, user="bob"), 0.0)
    assert list(room.release(2.0))[:2] == ["job100", "job101"]


def test_a_job_costs_its_dominant_share_times_the_seconds_it_runs() -> None:
    room = Room(cache(blue=state(16), red=state(16)))
    room.fair_share.sync()
    small, large = pending(1).job, pending(2, LARGE, user="bob").job
    assert small is not None
    assert large is not None
    assert room.fair_share.cost(small) == pytest.approx(60.0 / 32)
    assert room.fair_share.cost(large) == pytest.approx(60.0 * 16 / 32)
    room.fair_share._store.shares.ran({"alice": 2.0})
    room.fair_share._next = 0.0
    room.fair_share.sync()
    assert room.fair_share.cost(small) == pytest.approx(2.0 / 32)


def test_usage_fades_and_is_shared_by_schedulers() -> None:
    world, now = cache(blue=state(16)), [1_000_000.0]
    store = open_store(StoreOptions(f"memory://{uuid.uuid4().hex}"))
    one, two = (FairShare(store, world, SharePolicy(half_life=100.0), clock=lambda: now[0]) for _ in range(2))
    one.sync()
    job = pending(1).job
    assert job is not None
    one.charge([(job, "blue")])
    charged = one.usage().users.get(ALICE, 0.0)
    now[0] += 1.5
    one.sync()
    two.sync()
    assert two.usage().users.get(ALICE, 0.0) == pytest.approx(charged)
    now[0] += 150.0
    two.sync()
    assert charged * 0.4 < two.usage().users.get(ALICE, 0.0) < charged * 0.6
    now[0] += 1000.0
    two.sync()
    assert two.usage().users.get(ALICE, 0.0) == 0.0


def test_timers_and_jobs_that_come_again() -> None:
    window = Window()
    window.add(pending(1, expires_at=50.0), 0.0)
    window.add(pending(2, hold_until=20.0), 0.0)
    entry = window.add(pending(3), 0.0)
    window.wake(entry, 30.0)
    window.wake(entry, 40.0)  # it is due already before
    assert window.next_due() == 20.0
    assert [e.pending.id for e in window.due(30.0)] == ["job2", "job3"]
    assert window.next_due() == 50.0
    again = pending(1)
    window.add(again, 0.0)  # the channel of the first delivery is gone
    assert len(window) == 3
    assert window.next_due() == float("inf")
    first = window.get(pending(1))
    assert first is not None
    assert first.pending is again
    for number in (1, 2, 3):
        window.remove(pending(number))
    assert (len(window), window.kinds) == (0, {})
