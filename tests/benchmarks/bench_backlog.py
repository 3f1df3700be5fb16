"""Very many jobs that wait, on a real RabbitMQ and Redis: what submitting them takes, what holding them does.

One scheduler (a process with all workers) and one agent whose four cores are busy for good. RAINBOW_BENCH_BACKLOG jobs
of ten users wait for it. Then nothing changes for a while: processor and memory of the scheduler, and what each job
takes in the servers. At last a job that runs is cancelled: how long until one that waits is assigned.
"""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from functools import partial
from pathlib import Path
from statistics import median

from bench_heartbeats import _cpu, _memory_mb
from processes import Site
from rainbow import codec, topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.brokers.base import Broker, Message
from rainbow.client import Client
from rainbow.models.job import JobRecord
from rainbow.settings import load
from rainbow_workers.stores import StoreOptions, open_store
from rainbow_workers.stores.base import Store
from rig import eventually, resources
from servers import end_group, start_rabbit, start_redis

JOBS = int(os.environ.get("RAINBOW_BENCH_BACKLOG", "20000"))
USERS, QUIET = 10, 20.0


def fill(site: Site, broker: Broker, store: Store, jobs: int) -> dict[str, float | None]:
    """Submit `jobs`, until all of them wait."""
    tokens = [site.token(f"user{n}") for n in range(USERS)]
    began = time.perf_counter()
    for start in range(0, jobs, 500):
        bodies = [
            codec.encode_json({"token": tokens[n % USERS], "id": str(uuid.uuid4()), "command": ["true"]})
            for n in range(start, min(jobs, start + 500))
        ]
        broker.publish([Message(topology.SUBMIT, "submit", body) for body in bodies]).check(120)
    sent = time.perf_counter() - began
    eventually(lambda: sum(t.waiting for t in store.jobs.tally().values()) == jobs, 120 + jobs / 100, every=0.2)
    return {"backlog_sent_per_s": jobs / sent, "backlog_held_per_s": jobs / (time.perf_counter() - began)}


def release(client: Client, running: list[str]) -> float:
    """Milliseconds from the end of a job that is cancelled to the assignment of the next one."""
    times = []
    for job in running:
        before = {r.id for r in _on_cluster(client)}
        client.cancel([job])
        [record] = eventually(partial(_new, client, before), 60)
        [cancelled] = client.status([job])
        assert cancelled is not None
        times.append(1000 * (record.times["assigned"] - cancelled.times["ended"]))
    return median(times)


def _new(client: Client, before: set[str]) -> list[JobRecord]:
    return [r for r in _on_cluster(client) if r.id not in before]


def _on_cluster(client: Client) -> list[JobRecord]:
    return client.jobs(cluster="one")


def run() -> dict[str, float | None]:
    with tempfile.TemporaryDirectory(prefix="rainbow-bench-", ignore_cleanup_errors=True) as text:
        folder = Path(text)
        rabbit, redis = start_rabbit(folder), start_redis(folder)
        try:
            rabbit.make_vhosts(["bench"])
            return measure(folder, rabbit.vhost_url("bench"), redis.url, rabbit.group, redis.group)
        finally:
            end_group(rabbit.group, rabbit.started)
            end_group(redis.group, redis.started)


def measure(folder: Path, amqp_url: str, redis_url: str, *groups: int) -> dict[str, float | None]:
    with Site(folder, amqp_url, redis_url, "bench:", log_level="warning") as site:
        scheduler = site.scheduler()
        site.agent("one", resources(nodes=1, cores=4), options={"run_s": 86400.0})
        broker, store = connect(ConnectOptions(amqp_url)), open_store(StoreOptions(redis_url, prefix="bench:"))
        with Client(settings=load(site.config, {})) as client:
            site.served(client, 1)
            first = [client.submit(command=["true"]).id for _ in range(5)]  # four run, one is ahead
            eventually(lambda: sum(r.state == "running" for r in _on_cluster(client)) == 4, 60)
            empty = [_group_mb(group) for group in groups]
            found = fill(site, broker, store, JOBS)
            time.sleep(5)
            per_job = [1024 * (_group_mb(g) - mb) / JOBS for g, mb in zip(groups, empty, strict=True)]
            before, began = _cpu(scheduler.pid), time.perf_counter()
            time.sleep(QUIET)
            found |= {
                "backlog_quiet_core_share": (_cpu(scheduler.pid) - before) / (time.perf_counter() - began),
                "backlog_scheduler_mb": _memory_mb(scheduler.pid),
                "backlog_rabbit_kb_a_job": per_job[0],
                "backlog_redis_kb_a_job": per_job[1],
                "backlog_release_ms_median": release(client, first[:4]),
            }
        broker.close()
        store.close()
    return found


def _group_mb(group: int) -> float:
    """Memory of the processes of a group."""
    total = 0.0
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getpgid(int(entry.name)) == group:
                total += _memory_mb(int(entry.name))
        except (OSError, IndexError):  # it has ended
            continue
    return total


if __name__ == "__main__":
    for name, value in run().items():
        print(f"{name:36} {value or 0:12.3f}")
