"""The store loses all its data while submissions that were handed out are still with the broker: none runs again.

A scheduler hands a job out before it settles its submission. Dying in between it leaves that to the next one, which
knows from the store what was done already. Without the store's data only the clusters know it.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
import redis

from agentrig import Agents
from faults.proxy import Proxy
from rainbow import codec, topology
from rainbow.brokers.base import Message
from rainbow_agents.executors.base import Context, Listener
from rainbow_agents.executors.dry_run import DryRunExecutor
from rainbow_workers.service import Service, ServiceOptions
from rig import Rig, eventually, gathered, resources
from servers import Private, RedisServer

#: More than an agent takes to come back, whose pauses between tries go up to 15 s.
ALIVE = 28.0
OTHERS = ServiceOptions(workers=("registrar", "recorder", "returns"), alive_after=ALIVE)
SCHEDULER = ServiceOptions(workers=("scheduler",), alive_after=ALIVE)


class Starts(DryRunExecutor):
    """dry-run; `seen` counts what was let start, on whichever cluster."""

    def __init__(self, context: Context, listener: Listener, seen: Counter[str]) -> None:
        self._seen = seen
        super().__init__(context, listener)

    def release(self, jobs: Any) -> None:
        with self._alarm:
            fresh = [h for h in jobs if h.handle in self._jobs and self._jobs[h.handle].phase == "held"]
        self._seen.update(h.mark.id for h in fresh)
        super().release(jobs)


@pytest.fixture
def rig(amqp_url: str, private_redis: Private[RedisServer]) -> Iterator[Rig]:
    """Without a scheduler: the test starts and stops it."""
    with Rig(amqp_url, private_redis.server.url, prefix=f"{uuid.uuid4().hex}:", options=OTHERS) as rig:
        yield rig


def body(rig: Rig, name: str) -> tuple[str, bytes]:
    job = str(uuid.uuid4())
    return job, codec.encode_json({"id": job, "token": rig.token, "name": name, "command": ["true"], "hold": 120})


def test_what_was_handed_out_before_does_not_run_again(
    rig: Rig, private_redis: Private[RedisServer], tmp_path: Path
) -> None:
    """S51, S35: one job is over, one runs; a third was taken by the scheduler that died, and went nowhere."""
    starts: Counter[str] = Counter()
    agents = Agents(rig, tmp_path)
    parts = urlsplit(rig.broker_url)
    link = Proxy("127.0.0.1", parts.port or 5672)
    through = urlunsplit(parts._replace(netloc=f"{parts.username}:{parts.password}@127.0.0.1:{link.port}"))

    def agent(name: str, nodes: int, seconds: float, url: str | None = None) -> None:
        given = {"executor": lambda context, listener: Starts(context, listener, starts)}
        options = {"run_s": seconds}
        graph = resources(nodes=nodes)
        agents.start(name, graph=graph, parts=given, options=options, report_every=0.5, url=url)

    def send(*bodies: bytes) -> None:
        rig.broker.publish([Message(topology.SUBMIT, "submit", b) for b in bodies]).check(20)

    first = Service(rig.worker_broker, rig.store, rig.ring, SCHEDULER)
    second = Service(rig.worker_broker, rig.store, rig.ring, SCHEDULER)
    try:
        short, runs, new = (body(rig, name) for name in ("short", "runs", "new"))
        first.start()
        agent("blue", 2, 0.2, through)
        send(short[1])
        rig.until(short[0], "completed", 60)
        agents.running.pop().stop()
        agent("blue", 2, 300.0, through)
        send(runs[1])
        rig.until(runs[0], "running", 60)
        first.stop()
        agent("green", 64, 0.2)  # the one that everything would go to now
        send(short[1], runs[1], new[1])
        consumer = rig.broker.consume(topology.SCHEDULER_QUEUE, prefetch=10)
        taken = gathered(lambda: consumer.take(10, 0.2), lambda found: len(found) == 3)
        consumer.requeue(taken)
        consumer.cancel()
        link.refuse()  # `blue` hears of it later than `green`
        with redis.Redis.from_url(private_redis.server.url) as admin:
            admin.flushall()
        agents.known("green")
        second.start()
        time.sleep(3.0)
        link.heal()
        rig.until(new[0], "completed", 180)
        record = rig.until(short[0], "completed")
        assert (record["cluster"], record["returncode"]) == ("blue", 0)
        assert rig.until(runs[0], "running")["cluster"] == "blue"
        eventually(lambda: rig.broker.stats(topology.SCHEDULER_QUEUE).messages == 0)
        time.sleep(1.0)
        assert starts == Counter([short[0], runs[0], new[0]])
    finally:
        first.stop()
        second.stop()
        agents.close()
        link.close()
    assert first.failed() is None
    assert second.failed() is None


def test_jobs_that_wait_for_others_wait_on(amqp_url: str, private_redis: Private[RedisServer], tmp_path: Path) -> None:
    """The store knows neither of them any more. The cluster says how the first one is; the second one is a message."""
    options = ServiceOptions(alive_after=10.0)
    with Rig(amqp_url, private_redis.server.url, prefix=f"{uuid.uuid4().hex}:", options=options) as rig:
        agents = Agents(rig, tmp_path)
        try:
            agents.start("blue", graph=resources(), options={"run_s": 6.0}, report_every=0.5)
            agents.known("blue")
            first = rig.submit(command=["true"])["id"]
            rig.until(first, "running", 60)
            answer = rig.submit(command=["true"], dependency=f"afterok:{first}")
            assert answer["status"] == "held"
            with redis.Redis.from_url(private_redis.server.url) as admin:
                admin.flushall()
            second = rig.until(answer["id"], "completed", 180)
            before = rig.until(first, "completed")
            assert second["times"]["assigned"] >= before["times"]["ended"]
        finally:
            agents.close()
