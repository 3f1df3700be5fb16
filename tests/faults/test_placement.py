"""Who gets what when numbers are old, clusters refuse, and large jobs stand beside small ones."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentrig import Agents
from rainbow import codec, topology
from rainbow.brokers.base import Delivery, Message
from rainbow_workers.service import Service, ServiceOptions
from rig import Rig, eventually, resources

OPTIONS = ServiceOptions(retry_after=0.3, reserve=600, batch=1)


@pytest.fixture
def rig(amqp_url: str, redis_url: str, redis_prefix: str) -> Iterator[Rig]:
    with Rig(amqp_url, redis_url, prefix=redis_prefix, options=OPTIONS) as rig:
        yield rig


@pytest.mark.parametrize("batch", [1, 20])
def test_two_schedulers_share_out_what_was_reported_once(rig: Rig, batch: int) -> None:
    """S30: reports come rarely, jobs in bursts: no scheduler gives away what another one gave away before, also when
    both decide at the same moment."""
    options = ServiceOptions(workers=("scheduler",), batch=batch, prefetch=batch)
    other = Service(rig.connect("other"), rig.store, rig.ring, options)
    for name, nodes in (("big", 100), ("small", 50)):
        rig.register(name, graph=resources(nodes=nodes))
        rig.report(name, nodes_free=nodes, cores_free=8 * nodes)
    other.start()
    try:
        answers = [rig.answer(c, 60) for c in [rig.send(command=["true"], nodes=1) for _ in range(150)]]
        assert Counter(a["cluster"] for a in answers) == {"big": 100, "small": 50}
        assert min(w.handled for s in (rig.service, other) for w in s.workers if w.task_name == "scheduler") > 0
        [listed] = rig.rpc.call({"op": "clusters", "name": "big"})["clusters"]
        assert listed["reserved"]["nodes"] == 100
    finally:
        other.stop()


def test_whoever_is_overtaken_decides_anew(rig: Rig) -> None:
    """S30: two schedulers have decided on the same numbers before either of them wrote."""
    for name in ("blue", "red"):
        rig.register(name, graph=resources(nodes=10))
    one, two = (
        Service(rig.connect(name), rig.store, rig.ring, ServiceOptions(workers=("scheduler",))) for name in ("a", "b")
    )
    tasks: list[Any] = [service.workers[0]._task for service in (one, two)]
    deliveries = {
        id(task): [
            Delivery("submit", codec.encode_json({"command": ["true"], "nodes": 1, "token": rig.token}))
            for _ in range(10)
        ]
        for task in tasks
    }
    consumer = rig.broker.consume(topology.jobs_queue("blue"), prefetch=1)
    batches = []
    for task in tasks:
        task.ready()
        batches.append(task._dispatcher.begin([task._intake.read(d) for d in deliveries[id(task)]]))
    for task, batch in zip(tasks, batches, strict=True):
        task._dispatcher.finish(batch, consumer)
    reserved = rig.store.clusters.changes(0).reserved
    assert {name: demand.nodes for name, demand in reserved.items()} == {"blue": 10, "red": 10}


def test_a_scheduler_that_dies_reserves_nothing_for_long(amqp_url: str, redis_url: str, redis_prefix: str) -> None:
    """S30: what was reserved and never reported ends by itself, on the store's clock."""
    with Rig(amqp_url, redis_url, prefix=redis_prefix, options=ServiceOptions(reserve=1.0)) as rig:
        rig.register("big", graph=resources(nodes=2))
        rig.submit(command=["true"], nodes=2)

        def reserved() -> int:
            # Also without a job coming in: whoever writes next sees to it.
            rig.report("big", nodes_free=2)
            [listed] = rig.rpc.call({"op": "clusters", "name": "big"})["clusters"]
            return int(listed["reserved"]["nodes"])

        assert reserved() == 2
        eventually(lambda: reserved() == 0, 20, every=0.2)


def test_refused_jobs_do_not_go_round_in_circles(rig: Rig) -> None:
    """S20: a job that every cluster refuses for good is handed out once to each; one that they are too busy for, ever
    more rarely. Others are not held up."""
    clusters = ("blue", "green", "red")
    for name in clusters:
        rig.register(name)
    consumers = {name: rig.jobs_of(name) for name in clusters}
    handed: dict[str, list[tuple[float, str]]] = {}

    def refuse(code: str, until: float) -> None:
        while time.monotonic() < until:
            for name, consumer in consumers.items():
                for delivery in consumer.take(10, 0.05):
                    dispatch = rig.open(delivery)
                    handed.setdefault(dispatch["id"], []).append((time.monotonic(), name))
                    rig.event(name, dispatch["id"], dispatch["attempt"], "rejected", code=code, detail="no")
                    consumer.reject([delivery])

    job = rig.submit(command=["true"])["id"]
    refuse("policy", time.monotonic() + 4)
    record = rig.until(job, "unsatisfiable")
    assert sorted(name for _, name in handed[job]) == sorted(clusters)
    assert {r["code"] for r in record["answer"]["reasons"].values()} == {"policy"}
    assert set(record["answer"]["reasons"]) == set(clusters)

    busy = rig.submit(command=["true"])["id"]
    refuse("busy", time.monotonic() + 8)
    rounds = len(handed[busy]) / len(clusters)
    assert rounds <= 5  # with pauses of 0.3, 0.6, 1.2 ... of at least a hold queue's second each
    assert rig.submit(command=["true"], satisfy_only=True)["status"] == "satisfied"


def test_a_job_sent_on_keeps_its_priority(rig: Rig) -> None:
    """S28: it does not come in behind those that it was ahead of."""
    rig.register("blue")
    rig.register("green")
    job = rig.submit(command=["true"], priority=27)
    first, second = (job["cluster"], "green" if job["cluster"] == "blue" else "blue")
    consumer = rig.jobs_of(first)
    [delivery] = eventually(lambda: consumer.take(1, 0.5))
    assert (rig.open(delivery)["priority"], delivery.priority) == (27, 27)
    rig.event(first, job["id"], 1, "rejected", code="no-fit", detail="no")
    consumer.reject([delivery])
    onward = rig.jobs_of(second)
    [delivery] = eventually(lambda: onward.take(1, 0.5))
    dispatch = rig.open(delivery)
    assert (dispatch["attempt"], dispatch["priority"], delivery.priority) == (2, 27, 27)


def test_small_jobs_flow_past_one_that_must_wait(rig: Rig) -> None:
    """S29: a job for the one cluster that is large enough, and busy, waits. Those behind it go where there is room."""
    rig.register("large", graph=resources(nodes=100))
    rig.register("a", graph=resources(nodes=4))
    rig.register("b", graph=resources(nodes=4))
    rig.report("large", nodes_free=0, cores_free=0, jobs_pending=3)
    for name in ("a", "b"):
        rig.report(name, nodes_free=4, cores_free=32)
    big = rig.submit(command=["true"], nodes=100)
    assert big["status"] == "held"
    went = Counter(rig.submit(command=["true"], nodes=1)["cluster"] for _ in range(8))
    assert went == Counter(a=4, b=4)
    rig.report("large", nodes_free=100, cores_free=800, jobs_pending=0)
    assert rig.until(big["id"], "assigned")["cluster"] == "large"


def test_a_large_job_is_not_overtaken_for_ever(rig: Rig, tmp_path: Path) -> None:
    """S29: small ones come all the time and keep the only cluster full; the large one is bound before there is room."""
    agents = Agents(rig, tmp_path)
    enough = threading.Event()
    sent: list[str] = []

    def keep_it_full() -> None:
        while not enough.wait(0.1):  # twice what the cluster gets done
            sent.append(rig.submit(command=["true"], nodes=1)["id"])

    feeder = threading.Thread(target=keep_it_full)
    try:
        limit = [{"name": "max-queued", "options": {"limit": 3, "patience": 6.0}}]
        small = resources(nodes=2, cores=1)
        agents.start("blue", graph=small, admission=limit, options={"run_s": 0.5}, report_every=0.5)
        feeder.start()
        eventually(lambda: len(sent) > 20, 60)
        job = str(uuid.uuid4())
        body = codec.encode_json({"id": job, "token": rig.token, "command": ["true"], "nodes": 2})
        rig.broker.publish([Message(topology.SUBMIT, "submit", body)]).check(20)
        record = rig.until(job, "completed", 90)
        assert "waiting" in {e.get("code") for e in record["history"]}
    finally:
        enough.set()
        if feeder.ident is not None:
            feeder.join(30)
        agents.close()
    small_ones = [e for r in rig.rpc.call({"op": "status", "ids": sent[:200]})["jobs"] if r for e in r["history"]]
    assert any(e.get("code") == "waiting" for e in small_ones), "the cluster was never full"


def test_all_that_is_told_twice_and_out_of_order_changes_no_end(rig: Rig) -> None:
    """S43: every event of a job again, shuffled, also of attempts before."""
    rig.register("blue")
    job = rig.submit(command=["true"])["id"]
    told = [(1, "accepted", {}), (1, "running", {}), (1, "completed", {"returncode": 0})]
    for attempt, state, more in told:
        rig.event("blue", job, attempt, state, **more)
    before = rig.until(job, "completed")
    again = [*told, *told, (1, "failed", {"returncode": 1}), (0, "cancelled", {}), (1, "lost", {}), (2, "running", {})]
    random.Random(1).shuffle(again)
    for attempt, state, more in again:
        rig.event("blue", job, attempt, state, **more)
    eventually(lambda: rig.broker.stats(topology.RECORDER_QUEUE).messages == 0)
    time.sleep(0.5)
    after = rig.job(job)
    assert after is not None
    assert {k: v for k, v in after.items() if k != "history"} == {k: v for k, v in before.items() if k != "history"}
    given = [entry for entry in again if entry[0] == 1]  # the others are about attempts that no scheduler started
    assert sum(1 for entry in after["history"] if entry.get("stale")) >= len(given)
