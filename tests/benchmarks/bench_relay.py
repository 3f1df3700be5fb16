"""The relay ratio: submissions through the real scheduler, over a bare pika loop that only moves them on.

Both read N messages of the same bodies from a quorum queue with the same prefetch, publish each as persistent with
confirms to one of a hundred quorum queues, those of the clusters, and ack after the confirm, on the same broker: the
broker has the same work and promises the same. The bare loop is pika's SelectConnection and takes the queues in turn,
nothing else. Ours also verifies the token, matches against 100 clusters, reserves in Redis, signs and dispatches. Each
runs as a process of its own, in turn, several times; the ratio is the median over the pairs.

`relay_one_queue_ratio` is over the same loop when it puts everything into one queue, which spares the broker the other
ninety-nine: how much of the difference that is, says `relay_one_queue_per_s` over `relay_bare_per_s`.

The bare loop sends on what it got. A dispatch is larger than its submission, since it is complete and signed:
`relay_alike_ratio` is over the same loop from our own queue into the clusters' own queues, with a dispatch of ours in
each message. What is left of the difference is the scheduler's own work.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median
from typing import Any

import pika

from processes import Site
from progress import Progress
from rainbow import codec, topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.brokers.base import Broker, Message
from rainbow.client import Client
from rainbow.errors import RainbowError
from rainbow.settings import load
from rainbow_workers.service import ServiceOptions
from rig import eventually, resources
from servers_here import rabbitmq, redis

JOBS = int(os.environ.get("RAINBOW_BENCH_JOBS", "20000"))
ROUNDS = int(os.environ.get("RAINBOW_BENCH_ROUNDS", "3"))
CLUSTERS = 100


def bodies(token: str, count: int) -> list[bytes]:
    return [
        codec.encode_json(
            {
                "token": token,
                "id": str(uuid.uuid4()),
                "command": ["lmp", "-in", "in.lj"],
                "nodes": 1 + number % 4,
                "cores_per_task": 1 + number % 8,
                "name": "lammps",
                "environment": {"OMP_NUM_THREADS": "8"},
            }
        )
        for number in range(count)
    ]


def fill(broker: Broker, exchange: str, key: str, messages: list[bytes]) -> None:
    for start in range(0, len(messages), 500):
        broker.publish([Message(exchange, key, b) for b in messages[start : start + 500]]).check(120)


def bare(
    url: str,
    source: str,
    exchange: str,
    keys: list[str],
    count: int,
    like: dict[str, Any] | None = None,
    prefetch: int = ServiceOptions.prefetch,
) -> dict[str, float]:
    """pika alone: consume, publish, ack after the confirm. Runs in this process until `count` are through.

    With `like` each message is this one: its `body` in hexadecimal, and its AMQP `properties`.
    """
    state = {"done": 0, "began": 0.0}
    waiting: dict[int, int] = {}
    published = 0

    def on_open(connection: pika.SelectConnection) -> None:
        connection.channel(on_open_callback=on_channel)

    def on_channel(channel: pika.channel.Channel) -> None:
        given = like["properties"] if like else {}
        replaced = bytes.fromhex(like["body"]) if like else None
        persistent = pika.BasicProperties(delivery_mode=2, content_type="application/x-msgpack", **given)

        def on_message(channel: pika.channel.Channel, method: object, properties: object, body: bytes) -> None:
            nonlocal published
            if not state["began"]:
                state["began"] = time.perf_counter()
            published += 1
            waiting[published] = method.delivery_tag  # type: ignore[attr-defined]
            channel.basic_publish(exchange, keys[published % len(keys)], replaced or body, persistent, mandatory=True)

        def on_confirm(frame: object) -> None:
            method = frame.method  # type: ignore[attr-defined]
            tags = [t for t in waiting if t <= method.delivery_tag] if method.multiple else [method.delivery_tag]
            for tag in tags:
                channel.basic_ack(waiting.pop(tag))
                state["done"] += 1
            if state["done"] >= count:
                connection.close()

        channel.confirm_delivery(on_confirm)
        channel.basic_qos(prefetch_count=prefetch)
        channel.basic_consume(source, on_message)

    connection = pika.SelectConnection(
        pika.URLParameters(url), on_open_callback=on_open, on_close_callback=lambda c, _: c.ioloop.stop()
    )
    cpu = time.process_time()
    connection.ioloop.start()
    wall = time.perf_counter() - state["began"]
    return {"per_s": count / wall, "cpu_us": (time.process_time() - cpu) / count * 1e6}


def _bare_process(*arguments: Any) -> float:
    """`bare` in a process of its own; messages a second."""
    code = (
        f"import sys, json; sys.path[:0] = {sys.path[:3]!r}; import bench_relay;"
        "print(json.dumps(bench_relay.bare(*json.load(sys.stdin))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(arguments),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return float(json.loads(done.stdout)["per_s"])


def _sample(url: str, names: list[str]) -> dict[str, Any]:
    """One of the messages in these queues, as `bare` takes it."""
    with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
        channel = connection.channel()
        for name in names:
            method, found, body = channel.basic_get(name, auto_ack=True)
            if method is not None:
                kept = ("headers", "message_id", "priority")
                return {"body": body.hex(), "properties": {what: getattr(found, what) for what in kept}}
    raise AssertionError("no message")


def _ours(site: Site, broker: Broker, progress: Progress, count: int) -> float:
    """Start a scheduler process on a filled queue; jobs/s from its first batch to its last."""
    progress.reset()
    process = site.scheduler("scheduler", name=f"scheduler-{uuid.uuid4().hex[:6]}")
    try:
        rate = progress.rate(count)
        jobs = [topology.jobs_queue(f"c{n}") for n in range(CLUSTERS)]
        eventually(lambda: sum(broker.stats(q).messages for q in jobs) == count, 60, every=0.2)
    finally:
        site.kill(process)
    return rate


def _drain(url: str, names: list[str]) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    for name in names:
        channel.queue_purge(name)
    connection.close()


def run() -> dict[str, float | None]:
    with rabbitmq() as amqp_url, redis() as redis_url, tempfile.TemporaryDirectory(prefix="rainbow-bench-") as folder:
        limits = {"dispatch_timeout": 3600}
        with (
            ExitStack() as stack,
            Site(Path(folder), amqp_url, redis_url, "bench:", log_level="warning", queues=limits) as site,
        ):
            registrar = site.scheduler("registrar", name="registrar")
            with Client(settings=load(site.config, {})) as client:
                eventually(lambda: _up(client), 60)
                for number in range(CLUSTERS):
                    graph = resources(nodes=4 + number % 16, cores=8 + number % 24)
                    client.register(f"c{number}", identity="the-benchmark", graph=graph)
            broker = connect(ConnectOptions(amqp_url))
            names = ["bare.in", "bare.out", *(f"bare.out.{n}" for n in range(CLUSTERS))]
            broker.declare(topology.Topology(queues=tuple(topology.Queue(n, max_length=None) for n in names)))
            token = site.token("alice")
            mine: list[float] = []
            bares: list[float] = []
            ones: list[float] = []
            alikes: list[float] = []
            clusters = [f"c{n}" for n in range(CLUSTERS)]
            stack.enter_context(progress := Progress(amqp_url))
            jobs = [topology.jobs_queue(name) for name in clusters]
            for _ in range(ROUNDS):
                for rates, targets in ((ones, names[1:2]), (bares, names[2:])):
                    fill(broker, "", "bare.in", bodies(token, JOBS))
                    rates.append(_bare_process(amqp_url, "bare.in", "", targets, JOBS))
                    _drain(amqp_url, targets)
                fill(broker, topology.SUBMIT, "submit", bodies(token, JOBS))
                mine.append(_ours(site, broker, progress, JOBS))
                like = _sample(amqp_url, jobs)
                _drain(amqp_url, jobs)
                fill(broker, topology.SUBMIT, "submit", bodies(token, JOBS))
                alikes.append(_bare_process(amqp_url, topology.SCHEDULER_QUEUE, topology.JOBS, clusters, JOBS, like))
                _drain(amqp_url, jobs)
            broker.close()
            site.kill(registrar)
    return {
        "relay_ratio": median(m / b for m, b in zip(mine, bares, strict=True)),
        "relay_one_queue_ratio": median(m / o for m, o in zip(mine, ones, strict=True)),
        "relay_alike_ratio": median(m / a for m, a in zip(mine, alikes, strict=True)),
        "relay_per_s": median(mine),
        "relay_bare_per_s": median(bares),
        "relay_one_queue_per_s": median(ones),
        "relay_alike_per_s": median(alikes),
    }


def _up(client: Client) -> bool:
    try:
        return bool(client.ping(timeout=2))
    except RainbowError:
        return False


if __name__ == "__main__":
    print(run())
