"""Schedulers that hold waiting jobs are killed: none is lost, none runs twice, none is forgotten in a waiting queue."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from pathlib import Path

import pytest

from processes import Site
from rainbow import codec, topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.brokers.base import Message
from rainbow.client import Client
from rainbow.errors import RainbowError
from rainbow.settings import load
from rig import eventually, resources

pytestmark = pytest.mark.timeout(240)

CLUSTERS = {"blue": 0.3, "red": 0.1}
JOBS = 300


def test_schedulers_are_killed_while_jobs_wait(
    amqp_url: str, redis_url: str, redis_prefix: str, tmp_path: Path
) -> None:
    chance = random.Random(13)
    with Site(tmp_path, amqp_url, redis_url, redis_prefix, log_level="warning") as site:
        schedulers = {name: site.scheduler(name=name) for name in ("one", "two")}
        for cluster, seconds in CLUSTERS.items():
            site.agent(
                cluster,
                resources(nodes=1, cores=4, host=cluster),
                options={"run_s": seconds, "log": str(site.starts_file(cluster))},
            )
        with Client(settings=load(site.config, {})) as client:
            site.served(client, len(CLUSTERS))
            broker = connect(ConnectOptions(amqp_url))
            ids = [str(uuid.uuid4()) for _ in range(JOBS)]
            token = site.token("alice")
            bodies = [codec.encode_json({"token": token, "id": i, "command": ["true"]}) for i in ids]
            broker.publish([Message(topology.SUBMIT, "submit", b) for b in bodies]).check(30)
            site.kill_schedulers(schedulers, chance, times=6, down=(0.2, 0.8), up=(1.0, 1.5))

            def states() -> Counter[str]:
                try:
                    return Counter("-" if r is None else r.state for r in client.status(ids))
                except RainbowError:
                    return Counter()

            eventually(lambda: states()["completed"] == JOBS, 90, every=0.5)
            assert sum(broker.stats(q).messages for q in topology.waiting_queues()) == 0
            broker.close()
            waited = sum(any(e.get("code") == "waiting" for e in r.history) for r in client.status(ids) if r)
            assert waited > JOBS / 2
        ran = Counter(job for job, _ in site.starts([*CLUSTERS]))
    assert set(ran) == set(ids)
    assert set(ran.values()) == {1}
