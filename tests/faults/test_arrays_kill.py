"""Schedulers are killed, or the store loses its data, while arrays run: each element runs once."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
import redis

from agentrig import Agents
from processes import Site
from rainbow import topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.client import Client
from rainbow.errors import RainbowError
from rainbow.models.ids import element_id
from rainbow.settings import load
from rainbow_workers.service import ServiceOptions
from rig import Rig, eventually, resources
from servers import Private, RedisServer

pytestmark = pytest.mark.timeout(300)

CLUSTERS = ("blue", "red")
#: Of the second array at most so many elements may run at a time.
WIDE, LIMIT = 1500, 9
#: Clusters are not waited for longer than they take to report again.
SOON = ServiceOptions(alive_after=8.0)


def at_once(spans: Iterable[tuple[float, float]]) -> int:
    """How many of these (start, end) overlap at most; one that ends when another starts does not."""
    most = now = 0
    for _, change in sorted(edge for start, end in spans for edge in ((start, 1), (end, -1))):
        now += change
        most = max(most, now)
    return most


def test_each_element_runs_once_and_within_the_limit(
    amqp_url: str, redis_url: str, redis_prefix: str, tmp_path: Path
) -> None:
    chance = random.Random(23)
    wide, narrow = str(uuid.uuid4()), str(uuid.uuid4())
    indices = {wide: range(1, WIDE + 1), narrow: range(0, 480, 2)}
    with Site(tmp_path, amqp_url, redis_url, redis_prefix, log_level="warning") as site:
        schedulers = {name: site.scheduler(name=name) for name in ("one", "two")}
        for cluster in CLUSTERS:
            options = {"run_s": 0.05, "log": str(site.starts_file(cluster))}
            site.agent(cluster, resources(nodes=2, cores=16, host=cluster), options=options)
        with Client(settings=load(site.config, {})) as client:
            site.served(client, len(CLUSTERS))
            client.submit(command=["true"], id=wide, array=f"1-{WIDE}")
            client.submit(command=["true"], id=narrow, array=f"0-479:2%{LIMIT}")
            last = client.submit(command=["true"], dependency=f"afterok:{wide}:{narrow}")
            site.kill_schedulers(schedulers, chance, down=(0.1, 0.6), up=(0.8, 1.5))

            def completed() -> bool:
                try:
                    record = client.status([last.id])[0]
                except RainbowError:
                    return False
                return record is not None and record.state == "completed"

            eventually(completed, 200, every=0.5)
            for array, its in indices.items():
                record = client.job(array).status()
                assert (record.state, record.counts) == ("completed", {"completed": len(its)})
            records = client.status([element_id(narrow, index) for index in indices[narrow]])
            broker = connect(ConnectOptions(amqp_url))
            eventually(lambda: broker.stats(topology.ARRAYS_QUEUE).messages == 0, 60, every=0.2)
            broker.close()
        ran = Counter(job for job, _ in site.starts([*CLUSTERS]))
    expected = [element_id(array, index) for array, its in indices.items() for index in its]
    assert ran == Counter([*expected, last.id])
    assert at_once((r.times["running"], r.times["ended"]) for r in records if r is not None) <= LIMIT


def test_the_store_loses_its_data_while_an_array_runs(
    amqp_url: str, private_redis: Private[RedisServer], tmp_path: Path
) -> None:
    """Agents report what they have and had: it is counted again, and none runs twice."""
    log = tmp_path / "starts"
    with Rig(amqp_url, private_redis.server.url, prefix=f"{uuid.uuid4().hex}:", options=SOON) as rig:
        agents = Agents(rig, tmp_path)
        try:
            agents.start("blue", options={"run_s": 0.02, "log": str(log)}, report_every=0.5)
            array = rig.submit(command=["true"], array="1-100%5")["id"]
            eventually(lambda: (rig.job(array) or {})["counts"].get("completed", 0) >= 20, every=0.05)
            with redis.Redis.from_url(private_redis.server.url) as admin:
                admin.flushall()

            def ended() -> bool:
                record = rig.job(array)
                return record is not None and record["state"] in ("completed", "failed")

            eventually(ended, 200, every=0.5)
            counts = (rig.job(array) or {})["counts"]
        finally:
            agents.close()
    ran = Counter(line.split()[0] for line in log.read_text().splitlines())
    # Those that a scheduler decided in the moment in which no cluster was registered match none, as any job then.
    assert sum(counts.values()) == 100
    assert 95 <= counts["completed"] == len(ran)
    assert set(ran.values()) == {1}
