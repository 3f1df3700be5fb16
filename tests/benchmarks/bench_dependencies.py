"""Jobs that wait for other jobs, on three clusters: agents as programs, dry-run executor, jobs of no length.

A chain of 1,000, each after the one before; then a diamond: one, 1,000 that wait for it, one that waits for these. How
long it takes from the end of a job, as its agent saw it, until the next one is assigned: the way of the event to the
recorder is in it. And how many were assigned before what they wait for had ended (0).
"""

from __future__ import annotations

import os
import statistics
import tempfile
import uuid
from pathlib import Path
from typing import Any

from agentrig import Agents, ended, shell
from rainbow import codec, topology
from rainbow.brokers.base import Message
from rig import Rig, resources
from servers_here import rabbitmq, redis

JOBS = int(os.environ.get("RAINBOW_BENCH_CHAIN", "1000"))
CLUSTERS = ("one", "two", "three")


def measure(rig: Rig, waits: dict[str, list[str]]) -> list[float]:
    """Submit all at once. Returns seconds from the last end that a job waits for until it is assigned."""
    messages = []
    for one, others in waits.items():
        fields: dict[str, Any] = {"token": rig.token, "id": one, "jobspec": shell("true")}
        if others:
            fields["dependency"] = f"afterok:{':'.join(others)}"
        messages.append(Message(topology.SUBMIT, "submit", codec.encode_json(fields)))
    for start in range(0, len(messages), 500):
        rig.submitter.publish(messages[start : start + 500]).check(60)
    records = ended(rig, waits, timeout=120 + len(waits))
    assert {r["state"] for r in records.values()} == {"completed"}
    return [
        records[one]["times"]["assigned"] - max(records[other]["times"]["ended"] for other in others)
        for one, others in waits.items()
        if others
    ]


def run() -> dict[str, float | None]:
    chain = [str(uuid.uuid4()) for _ in range(JOBS)]
    first, last, *middle = (str(uuid.uuid4()) for _ in range(JOBS + 2))
    with (
        rabbitmq() as amqp_url,
        redis() as redis_url,
        tempfile.TemporaryDirectory(prefix="rainbow-bench-") as folder,
        Rig(amqp_url, redis_url, prefix="bench:") as rig,
    ):
        agents = Agents(rig, Path(folder))
        try:
            for name in CLUSTERS:
                agents.program(name, graph=resources(nodes=1, cores=16, host=name), options={"run_s": 0.0})
            for name in CLUSTERS:
                agents.known(name)
            steps = measure(rig, {one: chain[max(0, at - 1) : at] for at, one in enumerate(chain)})
            diamond = measure(rig, {first: [], **{one: [first] for one in middle}, last: middle})
        finally:
            agents.close()
    steps.sort()
    return {
        "dependency_ms_median": 1000 * statistics.median(steps),
        "dependency_ms_p99": 1000 * steps[int(0.99 * (len(steps) - 1))],
        "diamond_last_ms": 1000 * diamond[-1],
        "dependency_too_early": float(sum(step < 0 for step in (*steps, *diamond))),
    }
