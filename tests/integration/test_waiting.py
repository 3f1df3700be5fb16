"""Jobs that wait for room: bound late, released by events, in memory and on RabbitMQ with Redis."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrig import TERMINAL, Agents, ended, shell
from rainbow import codec, topology
from rainbow.brokers.base import Delivery, Message
from rainbow.models.job import JobEvent
from rainbow_workers.scheduling.waiting import WaitingPolicy
from rainbow_workers.service import ServiceOptions
from rig import Rig, eventually, gathered, resources

ONE = resources(nodes=1, cores=4)
OPTIONS = ServiceOptions(retry_after=0.5, waiting=WaitingPolicy(patience=1.0))


@pytest.fixture(params=["memory", "servers"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    if request.param == "memory":
        name = uuid.uuid4().hex
        made = Rig(f"memory://{name}", f"memory://{name}", options=OPTIONS)
    else:
        made = Rig(
            request.getfixturevalue("amqp_url"),
            request.getfixturevalue("redis_url"),
            prefix=request.getfixturevalue("redis_prefix"),
            options=OPTIONS,
        )
    with made:
        yield made


@pytest.fixture
def agents(rig: Rig, tmp_path: Path) -> Iterator[Agents]:
    made = Agents(rig, tmp_path)
    yield made
    made.close()


def report(rig: Rig, cluster: str, free: int, pending: int = 0) -> None:
    rig.report(cluster, nodes_free=0, cores_free=free, gpus_free=0, jobs_pending=pending)


def full(rig: Rig, *clusters: str) -> None:
    """Clusters whose agents say that they have enough to do."""
    for name in clusters:
        rig.register(name, resources(nodes=1, cores=4, host=name))
        report(rig, name, 0, pending=1)
    eventually(lambda: all(rig.service.world.clusters[n].state.heartbeat_at for n in clusters))


def waiting(rig: Rig, **fields: object) -> tuple[str, str]:
    """Submit a job that has to wait. Gives its correlation id and its id."""
    correlation = rig.send(jobspec=shell("true"), **fields)
    answer = rig.answer(correlation)
    assert answer["status"] == "held", answer
    record = rig.until(answer["id"], "held")
    assert record["history"][-1]["code"] == "waiting"
    return correlation, answer["id"]


def test_a_job_without_room_waits_and_goes_where_room_comes_up(rig: Rig) -> None:
    full(rig, "blue", "red")
    correlation, job = waiting(rig)
    record = rig.job(job)
    assert record is not None
    assert "each cluster that can run it is busy (2)" in record["detail"]
    report(rig, "red", 1)
    began = time.monotonic()
    assert rig.answer(correlation)["cluster"] == "red"
    assert time.monotonic() - began < 2.0, "released by the report, not by a timer"
    [delivery] = rig.jobs_of("red").take(1, 5)
    assert rig.open(delivery)["id"] == job


def assigned(rig: Rig) -> None:
    """Submit a job for which there is room, whether the scheduler knows that yet or not."""
    correlation = rig.send(jobspec=shell("true"))
    while (answer := rig.answer(correlation))["status"] == "held":
        pass
    assert answer["status"] == "assigned"


@pytest.mark.parametrize("event", ["new", "resumed", "ended", "grouped"])
def test_every_event_that_makes_room_releases_a_job(rig: Rig, event: str) -> None:
    full(rig, "blue")
    restrict = {}
    if event == "resumed":
        rig.register("red", resources(nodes=1, cores=4, host="red"))
        report(rig, "red", 4)
        rig.rpc.call({"op": "drain", "cluster": "red", "reason": "maintenance"})
        eventually(lambda: "red" in rig.service.world.drained)
    elif event == "ended":
        report(rig, "blue", 1)
        assigned(rig)
        assigned(rig)  # one is ahead
    elif event == "grouped":
        rig.register("red", resources(nodes=1, cores=4, host="red"))
        restrict = {"clusters": ["@mine"], "hold": 60}
    correlation, _ = waiting(rig, **restrict)
    if event == "new":
        rig.register("red", resources(nodes=1, cores=4, host="red"))
        report(rig, "red", 4)
    elif event == "resumed":
        rig.rpc.call({"op": "resume", "cluster": "red"})
    elif event == "ended":
        consumer = rig.jobs_of("blue")
        for delivery in (consumer.take(1, 5)[0], consumer.take(1, 5)[0]):
            rig.event("blue", rig.open(delivery)["id"], 1, "completed", returncode=0)
    else:
        rig.rpc.call({"op": "group-set", "group": "@mine", "clusters": ["red"]})
    assert rig.answer(correlation)["cluster"] == ("blue" if event == "ended" else "red")


def test_two_copies_of_a_waiting_job_are_one(rig: Rig) -> None:
    """Whoever did not hear that a job was confirmed sends it again: it runs once, and no copy is left behind."""
    full(rig, "blue")
    _, job = waiting(rig)
    assert rig.answer(rig.send(jobspec=shell("true"), id=job))["id"] == job
    report(rig, "blue", 1)
    [delivery] = rig.jobs_of("blue").take(2, 5)
    assert rig.open(delivery)["id"] == job
    rig.event("blue", job, 1, "completed", returncode=0)
    rig.until(job, "completed")
    rig.service.stop()
    assert [q for q in topology.waiting_queues() if rig.broker.stats(q).messages] == []


def test_an_assignment_that_was_never_dispatched_is_made_good_after_a_wait(rig: Rig) -> None:
    """The scheduler died between ledger and broker; when the job came again there was no room, so it waited."""
    full(rig, "blue", "red")
    rig.service.stop()
    job = str(uuid.uuid4())
    rig.send(jobspec=shell("true"), id=job)
    consumer = rig.broker.consume(topology.SCHEDULER_QUEUE, prefetch=1)
    taken = gathered(lambda: consumer.take(1, 0.2))
    consumer.requeue(taken)
    consumer.cancel()
    lost = JobEvent(id=job, attempt=1, cluster="red", state="assigned", at=time.time(), user="alice")
    rig.store.jobs.record([lost])
    rig.restart()
    lane = f"{topology.WAITING}.{topology.waiting_lane('alice')}"
    eventually(lambda: rig.broker.stats(topology.SCHEDULER_QUEUE).messages == 0 and rig.broker.stats(lane).consumers)
    time.sleep(0.5)
    report(rig, "blue", 1)
    [delivery] = rig.jobs_of("red").take(1, 60)
    dispatch = rig.open(delivery)
    assert (dispatch["id"], dispatch["attempt"], dispatch["repeated"]) == (job, 1, True)


def test_a_waiting_job_is_cancelled_at_once(rig: Rig) -> None:
    full(rig, "blue")
    _, job = waiting(rig)
    rig.rpc.call({"op": "cancel", "ids": [job], "reason": "changed my mind"})
    record = rig.until(job, "cancelled", 5)
    assert (record["code"], record["detail"]) == ("cancel", "changed my mind")
    report(rig, "blue", 4)
    assert rig.jobs_of("blue").take(1, 0.5) == []
    assert rig.submit(jobspec=shell("true"))["status"] == "assigned"


def waits_in_the_broker(rig: Rig) -> bool:
    """Whether a message of a job that waits is left. Stops the workers."""
    rig.service.stop()
    return any(rig.broker.stats(q).messages for q in topology.waiting_queues())


@pytest.mark.parametrize("restarted", [False, True])
def test_a_cancelled_job_leaves_the_queue(rig: Rig, restarted: bool) -> None:
    """Else a store that loses all it knew would have it start."""
    full(rig, "blue")
    _, job = waiting(rig)
    if restarted:
        rig.service.stop()
        rig.store.jobs.cancel([job])
        ended = JobEvent(id=job, attempt=0, state="cancelled", at=time.time(), user="alice", code="cancel")
        rig.store.jobs.record([ended])
        assert waits_in_the_broker(rig)
        rig.restart()
        eventually(lambda: rig.service.world.clusters.get("blue"))
    else:
        rig.rpc.call({"op": "cancel", "ids": [job]})
        rig.until(job, "cancelled", 5)
    _, other = waiting(rig)
    for _ in range(20):
        time.sleep(1.5)
        rig.service.stop()
        left = sum(rig.broker.stats(q).messages for q in topology.waiting_queues())
        rig.restart()
        if left == 1:
            break
    eventually(lambda: rig.service.world.clusters.get("blue"))
    report(rig, "blue", 1)
    [delivery] = rig.jobs_of("blue").take(2, 10)
    assert (left, rig.open(delivery)["id"]) == (1, other)


def test_a_waiting_job_that_expires_ends_on_time(rig: Rig) -> None:
    full(rig, "blue")
    _, job = waiting(rig, expires=time.time() + 1.0)
    assert rig.until(job, "expired", 5)["code"] == "expired"


def test_revoking_ends_what_waits(rig: Rig) -> None:
    full(rig, "blue")
    _, job = waiting(rig)
    rig.rpc.call({"op": "revoke", "sub": "alice"})
    rig.until(job, "denied", 5)


def test_jobs_of_others_do_not_wait_behind_what_does_not_fit(rig: Rig) -> None:
    """Four cores are asked for, and there is one: what asks for one goes by."""
    rig.register("blue", ONE)
    report(rig, "blue", 2)
    eventually(lambda: rig.service.world.clusters["blue"].state.heartbeat_at)
    correlation = rig.send(jobspec=shell("true", cores=4))
    assert rig.answer(correlation)["status"] == "held"
    small = rig.send(jobspec=shell("true"))
    answers = [rig.answer(small)]
    while answers[-1]["status"] == "held":  # others wait for the same cluster: it went by the waiting room
        answers.append(rig.answer(small))
    assert answers[-1]["cluster"] == "blue"


def test_what_waits_survives_the_scheduler(rig: Rig) -> None:
    full(rig, "blue")
    jobs = [waiting(rig)[1] for _ in range(5)]
    rig.service.stop()
    rig.restart()
    eventually(lambda: rig.service.world.clusters.get("blue"))
    report(rig, "blue", 4)
    consumer = rig.jobs_of("blue")
    got: list[Delivery] = []
    while len(got) < 5:
        more = consumer.take(5, 10)
        assert more, f"{len(got)} of 5 came"
        got += more
    assert sorted(rig.open(d)["id"] for d in got) == sorted(jobs)


def test_unequal_clusters_are_all_busy_until_nothing_waits(rig: Rig, agents: Agents) -> None:
    """Late binding: a fast cluster gets as much more as it is faster."""
    for name, seconds in (("fast", 0.2), ("slow", 2.0)):
        agents.start(name, graph=resources(nodes=1, cores=8, host=name), options={"run_s": seconds})
    ids = [str(uuid.uuid4()) for _ in range(200)]
    bodies = [codec.encode_json({"token": rig.token, "id": i, "jobspec": shell("true")}) for i in ids]
    rig.submitter.publish([Message(topology.SUBMIT, "submit", b) for b in bodies]).check(20)
    records = ended(rig, ids, 60).values()
    assert {r["state"] for r in records} == {"completed"}
    last = max(r["times"]["running"] for r in records) - min(r["times"]["submitted"] for r in records)
    # One pool: 8 / 0.2 + 8 / 2 = 44 jobs a second. Each to its half would take 25 s.
    assert last < 3 * 200 / 44, f"{last:.1f} s"
    assert sum(r["cluster"] == "fast" for r in records) > 140
    assert all(r["attempt"] == 1 for r in records)


def test_a_bound_on_what_waits_at_a_cluster_is_kept_and_refuses_nobody(rig: Rig, agents: Agents) -> None:
    agents.start("blue", graph=ONE, options={"run_s": 0.2}, max_queued=2)
    ids = [rig.submit(jobspec=shell("true"))["id"] for _ in range(30)]
    records = ended(rig, ids, 60)
    assert all(r["attempt"] == 1 for r in records.values())


def test_a_user_who_comes_later_is_not_behind_all_of_another(rig: Rig, agents: Agents) -> None:
    agents.start("blue", graph=ONE, options={"run_s": 0.1})
    bob = rig.issue("bob")

    def publish(token: str, count: int) -> list[str]:
        ids = [str(uuid.uuid4()) for _ in range(count)]
        bodies = [codec.encode_json({"token": token, "id": i, "jobspec": shell("true")}) for i in ids]
        rig.submitter.publish([Message(topology.SUBMIT, "submit", b) for b in bodies]).check(20)
        return ids

    first = publish(rig.token, 150)
    eventually(lambda: sum((rig.job(i) or {}).get("state") == "completed" for i in first[:10]) > 5, 30)
    second = publish(bob, 10)
    records = ended(rig, [*first, *second], 60)
    after = sorted(records, key=lambda job: records[job]["times"]["running"])
    last = max(after.index(job) for job in second)
    came = min(records[job]["times"]["submitted"] for job in second)
    left = sum(records[job]["times"]["running"] > came for job in first)
    assert left > 60, "the first user's jobs were not there any more: the test measures nothing"
    assert len(after) - last > 40, f"the last of 10 jobs was number {last} of {len(after)}"


def test_when_a_waiting_job_starts_is_forecast(rig: Rig, agents: Agents) -> None:
    """From what runs, for how long jobs ran, and how many of its user are before it."""
    agents.start("blue", graph=ONE, options={"run_s": 0.4})
    ids = [str(uuid.uuid4()) for _ in range(30)]
    for job in ids:
        rig.send(id=job, jobspec=shell("true"))
    rig.until(ids[-1], "held")

    def forecast() -> tuple[float, float] | None:
        waits = rig.rpc.call({"op": "queue", "id": ids[-1]})["job"]
        return waits and waits["starts_in_s"] and (time.time(), waits["starts_in_s"])

    asked, forecast_s = eventually(forecast)
    started = ended(rig, ids, 60)[ids[-1]]["times"]["running"]
    assert 0.25 < forecast_s / (started - asked) < 4, (forecast_s, started - asked)


def test_a_user_is_not_behind_all_of_another_in_the_same_queue(request: pytest.FixtureRequest) -> None:
    """The window of the queue is full of the first one's jobs, and many more are behind."""
    urls = (request.getfixturevalue("amqp_url"), request.getfixturevalue("redis_url"))
    options = ServiceOptions(waiting=WaitingPolicy(window=20))
    name = next(f"bob{n}" for n in range(99) if topology.waiting_lane(f"bob{n}") == topology.waiting_lane("alice"))
    with Rig(*urls, prefix=request.getfixturevalue("redis_prefix"), options=options) as rig:
        full(rig, "blue")
        for _ in range(100):
            rig.send(jobspec=shell("true"))
        eventually(lambda: sum(rig.broker.stats(q).messages for q in topology.waiting_queues()) >= 80)
        time.sleep(1.5)
        _, job = waiting(rig, token=rig.issue(name))
        taken = rig.jobs_of("blue")
        for _ in range(3):
            report(rig, "blue", 4)
        found = [rig.open(delivery)["id"] for delivery in taken.take(12, 5)]
        assert job in found


def test_what_fits_has_its_turn_behind_a_full_window(request: pytest.FixtureRequest) -> None:
    """Nothing in the window fits the core that is free, and what does is further back in the queue."""
    urls = (request.getfixturevalue("amqp_url"), request.getfixturevalue("redis_url"))
    options = ServiceOptions(waiting=WaitingPolicy(window=5))
    with Rig(*urls, prefix=request.getfixturevalue("redis_prefix"), options=options) as rig:
        full(rig, "blue")
        for _ in range(10):
            rig.send(jobspec=shell("true", cores=4))
        eventually(lambda: sum(rig.broker.stats(q).messages for q in topology.waiting_queues()) >= 5)
        _, small = waiting(rig)
        report(rig, "blue", 1)
        [delivery] = rig.jobs_of("blue").take(1, 30)
        assert rig.open(delivery)["id"] == small


def test_a_large_job_is_not_starved(rig: Rig, agents: Agents) -> None:
    agents.start("blue", graph=ONE, options={"run_s": 0.3})
    stop = time.monotonic() + 60
    small = [rig.submit(jobspec=shell("true"))["id"] for _ in range(20)]
    large = rig.submit(jobspec=shell("true", cores=4))["id"]
    while time.monotonic() < stop:
        record = rig.job(large)
        if record is not None and record["state"] in TERMINAL:
            break
        small.append(rig.submit(jobspec=shell("true"))["id"])
        small.append(rig.submit(jobspec=shell("true"))["id"])
        time.sleep(0.05)
    record = rig.job(large)
    assert record is not None
    assert record["state"] == "completed"
    began = [r["times"].get("running", 0.0) for i in small if (r := rig.job(i)) is not None]
    assert max(began) > 0
