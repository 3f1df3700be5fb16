"""Bids between real programs, and the worker that asks for them killed again and again."""

from __future__ import annotations

import collections
import json
import random
import time
from pathlib import Path

import pytest

from processes import Site
from rainbow.client import Client
from rainbow.errors import RainbowError
from rainbow.settings import load
from rig import eventually, resources

JOBS = 200


@pytest.mark.timeout(300)
def test_a_bidding_worker_killed_at_random(tmp_path: Path, amqp_url: str, redis_url: str, redis_prefix: str) -> None:
    with Site(tmp_path, amqp_url, redis_url, redis_prefix, log_level="warning") as site:
        site.scheduler("scheduler", "registrar", "recorder", "returns", name="others")
        bidding = site.scheduler("bidding", name="bidding")
        with Client(settings=load(site.config, {}), timeout=60) as client:
            eventually(lambda: _answers(client), 90)
            site.agent("dear", resources(nodes=16), values={"cost_per_node_hour": 9})
            site.agent("cheap", resources(nodes=16), values={"cost_per_node_hour": 1})
            eventually(lambda: sum(c.alive for c in client.clusters()) == 2, 90)
            time.sleep(2.5)  # every scheduler has seen both by then, and both agents take jobs
            by_cost = {"name": "bid", "options": {"by": "cost", "within": 5.0}}
            jobs = []
            for _ in range(5):
                jobs += client.submit_many(
                    [{"command": ["true"], "nodes": 1, "selection": by_cost} for _ in range(JOBS // 5)]
                )
                time.sleep(random.uniform(0.0, 0.5))
                bidding.kill()
                bidding.wait()
                bidding = site.scheduler("bidding", name="bidding")
            records = [job.wait(120) for job in jobs]
            asked = json.loads(site.cli("explain", records[-1].id, "--json").stdout)
        odd = [r.answer for r in records if (r.state, r.cluster) != ("completed", "cheap")]
        assert not odd, odd[:2]
        assert asked["terms"]["selection"]["bids"]["dear"]["cost"] == 9
        assert asked["start"]["late_s"] is not None
        starts = collections.Counter(job_id for job_id, _ in site.starts(["cheap", "dear"]))
        assert set(starts.values()) == {1}
        assert len(starts) == JOBS


def _answers(client: Client) -> bool:
    try:
        return bool(client.ping(timeout=2.0))
    except RainbowError:
        return False
