"""Clusters that are lost, or that fail everything: the others and the jobs come to no harm."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterator

import pytest

from rainbow import codec, topology
from rainbow.brokers.base import Message
from rainbow.jobspec.request import Demand
from rainbow.models.job import JobRecord
from rainbow_workers.clusters.cache import ClusterCache
from rainbow_workers.clusters.circuit_breaker import BreakerPolicy, CircuitBreaker, failed_fast
from rainbow_workers.scheduling.failover import AGAIN, RateLimiter
from rainbow_workers.service import ServiceOptions
from rainbow_workers.stores import StoreOptions, open_store
from rainbow_workers.stores.testing import cluster, event
from rig import Rig, eventually, resources

BREAKER = BreakerPolicy(threshold=0.8, fast=5.0, probe=0.5)
RATE = 6.0


@pytest.fixture(params=["memory", "servers"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    name = uuid.uuid4()
    urls, prefix = (f"memory://{name}", f"memory://{name}"), "rainbow:"
    if request.param == "servers":
        urls = request.getfixturevalue("amqp_url"), request.getfixturevalue("redis_url")
        prefix = request.getfixturevalue("redis_prefix")
    limits = topology.Limits(dispatch_timeout=4.0)
    options = ServiceOptions(breaker=BREAKER, failover_rate=RATE, limits=limits, retry_after=1.0, alive_after=2.0)
    with Rig(*urls, prefix=prefix, options=options) as rig:
        yield rig


# -- a cluster on which everything fails at once (S32) -------------------------------------------------------


def run(rig: Rig, jobs: int, broken: bool, **fields: object) -> Counter[str]:
    """Submit `jobs` one after the other and end each at once: on `black` they fail when `broken`."""
    went: Counter[str] = Counter()
    for _ in range(jobs):
        answer = rig.submit(command=["true"], **fields)
        cluster, job = answer["cluster"], answer["id"]
        went[cluster] += 1
        for state in ("accepted", "running"):
            rig.event(cluster, job, 1, state)
        fails = broken and cluster == "black"
        rig.event(cluster, job, 1, "failed" if fails else "completed", returncode=int(fails))
        rig.until(job, "failed" if fails else "completed")
    return went


def view(rig: Rig, name: str) -> dict[str, object]:
    found: list[dict[str, object]] = rig.rpc.call({"op": "clusters", "name": name})["clusters"]
    return found[0]


def test_a_cluster_that_fails_everything_is_throttled_probed_and_comes_back(rig: Rig) -> None:
    """S32: few jobs are burnt on it, however idle it looks."""
    # The broken one is by far the largest: it always looks the least loaded.
    rig.register("black", graph=resources(nodes=64))
    rig.register("good", graph=resources(nodes=4))
    rig.register("fine", graph=resources(nodes=4))
    burnt = 0
    while not view(rig, "black")["throttled"]:
        burnt += run(rig, 4, broken=True)["black"]
        assert burnt < 100
    assert view(rig, "good")["throttled"] is False
    begun = time.monotonic()
    went = run(rig, 40, broken=True)
    probes = (time.monotonic() - begun) / BREAKER.probe + 1
    assert went["black"] <= probes
    assert went["good"] + went["fine"] >= 40 - probes
    said = rig.submit(command=["true"], satisfy_only=True)["reasons"]["black"]
    assert said["code"] == "throttled"
    assert "failed at once" in said["detail"]

    # Well again: its probes complete, and it gets work like the others.
    def healed() -> bool:
        run(rig, 2, broken=False)
        return not view(rig, "black")["throttled"]

    eventually(healed, timeout=60)
    assert run(rig, 12, broken=False)["black"] >= 1


def test_what_only_the_throttled_one_can_run_goes_there(rig: Rig) -> None:
    """It may be the jobs of one user that are broken: others on this cluster are not made to wait for them."""
    rig.register("black", graph=resources(nodes=64))
    rig.register("good", graph=resources(nodes=4))
    run(rig, 30, broken=True, clusters=["black"])
    eventually(lambda: view(rig, "black")["throttled"])
    assert run(rig, 5, broken=False, nodes=32) == Counter(black=5)


def test_an_agent_does_not_say_how_its_jobs_fail(rig: Rig) -> None:
    rig.register("black")
    report = {"cluster": "black", "values": {"failing": 0.99, "nodes_free": 3}, "heartbeat": False}
    rig.rpc.call({"op": "state", "report": report, "token": rig.issue("agent-black", "agent", ("black",))})
    eventually(lambda: view(rig, "black")["state"] == {"nodes_free": 3})


@pytest.mark.parametrize(
    ("state", "times", "fast"),
    [
        ("failed", {"assigned": 1.0, "accepted": 100.0, "running": 200.0, "ended": 204.0}, True),
        ("failed", {"assigned": 1.0, "accepted": 100.0, "running": 200.0, "ended": 206.0}, False),
        ("failed", {"assigned": 1.0, "accepted": 3.0, "ended": 4.0}, True),
        ("lost", {"assigned": 1.0, "ended": 2.0}, True),
        ("completed", {"assigned": 1.0, "ended": 2.0}, False),
        ("cancelled", {"assigned": 1.0, "ended": 2.0}, None),
        ("running", {"assigned": 1.0, "running": 2.0}, None),
        ("failed", {}, False),
    ],
)
def test_what_counts_as_failing_at_once(state: str, times: dict[str, float], fast: bool | None) -> None:
    record = JobRecord.model_validate({"id": str(uuid.uuid4()), "state": state, "times": times, "cluster": "black"})
    assert failed_fast(record, 5.0) is fast


def test_only_ends_that_say_something_of_the_cluster_count() -> None:
    store = open_store(StoreOptions(f"memory://{uuid.uuid4()}"))
    store.clusters.put(cluster("black"), None)
    failing = CircuitBreaker(store, ClusterCache(), BreakerPolicy())

    def share(*states: str) -> float:
        events = [event(str(uuid.uuid4()), state, cluster="black") for state in states]
        failing.note(events, store.jobs.record(events))
        return float(store.clusters.changes(0).states["black"].values.get("failing", 0.0))

    assert share("running", "cancelled", "rejected", "unsatisfiable") == 0
    lost = event(str(uuid.uuid4()), "lost", cluster="black")
    both = [lost.model_copy(update={"state": "accepted"}), lost]
    failing.note(both, store.jobs.record(both))
    before = share()
    assert before > 0
    assert 0 < share("completed") < before


# -- the waiting jobs of a lost cluster (S37) ----------------------------------------------------------------


def test_waiting_jobs_of_a_lost_cluster_move_at_a_bounded_rate(rig: Rig) -> None:
    """S37: those that are left are not flooded, and each job moves once."""
    rig.register("lost", resources(cores=64))
    rig.report("lost")  # its agent was there once, and is not heard of again
    jobs = 60
    ids = {rig.submit(command=["true"])["id"] for _ in range(jobs)}
    rig.register("other")
    consumer = rig.jobs_of("other")
    arrived: list[tuple[float, str]] = []
    begun = time.monotonic()

    def moved() -> bool:
        for delivery in consumer.take(100, 0.05):
            dispatch = rig.open(delivery)
            assert dispatch["attempt"] == 2
            arrived.append((time.monotonic(), dispatch["id"]))
            consumer.ack([delivery])
            rig.event("other", dispatch["id"], 2, "accepted")
        return len(arrived) == jobs

    eventually(moved, timeout=90)
    assert {job for _, job in arrived} == ids
    first = arrived[0][0]
    assert first - begun > 0
    for number, (at, _) in enumerate(arrived):
        # As many as one pause is worth at once, and from then on no more than the rate.
        assert number <= RATE * AGAIN + 1 + RATE * (at - first + 1.0), f"job {number} after {at - first:.1f} s"
    assert rig.until(arrived[-1][1], "accepted")["attempt"] == 2


# -- what no agent had yet goes where there is room ------------------------------------------------------------------


@pytest.fixture(params=["memory", "kombu", "servers"])
def patient(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """Dispatches stay in their queues for an hour."""
    name = uuid.uuid4()
    urls, prefix = (f"memory://{name}", f"memory://{name}"), "rainbow:"
    if request.param == "kombu":
        urls = f"kombu+memory://{name}", f"memory://{name}"
    if request.param == "servers":
        urls = request.getfixturevalue("amqp_url"), request.getfixturevalue("redis_url")
        prefix = request.getfixturevalue("redis_prefix")
    limits = topology.Limits(dispatch_timeout=3600.0)
    with Rig(*urls, prefix=prefix, options=ServiceOptions(limits=limits, alive_after=2.0)) as rig:
        yield rig


def test_what_no_agent_had_goes_to_another_cluster_once_its_own_cannot_be_reached(patient: Rig) -> None:
    patient.register("lost")
    patient.report("lost")
    had, waits, only = (patient.submit(command=["true"], **more)["id"] for more in ({}, {}, {"clusters": ["lost"]}))
    agent = patient.jobs_of("lost", prefetch=1)
    [taken] = eventually(lambda: agent.take(1, 0.5))
    assert patient.open(taken)["id"] == had
    agent.cancel()  # as if its connection were lost: the job may have begun
    patient.register("other")

    def moved() -> bool:
        patient.report("other")
        return (patient.job(waits) or {}).get("attempt") == 2

    eventually(moved, every=0.3)
    record = patient.job(waits)
    assert record is not None
    assert (record["state"], record["cluster"]) == ("assigned", "other")
    for job in (had, only):
        record = patient.job(job)
        assert record is not None
        assert (record["attempt"], record["cluster"]) == (1, "lost")
    left = patient.jobs_of("lost")
    found: set[str] = set()

    def seen() -> bool:
        found.update(patient.open(delivery)["id"] for delivery in left.take(10, 0.2))
        return found == {had, only}

    eventually(seen)


def test_all_that_waits_is_taken_back_however_much_it_is(patient: Rig) -> None:
    """Also what is still on its way when the first of it has come: once handed back unseen, it would stay for good."""
    patient.register("gone", resources(nodes=8, cores=64))
    patient.report("gone")
    jobs = [str(uuid.uuid4()) for _ in range(300)]
    bodies = [codec.encode_json({"token": patient.token, "id": job, "command": ["true"]}) for job in jobs]
    patient.submitter.publish([Message(topology.SUBMIT, "submit", body) for body in bodies]).check(20)

    def with_all(cluster: str) -> bool:
        patient.report(cluster)
        return patient.broker.stats(topology.jobs_queue(cluster)).messages == len(jobs)

    eventually(lambda: with_all("gone"), every=0.3)
    patient.register("other", resources(nodes=8, cores=64))
    eventually(lambda: with_all("other"), every=0.3)
    assert patient.broker.stats(topology.jobs_queue("gone")).messages == 0


def test_turns() -> None:
    now = [100.0]
    turns = RateLimiter(2.0, clock=lambda: now[0])
    assert sum(turns.take() for _ in range(100)) == 2 * AGAIN + 1
    now[0] += 1.0
    assert sum(turns.take() for _ in range(100)) == 2
    now[0] += 1000.0
    assert sum(turns.take() for _ in range(100)) == 2 * AGAIN + 1


def test_demand_is_not_reserved_while_a_job_waits_for_its_turn(rig: Rig) -> None:
    rig.register("lost", resources(cores=64))
    rig.report("lost")
    for _ in range(45):
        rig.submit(command=["true"], nodes=1)
    rig.register("other")
    eventually(lambda: rig.broker.stats(topology.jobs_queue("other")).messages >= RATE * AGAIN, timeout=30)
    reserved = rig.service.world.clusters["other"].reserved
    waiting = rig.broker.stats(topology.jobs_queue("other")).messages
    assert isinstance(reserved, Demand)
    assert reserved.nodes <= waiting + RATE * AGAIN
