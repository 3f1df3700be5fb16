"""The store comes back with older data, as after a power cut or a failover: the last writes are gone, clusters are not.

What the store lost is with the clusters. They report it for the new epoch of the store, and nothing that may be there
is given away before.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
import redis

from agentrig import Agents
from faults.proxy import Proxy
from faults.test_store_loss import Starts, body
from rainbow import topology
from rainbow.brokers.base import Message
from rainbow_workers.service import Service, ServiceOptions
from rig import Rig, eventually, gathered, resources
from servers import Private, RedisServer

ALIVE = 28.0
OTHERS = ServiceOptions(workers=("registrar", "recorder", "returns"), alive_after=ALIVE)
SCHEDULER = ServiceOptions(workers=("scheduler",), alive_after=ALIVE, retry_after=0.5)


@pytest.fixture
def rig(amqp_url: str, private_redis: Private[RedisServer]) -> Iterator[Rig]:
    with Rig(amqp_url, private_redis.server.url, prefix=f"{uuid.uuid4().hex}:", options=OTHERS) as rig:
        yield rig


def test_assignments_that_the_store_lost_are_not_made_again(
    rig: Rig, private_redis: Private[RedisServer], tmp_path: Path
) -> None:
    """The scheduler died between dispatch and ack, and the client sends a job again that it had confirmed."""
    starts: Counter[str] = Counter()
    agents = Agents(rig, tmp_path)
    parts = urlsplit(rig.broker_url)
    link = Proxy("127.0.0.1", parts.port or 5672)
    through = urlunsplit(parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{link.port}"))

    def agent(name: str, nodes: int, seconds: float, url: str | None = None) -> None:
        given = {"executor": lambda context, listener: Starts(context, listener, starts)}
        graph, options = resources(nodes=nodes), {"run_s": seconds}
        agents.start(name, graph=graph, parts=given, options=options, report_every=0.5, url=url)

    def send(*bodies: bytes) -> None:
        rig.broker.publish([Message(topology.SUBMIT, "submit", b) for b in bodies]).check(20)

    first = Service(rig.worker_broker, rig.store, rig.ring, SCHEDULER)
    second = Service(rig.worker_broker, rig.store, rig.ring, SCHEDULER)
    try:
        runs, again, stop, new = (body(rig, name) for name in ("runs", "again", "stop", "new"))
        first.start()
        agent("blue", 3, 300.0, through)
        agent("green", 64, 0.2)
        rig.rpc.call({"op": "drain", "cluster": "green"})
        with redis.Redis.from_url(private_redis.server.url) as admin:
            admin.config_set("appendonly", "no")  # from here on nothing reaches the disk
        send(runs[1], again[1], stop[1])
        for job, _ in (runs, again, stop):
            rig.until(job, "running", 60)
        first.stop()
        send(runs[1])
        consumer = rig.broker.consume(topology.SCHEDULER_QUEUE, prefetch=10)
        taken = gathered(lambda: consumer.take(10, 0.2))
        consumer.requeue(taken)
        consumer.cancel()
        before = rig.store.clusters.changes(0).epoch
        private_redis.kill()
        link.refuse()  # `blue` reports later than `green`
        private_redis.start()
        eventually(lambda: rig.store.clusters.changes(0).epoch.number > before.number, 30)
        assert rig.job(runs[0]) is None, "what is on the disk is older than the job"
        rig.rpc.call({"op": "resume", "cluster": "green"})
        send(again[1], stop[1], new[1])
        second.start()
        # Its cluster, which has it, was not heard yet: the cancel waits for that.
        assert rig.until(stop[0], "held")["attempt"] == 0
        rig.rpc.call({"op": "cancel", "ids": [stop[0]]})
        time.sleep(3.0)
        assert not starts[new[0]]
        assert rig.until(stop[0], "held")["cancel_requested"]
        link.heal()
        rig.until(new[0], "completed", 60)
        for job, _ in (runs, again):
            record = rig.until(job, "running")
            assert (record["cluster"], record["attempt"], record["user"]) == ("blue", 1, "alice")
        assert rig.until(stop[0], "cancelled", 30)["attempt"] == 1
        eventually(lambda: rig.broker.stats(topology.SCHEDULER_QUEUE).messages == 0)
        time.sleep(1.0)
        assert starts == Counter([runs[0], again[0], stop[0], new[0]])
    finally:
        first.stop()
        second.stop()
        agents.close()
        link.close()
    assert first.failed() is None
    assert second.failed() is None


def test_the_cancel_of_a_waiting_job_that_the_store_lost_is_written_again(
    rig: Rig, private_redis: Private[RedisServer]
) -> None:
    """Its user was told `cancelled`, and no cluster knows of it: the registrar says it again."""
    scheduler = Service(rig.worker_broker, rig.store, rig.ring, SCHEDULER)
    scheduler.start()
    try:
        rig.register("blue", resources(nodes=1))
        rig.report("blue", nodes_free=0, cores_free=0, jobs_pending=50)
        eventually(lambda: rig.submit(command=["true"], nodes=1)["status"] == "held")
        job = rig.submit(command=["true"], nodes=1)["id"]
        rig.until(job, "held")
        with redis.Redis.from_url(private_redis.server.url) as admin:
            admin.config_set("appendonly", "no")  # from here on nothing reaches the disk
        rig.rpc.call({"op": "cancel", "ids": [job]})
        assert rig.until(job, "cancelled")["attempt"] == 0
        before = rig.store.clusters.changes(0).epoch
        private_redis.kill()
        private_redis.start()
        eventually(lambda: rig.store.clusters.changes(0).epoch.number > before.number, 30)
        assert rig.until(job, "cancelled", 30)["attempt"] == 0
    finally:
        scheduler.stop()
    assert scheduler.failed() is None
