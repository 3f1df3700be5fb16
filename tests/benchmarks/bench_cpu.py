"""Where the scheduler's processor time goes, job by job: microseconds of its threads, and of the Redis server.

A scheduler in this process on real RabbitMQ and Redis places jobs on 100 clusters; the stages are timed by the clock of
their thread, so that waiting does not count. `new` are jobs that were never seen (each with another command), which
are parsed and matched; `repeat` are those that differ from earlier ones by their id alone.
"""

from __future__ import annotations

import os
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import redis as redis_client

from rainbow import codec, topology
from rainbow.brokers.base import Message
from rainbow_workers.scheduling.dispatcher import Dispatcher
from rainbow_workers.service import ServiceOptions
from rig import Rig, eventually, resources
from servers_here import rabbitmq, redis

JOBS = int(os.environ.get("RAINBOW_BENCH_JOBS", "6000"))
CLUSTERS = 100


class Clock:
    """Time of the calling thread spent in what it is wrapped around, inner stages taken off the outer ones."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self._inner: list[float] = []

    def around(self, owner: Any, name: str, stage: str) -> Callable[[], None]:
        whole = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            self._inner.append(0.0)
            began = time.thread_time()
            try:
                return whole(*args, **kwargs)
            finally:
                took = time.thread_time() - began
                self.spent[stage] += took - self._inner.pop()
                if self._inner:
                    self._inner[-1] += took

        setattr(owner, name, timed)
        return lambda: setattr(owner, name, whole)


def _thread_seconds(native_id: int) -> float:
    with open(f"/proc/self/task/{native_id}/schedstat") as file:
        return int(file.read().split()[0]) / 1e9


def _bodies(rig: Rig, count: int, repeat: bool) -> list[bytes]:
    return [
        codec.encode_json(
            {
                "token": rig.token,
                "id": str(uuid.uuid4()),
                "command": ["lmp", "-in", "in.lj" if repeat else f"in.{n}"],
                "nodes": 1 + n % 4,
                "cores_per_task": 1 + n % 8,
                "environment": {"OMP_NUM_THREADS": "8"},
            }
        )
        for n in range(count)
    ]


def _filled(rig: Rig, queues: list[str], count: int) -> bool:
    return sum(rig.broker.stats(q).messages for q in queues) >= count


def run() -> dict[str, float | None]:
    figures: dict[str, float | None] = {}
    with rabbitmq() as amqp_url, redis() as redis_url:
        # The registrar and the scheduler alone: their threads do not get in each other's way.
        options = ServiceOptions(workers=("scheduler", "registrar"))
        with Rig(amqp_url, redis_url, prefix="bench:", options=options) as rig:
            for number in range(CLUSTERS):
                rig.register(f"c{number}", graph=resources(nodes=4 + number % 16, cores=8 + number % 24))
            scheduler = next(w for w in rig.service.workers if w.task_name == "scheduler")
            task: Any = scheduler._task
            dispatcher: Dispatcher = task._dispatcher
            deciding, committing = dispatcher._deciding, dispatcher._committing
            publishing = dispatcher._publishing
            io = rig.worker_broker._io._thread.native_id  # type: ignore[attr-defined]
            server = redis_client.Redis.from_url(redis_url)
            for kind in ("new", "repeat"):
                clock = Clock()
                undo = [
                    clock.around(task, "handle", "rest"),
                    clock.around(codec, "decode", "decode"),
                    clock.around(task._intake._verifier, "verify", "token"),
                    clock.around(task._intake, "read", "read"),
                    clock.around(deciding._decider, "_candidates", "match"),
                    clock.around(deciding._decider, "decide", "select"),
                    clock.around(committing._store.jobs, "assigning", "reserve"),
                    clock.around(committing, "_wait", "reserve"),
                    clock.around(publishing._outgoing, "dispatch", "encode"),
                    clock.around(publishing._broker, "publish", "amqp_frames"),
                ]
                bodies = _bodies(rig, JOBS, kind == "repeat")
                jobs = [topology.jobs_queue(f"c{n}") for n in range(CLUSTERS)]
                before = sum(rig.broker.stats(q).messages for q in jobs)
                io_before, redis_before = _thread_seconds(io), _redis_seconds(server)
                for start in range(0, JOBS, 500):
                    messages = [Message(topology.SUBMIT, "submit", b) for b in bodies[start : start + 500]]
                    rig.submitter.publish(messages).check(120)
                eventually(partial(_filled, rig, jobs, before + JOBS), 300, every=0.05)
                clock.spent["amqp_io"] = _thread_seconds(io) - io_before
                for restore in undo:
                    restore()
                spent = {stage: seconds / JOBS * 1e6 for stage, seconds in clock.spent.items()}
                figures |= {f"cpu_{kind}_{stage}_us": value for stage, value in sorted(spent.items())}
                figures[f"cpu_{kind}_us"] = sum(spent.values())
                figures[f"cpu_{kind}_redis_us"] = (_redis_seconds(server) - redis_before) / JOBS * 1e6
    return figures


def _redis_seconds(server: Any) -> float:
    info = server.info("cpu")
    return float(info["used_cpu_user"] + info["used_cpu_sys"])


if __name__ == "__main__":
    for name, value in run().items():
        print(f"{name:36} {value:12.1f}")
