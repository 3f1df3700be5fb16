"""Alerts that need the real programs: processes that are killed or hang, and their metrics as Prometheus scrapes them.

The others are fired in test_monitoring.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from alerts import ALERTS, fires, lasting, scraped
from processes import Site
from rainbow.client import Client
from rainbow.settings import load
from rig import eventually, resources
from servers import free_ports

#: For a job that waits: the rule says a day.
_SECONDS = 3.0


@dataclass
class Programs:
    """The settings of a site, and where its scheduler has its metrics."""

    site: Site
    port: int


@pytest.fixture
def programs(tmp_path: Path, amqp_url: str, redis_url: str, redis_prefix: str) -> Iterator[Programs]:
    [port] = free_ports(1)
    scheduler = {"metrics": f"127.0.0.1:{port}", "alive_after": 3, "audit": "-"}
    with Site(tmp_path, amqp_url, redis_url, redis_prefix, scheduler=scheduler, log_level="warning") as site:
        yield Programs(site, port)


def firing(port: int, **bounds: float) -> set[str]:
    now = scraped(port)
    return {alert for alert, expression in ALERTS.items() if fires(expression, now, [], bounds.get(alert))}


@pytest.mark.timeout(300)
def test_a_cluster_dies_and_its_jobs_wait(programs: Programs) -> None:
    site, port = programs.site, programs.port
    site.scheduler()
    agent = site.agent("blue", resources(nodes=1))
    with Client(settings=load(site.config, {})) as client:
        site.served(client, 1)
        eventually(lambda: scraped(port) and not firing(port), 60)
        site.kill(agent)
        eventually(lasting("RainbowClusterSilent", port), 60)
        jobs = client.submit_many([{"command": ["true"], "nodes": 1, "hold": 600} for _ in range(30)])
        assert "held" in {job.answer.status for job in jobs}, "its queue is full of them"
        eventually(lasting("RainbowJobsWaitLong", port, bound=_SECONDS), 60)
        assert not fires(ALERTS["RainbowJobsWaitLong"], scraped(port), []), "it is not a day"
        site.agent("blue", resources(nodes=1))
        assert {job.wait(timeout=90).state for job in jobs} == {"completed"}
        eventually(lambda: not firing(port, RainbowJobsWaitLong=_SECONDS), 60)


@pytest.mark.timeout(300)
def test_a_worker_hangs_since_nobody_reads_its_output(programs: Programs) -> None:
    """Its audit log goes to a pipe whose other end is kept open and not read: each write into a full pipe waits."""
    site, port = programs.site, programs.port
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "rainbow_workers.cli", "--config", str(site.config)],
        stdout=write,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        env=site.environment(),
        start_new_session=True,
    )
    os.close(write)
    site.running.append(process)
    with Client(settings=load(site.config, {})) as client, os.fdopen(read, "rb") as pipe:
        eventually(lambda: scraped(port) and not firing(port), 60)
        jobs = client.submit_many([{"command": ["true"]} for _ in range(1000)])
        eventually(lasting("RainbowWorkerStuck", port), 120)
        assert firing(port) == {"RainbowWorkerStuck"}
        threading.Thread(target=lambda: pipe.read(), daemon=True).start()
        eventually(lambda: not firing(port), 60)
        assert {job.wait_answer(60).status for job in jobs} == {"no-match"}
        process.terminate()
        process.wait(30)
