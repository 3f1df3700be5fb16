"""Several recorders: what was published before a barrier is recorded before it passes, whoever records it."""

from __future__ import annotations

import random
import signal
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from processes import Site
from rainbow import topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.brokers.base import Broker, Delivery, Message
from rainbow.client import Client
from rainbow.models.cluster import StateReport
from rainbow.models.job import TERMINAL, JobRecord
from rainbow.settings import Settings
from rainbow_workers.clusters.cache import REPORTED_EPOCH
from rainbow_workers.service import Service, ServiceOptions
from rig import Rig, eventually, gathered
from servers import Private, RabbitServer, wait_until

LIMITS = topology.Limits(dispatch_timeout=2.0)


@pytest.fixture
def rig(amqp_url: str) -> Iterator[Rig]:
    """Without a recorder: the test starts them."""
    options = ServiceOptions(workers=("scheduler", "registrar", "returns"), limits=LIMITS, retry_after=0.5)
    with Rig(amqp_url, f"memory://{uuid.uuid4()}", options=options) as rig:
        yield rig


def copy(delivery: Delivery, cluster: str) -> Message:
    headers = {k: v for k, v in delivery.headers.items() if not k.startswith("x-")}
    return Message(
        topology.JOBS, cluster, delivery.body, delivery.content_type or "", delivery.message_id, headers=headers
    )


def test_a_recorder_that_holds_events_holds_up_what_came_back(rig: Rig) -> None:
    """One recorder is stuck with `accepted`. A copy of the dispatch comes back; another recorder is there."""
    rig.register("blue")
    rig.register("green")
    job = rig.submit(command=["true"], clusters=["blue", "green"])
    cluster = job["cluster"]
    consumer = rig.jobs_of(cluster, prefetch=1)
    [taken] = eventually(lambda: consumer.take(1, 0.5))
    stuck = rig.connect("stuck")
    holder = stuck.consume(topology.RECORDER_QUEUE, prefetch=100)
    eventually(lambda: rig.broker.stats(topology.RECORDER_QUEUE).consumers)
    rig.event(cluster, job["id"], 1, "accepted")
    gathered(lambda: holder.take(100, 0.5))
    second = Service(rig.worker_broker, rig.store, rig.ring, ServiceOptions(workers=("recorder",), limits=LIMITS))
    second.start()
    try:
        rig.broker.publish([copy(taken, cluster)]).check(10)
        consumer.ack([taken])
        consumer.cancel()
        eventually(lambda: rig.broker.stats(topology.jobs_queue(cluster)).messages == 0, 30)
        time.sleep(4)  # it came back, and its barrier is behind what the stuck one holds
        record = rig.job(job["id"])
        assert record is not None
        assert (record["state"], record["attempt"]) == ("assigned", 1)
        stuck.close()
        assert rig.until(job["id"], "accepted", 30)["cluster"] == cluster
        eventually(lambda: rig.broker.stats(topology.REJECTED_QUEUE).messages == 0)
        time.sleep(1)
        record = rig.job(job["id"])
        assert record is not None
        assert (record["state"], record["attempt"]) == ("accepted", 1)
    finally:
        second.stop()
    assert second.failed() is None


def test_a_cluster_has_reported_once_all_that_came_before_its_word_is_recorded(amqp_url: str) -> None:
    """After a takeover the statement may come before events that the recorder before held."""
    options = ServiceOptions(workers=("scheduler", "registrar"), limits=LIMITS)
    with Rig(amqp_url, f"memory://{uuid.uuid4()}", options=options) as rig:
        rig.register("blue")
        job = rig.submit(command=["true"], clusters=["blue"])["id"]
        for state in ("accepted", "running"):
            rig.event("blue", job, 1, state)
        rig.says("blue", {"version": 1, "events": [], "epoch": 7})
        rig.event("blue", job, 1, "completed", returncode=0)
        known: list[str] = []
        report = rig.store.clusters.report

        def spy(reports: Sequence[StateReport], at: float) -> object:
            if any(REPORTED_EPOCH in r.values for r in reports):
                record = rig.store.jobs.get([job])[0]
                known.append("" if record is None else record.state)
            return report(reports, at)

        rig.store.clusters.report = spy  # type: ignore[method-assign, assignment]
        one_by_one = ServiceOptions(workers=("recorder",), limits=LIMITS, batch=1)
        recorder = Service(rig.worker_broker, rig.store, rig.ring, one_by_one)
        recorder.start()
        eventually(lambda: known)
        recorder.stop()
        assert recorder.failed() is None
        assert known == ["completed"]


def test_what_earlier_releases_left_in_their_queue_is_recorded_and_the_queue_is_gone() -> None:
    name = uuid.uuid4()
    with Rig(f"memory://{name}", f"memory://{name}", options=ServiceOptions(retry_after=0.3), start=False) as rig:
        former = topology.Queue(topology.FORMER_RECORDER_QUEUE, bindings=((topology.EVENTS, "#"),))
        rig.broker.declare(topology.Topology(queues=(former,)))
        rig.service.start()
        rig.register("blue")
        eventually(lambda: not _there(rig.broker, topology.FORMER_RECORDER_QUEUE))
        rig.service.stop()
        rig.broker.delete([topology.RECORDER_QUEUE])
        rig.broker.declare(topology.Topology(queues=(former,)))
        rig.restart()
        jobs = [rig.submit(command=["true"])["id"] for _ in range(3)]
        for job in jobs:
            rig.event("blue", job, 1, "accepted")
            rig.until(job, "accepted")
        eventually(lambda: not _there(rig.broker, topology.FORMER_RECORDER_QUEUE))


def _there(broker: Broker, queue: str) -> bool:
    from rainbow.errors import NotFound

    try:
        broker.stats(queue)
    except NotFound:
        return False
    return True


def test_recorders_that_freeze_and_an_agent_that_is_killed_start_nothing_twice(
    private_rabbitmq: Private[RabbitServer], redis_url: str, redis_prefix: str, tmp_path: Path
) -> None:
    """Every dispatch is in its queue twice; its agent is killed while recorders hold events; the copies expire."""
    rng = random.Random(7)
    vhost = private_rabbitmq.server.new_vhost("recorders")
    url = private_rabbitmq.server.vhost_url(vhost)
    site = Site(tmp_path, url, redis_url, redis_prefix, queues={"dispatch_timeout": 5.0})
    site.shared["broker"] = {"url": url, "heartbeat": 4.0}
    site.shared["scheduler"] = {"alive_after": 8.0, "retry_after": 0.5}
    config = site.write("workers", site.shared)
    with site:
        site.start("workers", "rainbow_workers.cli", *_only("scheduler", "registrar", "returns"), config=config)
        recorders = [
            site.start(f"recorder-{n}", "rainbow_workers.cli", *_only("recorder"), config=config) for n in "12"
        ]
        broker = connect(ConnectOptions(url, name="spy"))
        wait_until(lambda: _there(broker, topology.RECORDER_QUEUE), 60)
        agents = {name: site.agent(name, options={"log": str(site.starts_file(name)), "run_s": 0.2}) for name in NAMES}
        settings = {"broker": {"url": url}, "token": site.token("root", "admin"), "keyring": str(tmp_path / "none")}
        with Client(settings=Settings.model_validate(settings)) as client:
            wait_until(lambda: len([c for c in _clusters(client) if c.alive]) == len(NAMES), 90, every=0.3)
            spies = {}
            for name in NAMES:
                spy = topology.Queue(f"spy.{name}", bindings=((topology.JOBS, name),))
                broker.declare(topology.Topology(queues=(spy,)))
                spies[name] = broker.consume(spy.name, prefetch=100)
            ids: list[str] = []

            def settled(record: JobRecord) -> bool:
                """It is over, or its agent was killed before it let the job start and its dispatch expired."""
                started = {job for job, _ in site.starts(NAMES)}
                return record.state in TERMINAL or (record.state == "accepted" and record.id not in started)

            for _ in range(4):
                stuck = rng.choice(recorders)
                stuck.send_signal(signal.SIGSTOP)
                some = [{"id": str(uuid.uuid4()), "command": ["true"], "hold": 300.0} for _ in range(6)]
                client.submit_many(some, timeout=20.0)  # type: ignore[arg-type]
                ids += [job["id"] for job in some]  # type: ignore[misc]
                for name in NAMES:
                    taken = spies[name].take(100, 0.5)
                    broker.publish([copy(d, name) for d in taken]).check(20)
                    spies[name].ack(taken)
                victim = rng.choice(NAMES)
                site.kill(agents[victim])
                time.sleep(rng.uniform(5.5, 7.0))  # copies expire, and come back
                stuck.send_signal(signal.SIGCONT)
                agents[victim] = site.agent(victim, options={"log": str(site.starts_file(victim)), "run_s": 0.2})
            wait_until(lambda: all(r is not None and settled(r) for r in client.status(ids)), 180, every=0.5)
            ended = {r.id: r.state for r in client.status(ids) if r is not None}
        broker.close()
        starts = Counter(job for job, _ in site.starts(NAMES))
        twice = {job for job, n in starts.items() if n > 1}
        assert not twice, "\n".join(_about(tmp_path, twice))
        # What runs in a dry run, or is about to, ends with its agent.
        assert set(ended.values()) <= {"completed", "lost", "accepted"}, Counter(ended.values())
        assert not {job for job, state in ended.items() if state == "completed"} - starts.keys()
        assert len(starts) > len(ids) / 2


def _about(folder: Path, jobs: set[str]) -> list[str]:
    files = [*folder.glob("*.log"), *folder.glob("starts-*")]
    return [f"{f.name}: {line}" for f in files for line in f.read_text().splitlines() if any(j in line for j in jobs)]


NAMES = ("blue", "green")


def _only(*workers: str) -> list[str]:
    return [argument for worker in workers for argument in ("--only", worker)]


def _clusters(client: Client) -> list:  # type: ignore[type-arg]
    from rainbow.errors import RainbowError

    try:
        return list(client.clusters())
    except RainbowError:
        return []
