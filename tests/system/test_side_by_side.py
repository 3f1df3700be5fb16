"""Each worker as a process of its own, and two of each at once."""

from __future__ import annotations

import collections
from pathlib import Path

import pytest

from processes import Site
from rainbow.client import Client
from rainbow.errors import RainbowError
from rainbow.settings import load
from rainbow_workers.service import WORKERS
from rig import eventually, resources

JOBS = 300


@pytest.mark.timeout(300)
def test_two_of_each_worker_share_the_work(tmp_path: Path, amqp_url: str, redis_url: str, redis_prefix: str) -> None:
    with Site(tmp_path, amqp_url, redis_url, redis_prefix, log_level="warning") as site:
        for copy in (1, 2):
            for worker in WORKERS:
                site.scheduler(worker, name=f"{worker}-{copy}")
        with Client(settings=load(site.config, {}), timeout=60) as client:
            eventually(lambda: _answers(client), 90)
            # Two agents of one cluster's name would be refused; two clusters, one of which lets nobody in.
            site.agent("closed", resources(nodes=16), allowed_users=["nobody"])
            site.agent("open", resources(nodes=16))
            eventually(lambda: sum(c.alive for c in client.clusters()) == 2, 90)
            jobs = client.submit_many([{"command": ["true"], "nodes": 1} for _ in range(JOBS)])
            records = [job.wait(120) for job in jobs]
            odd = [client.status([r.id])[0] for r in records if r.state != "completed"]
        assert not odd, odd[:2]
        assert collections.Counter((r.state, r.cluster) for r in records) == {("completed", "open"): JOBS}
        starts = collections.Counter(job_id for job_id, _ in site.starts(["open", "closed"]))
        assert set(starts.values()) == {1}
        assert len(starts) == JOBS


def _answers(client: Client) -> bool:
    try:
        return bool(client.ping(timeout=2.0))
    except RainbowError:
        return False
