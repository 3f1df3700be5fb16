"""Jobs that wait for other jobs, over three clusters: a chain, each job after the one before, and a diamond.

All are submitted at once, to agents as programs of their own with the dry-run executor, whose jobs take no time. How
long after its predecessor's end was recorded a job of the chain starts, and how many jobs of the diamond started before
a job that they wait for had ended (0).
"""

from __future__ import annotations

import itertools
import os
import tempfile
import time
import uuid
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from agentrig import Agents, ended
from rainbow import codec, topology
from rainbow.brokers.base import Message
from rig import Rig, resources
from servers_here import rabbitmq, redis

CHAIN = int(os.environ.get("RAINBOW_BENCH_CHAIN", "1000"))
DIAMOND = int(os.environ.get("RAINBOW_BENCH_DIAMOND", "10000"))


def submit(rig: Rig, jobs: list[dict[str, Any]]) -> None:
    """Each job has its `id`, and what it waits for."""
    for start in range(0, len(jobs), 500):
        bodies = [codec.encode_json({"token": rig.token, "command": ["true"], **job}) for job in jobs[start:][:500]]
        rig.submitter.publish([Message(topology.SUBMIT, "submit", body) for body in bodies]).check(60)


def chain(rig: Rig, count: int) -> dict[str, float | None]:
    ids = [str(uuid.uuid4()) for _ in range(count)]
    jobs: list[dict[str, Any]] = [{"id": ids[0]}]
    jobs += [{"id": job, "dependency": f"afterok:{before}"} for before, job in itertools.pairwise(ids)]
    submit(rig, jobs)
    records = ended(rig, ids, timeout=count + 120)
    times = [records[job]["times"] for job in ids]
    gaps = [1000 * (after["running"] - before["ended"]) for before, after in itertools.pairwise(times)]
    return {"chain_start_ms_median": median(gaps), "chain_start_ms_p95": quantiles(gaps, n=20)[-1]}


def diamond(rig: Rig, count: int) -> dict[str, float | None]:
    """One job, `count` that wait for it, and one for each hundred of these; at last one that waits for all of those."""
    first, last = str(uuid.uuid4()), str(uuid.uuid4())
    wide = [str(uuid.uuid4()) for _ in range(count)]
    groups = [wide[start : start + 100] for start in range(0, count, 100)]
    joins = [str(uuid.uuid4()) for _ in groups]
    waits: dict[str, list[str]] = {job: [first] for job in wide}
    waits |= dict(zip(joins, groups, strict=True))
    waits[last] = joins
    began = time.monotonic()
    submit(rig, [{"id": first}, *({"id": job, "dependency": f"afterok:{':'.join(on)}"} for job, on in waits.items())])
    records = ended(rig, [first, *waits], timeout=count / 20 + 120)
    took = time.monotonic() - began
    wrong = sum(
        records[job]["times"]["running"] < records[before]["times"]["ended"]
        for job, on in waits.items()
        for before in on
    )
    return {"diamond_per_s": len(records) / took, "diamond_out_of_order": float(wrong)}


def run() -> dict[str, float | None]:
    figures: dict[str, float | None] = {}
    for part, jobs in ((chain, CHAIN), (diamond, DIAMOND)):
        with (
            rabbitmq() as amqp_url,
            redis() as redis_url,
            tempfile.TemporaryDirectory(prefix="rainbow-bench-") as folder,
            Rig(amqp_url, redis_url, prefix="bench:") as rig,
        ):
            agents = Agents(rig, Path(folder))
            try:
                for name in ("red", "green", "blue"):
                    agents.program(name, graph=resources(nodes=4, cores=16, host=name), options={"run_s": 0.0})
                for name in ("red", "green", "blue"):
                    agents.known(name)
                figures |= part(rig, jobs)
            finally:
                agents.close()
    return figures


if __name__ == "__main__":
    for name, value in run().items():
        print(f"{name:36} {value:12.1f}")
