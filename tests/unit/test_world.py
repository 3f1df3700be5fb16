from __future__ import annotations

import math
import random
from types import SimpleNamespace
from typing import Any

import pytest

from rainbow.brokers.base import Delivery
from rainbow.errors import InvalidInput, StoreUnavailable
from rainbow.jobspec import read_cached, simple
from rainbow.jobspec.request import Demand
from rainbow.models.cluster import ClusterRecord, ClusterState, Revocation
from rainbow.models.control import parse_request
from rainbow.models.job import Reason
from rainbow.resources import Matches, read_graph
from rainbow_workers.clusters.cache import REPORTED_EPOCH, ClusterCache, awaiting_clusters
from rainbow_workers.scheduling.array_restoring import unheard
from rainbow_workers.scheduling.decide import Decider, Decision, Job
from rainbow_workers.scheduling.dispatcher import Dispatcher
from rainbow_workers.scheduling.pending_job import PendingJob
from rainbow_workers.stores.base import Changes, Epoch
from rig import resources

SPEC = read_cached(simple(["true"], nodes=2))


def record(name: str, nodes: int = 4, **more: object) -> ClusterRecord:
    summary = read_graph(resources(nodes=nodes))
    return ClusterRecord(
        name=name, registration="r", identity="i", summary=summary.to_bytes(), digest=summary.digest, **more
    )


def world_of(*records: ClusterRecord) -> ClusterCache:
    world = ClusterCache()
    world.apply(Changes(1, clusters={r.name: r for r in records}))
    return world


def job(**more: object) -> Job:
    return Job(id="j", user="u", jobspec=SPEC, allowed=frozenset({"*"}), submitted_at=0.0, **more)  # type: ignore[arg-type]


class Deciding:
    """A decider whose decisions are applied to the cache, as the stage of that name does."""

    def __init__(self, world: ClusterCache, **more: object) -> None:
        self._world = world
        self.decider = Decider(world, **more)  # type: ignore[arg-type]
        self._rng = random.Random(1)

    def decide(self, job: Job, now: float) -> Decision:
        decision = self.decider.decide(job, now, self._rng)
        if decision.cluster is not None:
            self._world.reserve(decision.cluster, job.jobspec.demand)
        return decision


def decider(world: ClusterCache, **more: object) -> Deciding:
    return Deciding(world, **more)


def test_a_state_update_leaves_what_is_known_of_matching_alone() -> None:
    world = world_of(record("a"), record("b"))
    deciding = decider(world)
    deciding.decide(job(satisfy_only=True), 0.0)
    matches = world.graphs.query(SPEC.request)
    assert isinstance(matches, Matches)
    before = (world.generation, matches.version, matches.candidates)
    world.apply(Changes(2, states={"a": ClusterState(values={"nodes_free": 0})}, reserved={"b": Demand(1, 8, 0)}))
    matches = world.graphs.query(SPEC.request)
    assert isinstance(matches, Matches)
    assert (world.generation, matches.version, matches.candidates) == before
    assert world.load("a").free.nodes == 0
    assert world.load("b").free.nodes == 3


def test_what_changes_candidates_is_noticed() -> None:
    world = world_of(record("a"))
    deciding = decider(world)
    assert deciding.decide(job(), 0.0).cluster == "a"
    world.apply(Changes(2, clusters={"a": record("a", drained="maintenance")}))
    refused = deciding.decide(job(), 0.0)
    assert (refused.status, refused.reasons["a"].code) == ("no-match", "drained")
    world.apply(Changes(3, clusters={"a": None, "b": record("b")}))
    assert deciding.decide(job(), 0.0).cluster == "b"
    world.apply(Changes(9, clusters={"b": None}))
    assert deciding.decide(job(), 0.0).status == "no-match"
    assert world.clusters == {}


def test_agents_have_time_to_tell_what_a_store_without_its_data_had() -> None:
    """S51: counted from the last cluster that came back."""
    world = world_of(record("a"), record("b"))
    assert world.remembering(1000.0) == 0.0
    world.apply(Changes(9, clusters={"a": record("a").model_copy(update={"back_at": 1000.0})}, reset=True))
    assert world.remembering(1000.0) == 3 * world.alive_after, "its agent has not reported what it has"
    reported = {name: ClusterState(values={REPORTED_EPOCH: world.epoch}) for name in ("a", "b")}
    world.apply(Changes(9, states=reported))
    assert world.remembering(1000.0) == world.alive_after, "others may come back"
    world.apply(Changes(10, clusters={"b": record("b").model_copy(update={"back_at": 1010.0})}, states=reported))
    assert world.remembering(1020.0) == world.alive_after - 10.0
    assert world.remembering(1011.0 + world.alive_after) == 0.0
    assert world.remembering(0.0) == world.alive_after  # a clock that was set back does not make it wait for ever


def test_no_is_not_said_on_what_a_store_without_its_data_says() -> None:
    """S51: the clusters it forgot have time to come back; jobs wait for them, and are refused when they do not."""
    world = world_of(record("a"), record("b"), record("small", nodes=1))
    deciding = decider(world, retry_after=5.0)
    world.apply(Changes(9, clusters={"small": record("small", nodes=1)}, reset=True))
    world.look_around(100.0)
    waits = deciding.decide(job(), 100.0)
    assert (waits.status, waits.retry_in) == ("held", 5.0)
    assert "2 cluster(s) are not back yet" in str(waits.detail)
    world.apply(Changes(10, clusters={"a": record("a")}))
    assert deciding.decide(job(), 101.0).cluster == "a"
    assert deciding.decide(job(restrict=("b",)), 101.0).status == "held"
    world.look_around(101.0 + 3 * world.alive_after)
    assert deciding.decide(job(restrict=("b",)), 500.0).status == "no-match"


def test_what_is_older_than_the_data_has_time_until_a_cluster_comes_back() -> None:
    """A scheduler that was started since does not know that there were any."""
    world = world_of()
    world.apply(Changes(9, epoch=Epoch(9, 100.0)))
    assert awaiting_clusters(world, 101.0) == world.alive_after - 1.0
    assert awaiting_clusters(world, 0.0) == world.alive_after
    world.apply(Changes(10, clusters={"a": record("a")}, epoch=Epoch(9, 100.0)))
    assert awaiting_clusters(world, 101.0) == 0.0


def test_a_store_that_comes_back_whole_delays_nothing() -> None:
    world = world_of(record("a", nodes=1))
    world.apply(Changes(9, clusters={"a": record("a", nodes=1)}, reset=True))
    assert decider(world).decide(job(), 0.0).status == "no-match"


def test_a_silent_cluster_is_a_last_resort() -> None:
    world = world_of(record("a"), record("b"))
    world.apply(Changes(2, states={"a": ClusterState(heartbeat_at=100.0), "b": ClusterState(heartbeat_at=100.0)}))
    world.apply(Changes(3, states={"b": ClusterState(heartbeat_at=195.0)}))
    world.look_around(200.0)
    alone = Decider(world)
    assert {alone.decide(job(), 200.0, random.Random(seed)).cluster for seed in range(20)} == {"b"}
    world.look_around(300.0)
    assert decider(world).decide(job(), 300.0).status == "assigned"


def test_a_summary_that_cannot_be_read_is_a_problem_of_that_cluster_alone() -> None:
    broken = ClusterRecord(name="x", registration="r", identity="i", summary=b"\x00nonsense", digest="d")
    world = world_of(record("a"), broken)
    assert set(world.clusters) == {"a"}
    assert "x" in world.problems


def test_a_refusal_waits_longer_each_time_and_has_an_end() -> None:
    world = world_of(record("a"))
    deciding = decider(world, retry_after=5.0, max_attempts=6)
    waits = []
    for attempt in range(2, 9):
        decision = deciding.decide(job(attempt=attempt, tried={"a": Reason(code="error")}), 0.0)
        waits.append(decision.retry_in if decision.status == "held" else decision.status)
    assert waits == [5.0, 10.0, 20.0, 40.0, 80.0, "unsatisfiable", "unsatisfiable"]


def test_hold_waits_for_a_cluster_and_no_longer() -> None:
    deciding = decider(world_of())
    assert deciding.decide(job(hold_until=100.0), 98.0).retry_in == 2.0
    assert deciding.decide(job(hold_until=100.0), 100.0).status == "no-match"


def test_deciding_deducts_at_once() -> None:
    world = world_of(record("a"), record("b"))
    deciding = decider(world)
    placed = [deciding.decide(job(), 0.0).cluster for _ in range(4)]
    assert sorted(str(p) for p in placed) == ["a", "a", "b", "b"]


def test_older_changes_take_nothing_back() -> None:
    """Replies may be read in another order than they were written in: others ask while a batch is being written."""
    world = world_of(record("a"))
    newer = record("a", drained="repair")
    revoked = Revocation(kind="sub", value="eve", before=1.0, until=9e9)
    world.apply(Changes(5, clusters={"a": newer}, revocations=[revoked]))
    world.apply(Changes(4, clusters={"a": None}, revocations=[], reserved={"a": Demand(4, 0, 0)}))
    assert world.version == 5
    assert world.clusters["a"].record is newer
    assert world.revocations == [revoked]
    assert world.load("a").free.nodes == 4
    world.apply(Changes(6, clusters={"b": record("b")}, reset=True))
    assert list(world.clusters) == ["b"]


@pytest.mark.parametrize(
    ("said", "free"),
    [(True, 4), ("3", 4), (math.nan, 4), (math.inf, 1 << 53), (-math.inf, -(1 << 53)), (10**400, 1 << 53), (2.9, 2)],
)
def test_numbers_that_make_no_sense_stop_nobody(said: Any, free: int) -> None:
    world = world_of(record("a"))
    world.apply(Changes(2, states={"a": ClusterState.model_construct(values={"nodes_free": said})}))
    assert world.load("a").free.nodes == free
    assert decider(world).decide(job(), 0.0).cluster == "a"


def test_nothing_stays_deducted_for_what_was_never_written() -> None:
    """One job of a batch is assigned, for the other the store is asked once more, and is away."""
    world = world_of(record("a"))

    class Away:
        def changes(self, _since: int) -> Changes:
            raise StoreUnavailable("away")

    dispatcher = Dispatcher(None, SimpleNamespace(clusters=Away()), world, Decider(world), None, None)  # type: ignore[arg-type]
    unfit = Job("k", "u", read_cached(simple(["true"], nodes=99)), frozenset({"*"}), 0.0)
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            dispatcher.begin([PendingJob(Delivery("q", b""), j.id, j) for j in (job(), unfit)])
    assert world.load("a").free == Demand(4, 32, 0)


def test_deductions_last_until_they_are_settled() -> None:
    world = world_of(record("a"))
    world.reserve("a", Demand(1, 8, 0))
    world.reserve("a", Demand(2, 1, 0))
    world.apply(Changes(2, reserved={"a": Demand(1, 0, 0)}))
    assert world.load("a").free == Demand(0, 23, 0)
    world.settle("a", Demand(1, 8, 0))
    assert world.load("a").free == Demand(1, 31, 0)
    world.apply(Changes(3, clusters={"a": None}))
    world.settle("a", Demand(2, 1, 0))
    world.apply(Changes(4, clusters={"a": record("a")}))
    assert world.load("a").free == Demand(4, 32, 0)


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_a_state_that_is_no_number_is_refused(number: float) -> None:
    request = {"op": "state", "token": "t", "report": {"cluster": "a", "values": {"nodes_free": number}}}
    with pytest.raises(InvalidInput, match="nodes_free"):
        parse_request(request)


def test_clusters_are_waited_for_until_they_have_reported_for_the_epoch_of_the_store() -> None:
    """S51: those that are silent as long as it takes to be unreachable; those of an earlier release, three times so."""
    world = ClusterCache(alive_after=10.0)
    records = {name: record(name) for name in ("blue", "green", "by-hand")}

    def state(reported: int, beat: float) -> ClusterState:
        return ClusterState(values={REPORTED_EPOCH: reported}, heartbeat_at=beat)

    world.apply(Changes(1, clusters=records, epoch=Epoch(7, 100.0)))
    assert world.recalling(100.0) == 0.0, "data that was created lost nothing"
    states = {"blue": state(7, 99.0), "green": state(7, 99.0), "by-hand": state(0, 0.0)}
    world.apply(Changes(2, clusters=records, states=states, reset=True, epoch=Epoch(8, 100.0, lost=True)))
    assert (world.recalling(100.0), world.remembering(100.0)) == (10.0, 10.0)
    world.apply(Changes(3, states={"green": state(8, 104.0)}, epoch=Epoch(8, 100.0, lost=True)))
    assert world.recalling(104.0) == 6.0, "blue is silent"
    world.apply(Changes(4, states={"blue": state(7, 105.0)}, epoch=Epoch(8, 100.0, lost=True)))
    assert world.recalling(105.0) == 10.0, "blue is there, and has not reported"
    assert world.recalling(129.0) == 0.0
    world.apply(Changes(5, states={"blue": state(7, 129.0)}, epoch=Epoch(8, 100.0, lost=True)))
    assert world.recalling(129.0) == 1.0
    assert world.recalling(131.0) == 0.0, "not for longer than that"
    assert unheard(world) == ["blue"], "what it has is not known for all that; nothing is expected of a cluster by hand"
    barred = records["blue"].model_copy(update={"barred_at": 130.0})
    world.apply(Changes(6, clusters={"blue": barred}, epoch=Epoch(8, 100.0, lost=True)))
    assert unheard(world) == [], "a disabled cluster is not waited for"
    world.apply(Changes(7, clusters=records, states={"blue": state(8, 105.0)}, epoch=Epoch(8, 100.0, lost=True)))
    assert (world.recalling(105.0), unheard(world)) == (0.0, [])
