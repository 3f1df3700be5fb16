"""Jobs that must wait: three clusters of unequal speed against one pool of all their cores.

Three clusters of 16 cores, whose jobs of one core take 0.5, 1 and 4 s (agents as programs of their own, dry-run
executor), get 1,000 jobs at once, with default settings. One pool would start the last one after about 19 s. Beside how
long it took: how much of the fastest cluster was idle while jobs waited for room, how many jobs were handed out twice
(0).

And what lies between the end of a job and the release of the next one: a cluster of one core, for which 60 jobs wait.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from bisect import bisect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from agentrig import Agents, ended, shell
from rainbow import codec, topology
from rainbow.brokers.base import Message
from rig import Rig, resources
from servers_here import rabbitmq, redis

JOBS = int(os.environ.get("RAINBOW_BENCH_WAITING_JOBS", "1000"))
CORES = 16
SECONDS = {"fast": 0.5, "middle": 1.0, "slow": 4.0}


def ideal(jobs: int, clusters: dict[str, float] = SECONDS, cores: int = CORES) -> float:
    """Seconds until one pool of these cores, each as fast as its cluster's, has started all jobs."""
    return jobs / sum(cores / seconds for seconds in clusters.values())


def submit(rig: Rig, jobs: int) -> list[str]:
    ids = [str(uuid.uuid4()) for _ in range(jobs)]
    for start in range(0, jobs, 500):
        bodies = [codec.encode_json({"token": rig.token, "id": i, "jobspec": shell("true")}) for i in ids[start:][:500]]
        rig.submitter.publish([Message(topology.SUBMIT, "submit", b) for b in bodies]).check(60)
    return ids


def measure(rig: Rig, agents: Agents, jobs: int, **settings: Any) -> dict[str, float | None]:
    """Submit `jobs` at once, and wait for their end."""
    for name, seconds in SECONDS.items():
        graph = resources(nodes=1, cores=CORES, host=name)
        agents.program(name, graph=graph, options={"run_s": seconds}, report_every=10.0, **settings)
    for name in SECONDS:
        agents.known(name)
    ids = submit(rig, jobs)
    records = ended(rig, ids, timeout=20 * ideal(jobs) + 60).values()
    began = min(r["times"]["submitted"] for r in records)
    last = max(r["times"]["running"] for r in records)
    empty = max(r["times"]["assigned"] for r in records)  # from here on nothing could go to the fastest cluster
    fast = [r["times"] for r in records if r["cluster"] == "fast"]
    busy = sum(max(0.0, min(empty, times["ended"]) - times["running"]) for times in fast)
    return {
        "waiting_over_ideal": (last - began) / ideal(jobs),
        "waiting_fastest_idle_share": 1 - busy / (CORES * (empty - began)),
        "waiting_handed_out_again": float(sum(r["attempt"] > 1 for r in records)),
    }


def release(rig: Rig, agents: Agents, jobs: int = 60, seconds: float = 0.3) -> dict[str, float | None]:
    """From the end of each job to when the next job that waits was assigned there."""
    agents.program("one", graph=resources(nodes=1, cores=1, host="one"), options={"run_s": seconds})
    agents.known("one")
    ids = submit(rig, jobs)
    records = list(ended(rig, ids, timeout=5 * jobs * seconds + 60).values())
    released = sorted(r["times"]["assigned"] for r in records)
    ends = [r["times"]["ended"] for r in records]
    took = [1000 * (released[at] - end) for end in ends if (at := bisect(released, end)) < jobs]
    return {"waiting_release_ms_median": median(took), "waiting_release_ms_p95": quantiles(took, n=20)[-1]}


def run() -> dict[str, float | None]:
    figures: dict[str, float | None] = {}
    parts: list[tuple[str, Callable[[Rig, Agents], dict[str, float | None]]]] = [
        ("", partial(measure, jobs=JOBS)),
        ("_max_queued", partial(measure, jobs=JOBS, max_queued=16)),
        ("", release),
    ]
    for name, part in parts:
        with (
            rabbitmq() as amqp_url,
            redis() as redis_url,
            tempfile.TemporaryDirectory(prefix="rainbow-bench-") as folder,
            Rig(amqp_url, redis_url, prefix="bench:") as rig,
        ):
            agents = Agents(rig, Path(folder))
            try:
                found = part(rig, agents)
            finally:
                agents.close()
            figures |= {f"{key}{name}": value for key, value in found.items()}
    return figures


if __name__ == "__main__":
    for name, value in run().items():
        print(f"{name:36} {value:12.3f}")
