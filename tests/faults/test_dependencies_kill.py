"""Schedulers and recorders are killed while dependent jobs run: each runs once, and after what it waits for."""

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

pytestmark = pytest.mark.timeout(300)

CLUSTERS = ("blue", "red")
#: Chains of so many jobs each, and a diamond: one, many that wait for it, one that waits for all of these.
CHAINS, LENGTH, WIDTH = 10, 10, 98


def graph() -> dict[str, list[str]]:
    """Job -> those that it waits for: 200 in all."""
    waits: dict[str, list[str]] = {}
    for _ in range(CHAINS):
        before: list[str] = []
        for _ in range(LENGTH):
            one = str(uuid.uuid4())
            waits[one], before = before, [one]
    first, last = str(uuid.uuid4()), str(uuid.uuid4())
    middle = [str(uuid.uuid4()) for _ in range(WIDTH)]
    return waits | {first: []} | {one: [first] for one in middle} | {last: middle}


def test_each_job_runs_once_and_after_what_it_waits_for(
    amqp_url: str, redis_url: str, redis_prefix: str, tmp_path: Path
) -> None:
    chance = random.Random(17)
    waits = graph()
    with Site(tmp_path, amqp_url, redis_url, redis_prefix, log_level="warning") as site:
        schedulers = {name: site.scheduler(name=name) for name in ("one", "two")}
        for cluster in CLUSTERS:
            log = str(site.starts_file(cluster))
            options = {"run_s": 0.1, "log": log}
            site.agent(cluster, resources(nodes=1, cores=4, host=cluster), options=options)
        with Client(settings=load(site.config, {})) as client:
            site.served(client, len(CLUSTERS))
            broker = connect(ConnectOptions(amqp_url))
            token = site.token("alice")
            messages = [
                Message(topology.SUBMIT, "submit", codec.encode_json(fields))
                for one, others in waits.items()
                for fields in [{"token": token, "id": one, "command": ["true"]}]
                if others == [] or fields.update(dependency=f"afterok:{':'.join(others)}") is None
            ]
            broker.publish(messages).check(30)
            site.kill_schedulers(schedulers, chance, down=(0.2, 0.8), up=(1.0, 1.5))

            def completed() -> bool:
                try:
                    states = Counter("-" if r is None else r.state for r in client.status(list(waits)))
                except RainbowError:
                    return False
                return states["completed"] == len(waits)

            eventually(completed, 150, every=0.5)
            eventually(lambda: broker.stats(topology.DEPENDENTS_QUEUE).messages == 0, 60, every=0.2)
            broker.close()
            records = {r.id: r for r in client.status(list(waits)) if r is not None}
        ran = Counter(job for job, _ in site.starts([*CLUSTERS]))
    assert ran == Counter(dict.fromkeys(waits, 1))
    late = [
        (one, other)
        for one, others in waits.items()
        for other in others
        if records[one].times["assigned"] < records[other].times["ended"]
    ]
    assert late == []
