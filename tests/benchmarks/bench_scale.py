"""Several schedulers side by side, and beside them as many bare pika relays: jobs a second of 1, 2 and 4 of each.

The bare ones show what the broker and this machine's processors allow; with fewer cores than processes neither grows.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

from bench_relay import CLUSTERS, JOBS, _drain, _up, bodies, fill
from processes import Site
from progress import Progress
from rainbow import topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.brokers.base import Broker
from rainbow.client import Client
from rainbow.settings import load
from rig import eventually, resources
from servers_here import rabbitmq, redis

NUMBERS = (1, 2, 4)


def _measured(broker: Broker, queues: list[str], count: int) -> float:
    """Messages a second that arrive in `queues`, from a tenth of `count` to nine tenths: while all are at work."""

    def there() -> int:
        return sum(broker.stats(q).messages for q in queues)

    eventually(lambda: there() >= count // 10, 120, every=0.005)
    first, began = there(), time.perf_counter()
    eventually(lambda: there() >= count * 9 // 10, 300, every=0.005)
    rate = (there() - first) / (time.perf_counter() - began)
    eventually(lambda: there() >= count, 300, every=0.02)
    return rate


def run() -> dict[str, float | None]:
    figures: dict[str, float | None] = {}
    with rabbitmq() as amqp_url, redis() as redis_url, tempfile.TemporaryDirectory(prefix="rainbow-bench-") as folder:
        with ExitStack() as stack, Site(Path(folder), amqp_url, redis_url, "bench:", log_level="warning") as site:
            registrar = site.scheduler("registrar", name="registrar")
            with Client(settings=load(site.config, {})) as client:
                eventually(lambda: _up(client), 60)
                for number in range(CLUSTERS):
                    graph = resources(nodes=4 + number % 16, cores=8 + number % 24)
                    client.register(f"c{number}", identity="the-benchmark", graph=graph)
            site.kill(registrar)
            broker = connect(ConnectOptions(amqp_url))
            quorum = topology.Queue("bare.in", max_length=None), topology.Queue("bare.out", max_length=None)
            broker.declare(topology.Topology(queues=quorum))
            token = site.token("alice")
            jobs = [topology.jobs_queue(f"c{n}") for n in range(CLUSTERS)]
            stack.enter_context(progress := Progress(amqp_url))
            for number in NUMBERS:
                fill(broker, topology.SUBMIT, "submit", bodies(token, JOBS))
                progress.reset()
                processes = [
                    site.scheduler("scheduler", name=f"scheduler-{uuid.uuid4().hex[:6]}") for _ in range(number)
                ]
                figures[f"scale_{number}_per_s"] = progress.rate(JOBS)
                for process in processes:
                    site.kill(process)
                fill(broker, "", "bare.in", bodies(token, JOBS))
                relays = [_relay(amqp_url) for _ in range(number)]
                figures[f"scale_bare_{number}_per_s"] = _measured(broker, ["bare.out"], JOBS)
                for relay in relays:
                    relay.kill()
                    relay.wait()
                _drain(amqp_url, [*jobs, "bare.out"])
            broker.close()
    for number in NUMBERS[1:]:
        for kind in ("scale", "scale_bare"):
            figures[f"{kind}_{number}_over_1"] = figures[f"{kind}_{number}_per_s"] / figures[f"{kind}_1_per_s"]  # type: ignore[operator]
    return figures


def _relay(url: str) -> subprocess.Popen[bytes]:
    """A bare relay that goes on until it is killed."""
    code = (
        f"import sys; sys.path[:0] = {json.dumps(sys.path[:3])}; import bench_relay;"
        f"bench_relay.bare({url!r}, 'bare.in', '', ['bare.out'], 1 << 60, prefetch=500)"
    )
    return subprocess.Popen([sys.executable, "-c", code])


if __name__ == "__main__":
    for name, value in run().items():
        print(f"{name:36} {value:12.2f}")
