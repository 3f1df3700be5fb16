"""`rainbow bulk` over a bare pipelined publisher: whole processes, the same jobs, durable and confirmed.

The bare one is pika's SelectConnection, publishing bodies that are ready, and nothing else. Ours reads lines, checks
each as the scheduler will, adds id and token, publishes, and prints the ids. In turn, several times; the ratio is the
median over the pairs. The queue is emptied in between; no scheduler runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import pika

from processes import Site
from rainbow import topology
from rainbow.brokers import ConnectOptions, connect
from servers_here import rabbitmq

JOBS = int(os.environ.get("RAINBOW_BENCH_JOBS", "20000"))
ROUNDS = int(os.environ.get("RAINBOW_BENCH_ROUNDS", "3"))


def lines(count: int) -> list[str]:
    return [
        json.dumps({"command": ["lmp", "-in", f"in.{n}"], "nodes": 1 + n % 4, "environment": {"OMP_NUM_THREADS": "8"}})
        for n in range(count)
    ]


def bare(url: str, file: str, exchange: str, token: str) -> None:
    """Publish what is in `file`, a body a line, and end when all are confirmed. At most 4,000 wait for it."""
    with open(file, "rb") as text:
        # As long as ours are: with a token and an id.
        rest = f'"token": "{token}", "id": "6f1c1f7e-3f0e-4c56-9a53-2f1f0f6c8a11", "version": 1'.encode()
        bodies = [line.rstrip()[:-1] + b", " + rest + b"}" for line in text]
    persistent = pika.BasicProperties(delivery_mode=2, content_type="application/json")
    state = {"sent": 0, "done": 0}

    def on_open(connection: pika.SelectConnection) -> None:
        connection.channel(on_open_callback=on_channel)

    def on_channel(channel: pika.channel.Channel) -> None:
        def send() -> None:
            while state["sent"] < len(bodies) and state["sent"] - state["done"] < 4000:
                channel.basic_publish(exchange, "submit", bodies[state["sent"]], persistent, mandatory=True)
                state["sent"] += 1

        def on_confirm(frame: object) -> None:
            method = frame.method  # type: ignore[attr-defined]
            state["done"] = method.delivery_tag if method.multiple else state["done"] + 1
            if state["done"] >= len(bodies):
                connection.close()
            elif state["sent"] - state["done"] < 2000:
                send()

        channel.confirm_delivery(on_confirm)
        send()

    connection = pika.SelectConnection(
        pika.URLParameters(url), on_open_callback=on_open, on_close_callback=lambda c, _: c.ioloop.stop()
    )
    connection.ioloop.start()


def _timed(command: list[str], env: dict[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL, timeout=600)
    return time.perf_counter() - began


def run() -> dict[str, float | None]:
    with rabbitmq() as url, tempfile.TemporaryDirectory(prefix="rainbow-bench-") as folder:
        file = Path(folder) / "jobs.jsonl"
        file.write_text("".join(f"{line}\n" for line in lines(JOBS)))
        with Site(Path(folder), url, "memory://", "bench:") as site:
            broker = connect(ConnectOptions(url))
            broker.declare(topology.core())
            token = site.token("alice")
            config = site.settings_of("alice", "submit")
            env = {**os.environ, "RAINBOW_CONFIG": str(config)}
            here = str(Path(__file__).parent)
            path = [here, str(Path(here).parent / "support"), str(Path(here).parent / "system")]
            code = (
                f"import sys; sys.path[:0] = {path!r}; import bench_bulk;"
                f"bench_bulk.bare({url!r}, {str(file)!r}, {topology.SUBMIT!r}, {token!r})"
            )
            programs = {
                "bare": [sys.executable, "-c", code],
                "ours": [sys.executable, "-m", "rainbow.cli", "bulk", str(file)],
            }
            walls: dict[str, list[float]] = {name: [] for name in programs}
            for _ in range(ROUNDS):
                for name, command in programs.items():
                    walls[name].append(_timed(command, env))
                    if broker.stats(topology.SCHEDULER_QUEUE).messages != JOBS:
                        raise AssertionError(f"{name}: {broker.stats(topology.SCHEDULER_QUEUE)}")
                    _purge(url)
            broker.close()
    pairs = zip(walls["bare"], walls["ours"], strict=True)
    return {
        "bulk_ratio": median(b / o for b, o in pairs),
        "bulk_per_s": JOBS / median(walls["ours"]),
        "bulk_bare_per_s": JOBS / median(walls["bare"]),
    }


def _purge(url: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    connection.channel().queue_purge(topology.SCHEDULER_QUEUE)
    connection.close()


if __name__ == "__main__":
    print(run())
