"""What the reports of many clusters cost: processor time of a registrar, as a share of one core.

10,000 clusters report every 10 s, each with a token of its own, one in three asking for an answer as agents do: 1,000
reports a second for 20 s, onto a registrar process with real RabbitMQ and Redis.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from bench_relay import _up
from processes import Site
from rainbow import codec, topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.brokers.base import REPLIES, Message
from rainbow.client import Client
from rainbow.models.cluster import ClusterRecord
from rainbow.resources import read_graph
from rainbow.settings import load
from rainbow_workers.stores import StoreOptions, open_store
from rig import eventually, resources
from servers_here import rabbitmq, redis

CLUSTERS = int(os.environ.get("RAINBOW_BENCH_CLUSTERS", "10000"))
SECONDS = 20
EVERY = 10


def run() -> dict[str, float | None]:
    with rabbitmq() as amqp_url, redis() as redis_url, tempfile.TemporaryDirectory(prefix="rainbow-bench-") as folder:
        with Site(Path(folder), amqp_url, redis_url, "bench:", log_level="warning") as site:
            names = [f"c{n}" for n in range(CLUSTERS)]
            tokens = [site.token(f"agent-{name}", "agent", name) for name in names]
            summary = read_graph(resources())
            store = open_store(StoreOptions(redis_url, prefix="bench:"))
            for name in names:
                store.clusters.put(
                    ClusterRecord(
                        name=name,
                        registration="r",
                        identity="i",
                        summary=summary.to_bytes(),
                        digest=summary.digest,
                        owner=f"agent-{name}",
                    ),
                    None,
                )
            process = site.scheduler("registrar", name="registrar")
            with Client(settings=load(site.config, {})) as client:
                eventually(lambda: _up(client), 60)
            broker = connect(ConnectOptions(amqp_url))
            replies = broker.consume(REPLIES, prefetch=1000)
            round_of = [_report(n, names[n], tokens[n], replies.address) for n in range(CLUSTERS)]
            answers = 0
            for warming in (True, False):
                before, began = _cpu(process.pid), time.perf_counter()
                tick = CLUSTERS // EVERY // 20
                for number in range((EVERY if warming else SECONDS) * 20):
                    at = number * tick % CLUSTERS
                    broker.publish(round_of[at : at + tick]).check(30)
                    answers += len(replies.take(1000, 0))
                    time.sleep(max(0.0, began + (number + 1) / 20 - time.perf_counter()))
                eventually(lambda: broker.stats(topology.CONTROL_QUEUE).messages == 0, 60)
                spent, wall = _cpu(process.pid) - before, time.perf_counter() - began
            assert answers > 0
            seen = store.clusters.changes(0).states
            assert len(seen) == CLUSTERS
            assert all(state.values["nodes_free"] == 4 for state in seen.values())
            memory = _memory_mb(process.pid)
            broker.close()
            store.close()
    return {
        "heartbeats_per_s": CLUSTERS / EVERY,
        "heartbeats_cores": spent / wall,
        "heartbeats_us": spent / (CLUSTERS / EVERY * SECONDS) * 1e6,
        "registrar_mb_10000": memory,
    }


def _report(number: int, name: str, token: str, address: str) -> Message:
    values = {"nodes_free": 4, "cores_free": 32, "gpus_free": 0, "jobs_pending": 0, "jobs_running": 0}
    report = {"cluster": name, "values": values, "included": [], "heartbeat": True, "registration": "r"}
    return Message(
        topology.CONTROL,
        "state",
        codec.encode_json({"op": "state", "version": 1, "token": token, "report": report}),
        reply_to=address if number % 3 == 1 else None,
        correlation_id=name,
    )


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


if __name__ == "__main__":
    print(run())
