"""10,000 jobs from 4 submitters over 20 clusters and 4 agents, the real programs on RabbitMQ and Redis."""

from __future__ import annotations

import collections
import os
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from processes import Site
from rainbow.client import Client, JobFields
from rainbow.errors import RainbowError
from rainbow.settings import load
from rainbow_workers.stores import StoreOptions, open_store
from rig import eventually, resources

JOBS = int(os.environ.get("RAINBOW_TEST_JOBS", "10000"))
AGENTS = ("north", "east", "south", "west")


def _submit(site: Site, user: str, count: int) -> list[str]:
    """Submit as a careful program does: ids of its own, and again what was not confirmed."""
    settings = load(site.config, {})
    ids = [str(uuid.uuid4()) for _ in range(count)]
    with Client(settings=settings, token=site.token(user), timeout=60) as client:
        for start in range(0, count, 250):
            batch: list[JobFields] = [
                {"id": i, "command": ["true"], "nodes": 2, "cores_per_task": 8} for i in ids[start : start + 250]
            ]
            while True:
                try:
                    client.submit_many(batch)
                except RainbowError:
                    time.sleep(0.5)
                else:
                    break
    return ids


@pytest.mark.timeout(600)
@pytest.mark.parametrize("killed", [False, True], ids=["quiet", "scheduler-killed"])
def test_all_reach_their_end_and_none_runs_twice(
    tmp_path: Path, amqp_url: str, redis_url: str, redis_prefix: str, killed: bool
) -> None:
    with Site(tmp_path, amqp_url, redis_url, redis_prefix, log_level="warning") as site:
        scheduler = site.scheduler()
        with Client(settings=load(site.config, {})) as admin:
            eventually(lambda: _answers(admin), 60)
            for number in range(16):
                admin.register(f"small{number}", identity="the-test", graph=resources(nodes=1 + number, cores=4))
            for name in AGENTS:
                site.agent(name, resources(nodes=16, cores=8, host=name))
            eventually(lambda: {c.name for c in admin.clusters() if c.alive} == set(AGENTS), 60)
            assert len(admin.clusters()) == 20

            with ThreadPoolExecutor(4) as pool:
                submitters = [pool.submit(_submit, site, f"user{n}", JOBS // 4) for n in range(4)]
                if killed:
                    eventually(lambda: len(site.starts(AGENTS)) > JOBS // 10, 120)
                    site.kill(scheduler)
                    time.sleep(1.0)
                    site.scheduler(name="scheduler-2")
                ids = [job for s in submitters for job in s.result()]

        store = open_store(StoreOptions(redis_url, prefix=redis_prefix))
        try:
            left = eventually(lambda: _ended(store, ids), 300, every=0.5)
            states = collections.Counter(r.state for r in left)
        finally:
            store.close()
        assert states == {"completed": JOBS}, site.logs()
        starts = collections.Counter(job_id for job_id, _ in site.starts(AGENTS))
        assert set(starts) == set(ids)
        assert starts.most_common(1)[0][1] == 1
        shares = collections.Counter(r.cluster for r in left)
        assert set(shares) == set(AGENTS), "every agent had its share"


def _answers(client: Client) -> bool:
    try:
        return bool(client.ping(timeout=2.0))
    except RainbowError:
        return False


def _ended(store: object, ids: list[str]) -> list | None:  # type: ignore[type-arg]
    records = []
    for start in range(0, len(ids), 1000):
        part = store.jobs.get(ids[start : start + 1000])  # type: ignore[attr-defined]
        if any(r is None or not r.terminal for r in part):
            return None
        records.extend(part)
    return records
