"""Very many jobs through the whole system: none lost, none twice, and the memory of each process flat.

`make long-run` (JOBS=1000000) starts a scheduler (all workers) and four agents with the dry-run
executor as processes, on a RabbitMQ and a Redis of their own; submits through the client with at most `--ahead` jobs
under way; and counts, by a queue of its own on the events exchange, the ends of jobs. It looks at the memory of every
process every few seconds, and draws it with --plot FILE. Ended jobs are forgotten after 60 s.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from pathlib import Path

import style
from bench_heartbeats import _memory_mb
from processes import Site
from rainbow import codec, topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.client import Client
from rainbow.client.submission import build, message
from rainbow.errors import RainbowError
from rainbow.models.job import TERMINAL
from rainbow.settings import load
from rig import eventually, resources
from servers_here import rabbitmq, redis

AGENTS = ("red", "blue", "green", "grey")
ENDS = "long-run.ends"


class Ends(threading.Thread):
    """Counts how jobs ended, and how often each."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.broker = connect(ConnectOptions(url, name="long-run"))
        exchanges = [e for e in topology.core().exchanges if e.name == topology.EVENTS]
        queue = topology.Queue(ENDS, bindings=((topology.EVENTS, "#"),))
        self.broker.declare(topology.Topology(tuple(exchanges), (queue,)))
        self.states: Counter[str] = Counter()
        self.seen: set[bytes] = set()
        self.again = 0

    def run(self) -> None:
        consumer = self.broker.consume(ENDS, prefetch=500)
        while True:
            deliveries = consumer.take(500, 0.5)
            for delivery in deliveries:
                data = codec.decode(delivery.body, delivery.content_type, max_bytes=64 << 20)
                for event in data.get("events", [data]):
                    if event["state"] in TERMINAL:
                        job = uuid.UUID(event["id"]).bytes
                        self.states[event["state"]] += job not in self.seen
                        self.again += job in self.seen
                        self.seen.add(job)
            if deliveries:
                consumer.ack(deliveries)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks long-run", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--ahead", type=int, default=20_000, help="jobs submitted and not ended, at most")
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args(arguments)
    with rabbitmq() as amqp_url, redis() as redis_url, tempfile.TemporaryDirectory(prefix="rainbow-long-") as folder:
        store = {"url": redis_url, "prefix": "long:", "keep": 60}
        with Site(Path(folder), amqp_url, redis_url, "long:", log_level="warning") as site:
            site.shared["store"] = store
            site.config = site.write("rainbow-config", {**site.shared, "token": site.token("root", "admin")})
            watched = {"scheduler": site.scheduler().pid}
            with Client(settings=load(site.config, {}), timeout=300) as client:
                eventually(lambda: _up(client), 60)
                for name in AGENTS:
                    watched[f"agent {name}"] = site.agent(name, resources(nodes=64, cores=32)).pid
                eventually(lambda: sum(c.alive for c in client.clusters()) == len(AGENTS), 60)
                found = _through(client, amqp_url, given.jobs, given.ahead, watched)
            found["starts"] = len(site.starts(AGENTS))
            found["started_twice"] = found["starts"] - len({job for job, _ in site.starts(AGENTS)})
    target = Path("build/long_run.json")
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps({k: v for k, v in found.items() if k != "memory"}))
    if given.plot:
        draw(found["memory"], given.plot)
    whole = found["states"] == {"completed": given.jobs} and found["starts"] == given.jobs
    return 0 if whole and not found["started_twice"] else 1


def _through(client: Client, url: str, jobs: int, ahead: int, watched: dict[str, int]) -> dict:  # type: ignore[type-arg]
    ends = Ends(url)
    ends.start()
    memory: dict[str, list[float]] = {"jobs": [], **{name: [] for name in watched}}
    began = looked = time.monotonic()
    tokens = client._credentials.for_submission()
    sent, last = 0, -1
    moved = began
    while len(ends.seen) < jobs:
        if sent < jobs and sent - len(ends.seen) < ahead:
            part = [build({"command": ["true"], "cores_per_task": 1}) for _ in range(min(500, jobs - sent))]
            client._connection.confirm([message(r, tokens, None, max_bytes=1 << 20) for r in part], 300)
            sent += len(part)
        else:
            time.sleep(0.05)
        now = time.monotonic()
        if len(ends.seen) != last:
            last, moved = len(ends.seen), now
        if now - moved > 120:
            print(f"nothing has ended for 120 s: {sent} sent, {len(ends.seen)} ended", file=sys.stderr)
            break
        if now - looked > 2:
            looked = now
            memory["jobs"].append(len(ends.seen))
            for name, pid in watched.items():
                memory[name].append(_memory_mb(pid))
            if len(memory["jobs"]) % 30 == 0:
                print(f"{len(ends.seen)} ended, {len(ends.seen) / (now - began):.0f} a second", flush=True)
    wall = time.monotonic() - began
    return {
        "jobs": jobs,
        "seconds": wall,
        "per_s": len(ends.seen) / wall,
        "states": dict(ends.states),
        "ends_told_again": ends.again,
        "memory": memory,
        "memory_mb_at_tenth_and_end": {n: [memory[n][len(memory[n]) // 10], memory[n][-1]] for n in watched},
    }


def _up(client: Client) -> bool:
    try:
        return bool(client.ping(timeout=2))
    except RainbowError:
        return False


def draw(memory: dict[str, list[float]], target: Path) -> None:
    figure, axes = style.chart(8, 4)
    for name, values in memory.items():
        if name != "jobs":
            axes.plot([n / 1e6 for n in memory["jobs"]], values, label=name)
    axes.set(xlabel="million jobs ended", ylabel="MB resident", ylim=(0, None), title="Memory in a long run")
    axes.legend(ncols=2)
    style.save(figure, target)
