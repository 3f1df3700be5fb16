"""End to end against Celery on the same broker: durable, confirmed, late acks; jobs or tasks a second.

Celery: `apply_async` with publisher confirms, a solo worker, `task_acks_late`, prefetch 100, a task that does nothing.
rainbow: submissions published with confirms, scheduled onto one of two clusters, taken by agents (dry-run executor),
and recorded as completed. Both from the first publish to the last end, in turn, several times; the ratio is the median
over the pairs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from statistics import median

from processes import Site
from rainbow.client import Client
from rainbow.errors import RainbowError
from rainbow.settings import load
from rainbow_workers.stores import StoreOptions, open_store
from rig import eventually, resources
from servers_here import rabbitmq, redis

JOBS = int(os.environ.get("RAINBOW_BENCH_JOBS", "6000"))
ROUNDS = int(os.environ.get("RAINBOW_BENCH_ROUNDS", "3"))

_APP = """
from celery import Celery
app = Celery("bench", broker={url!r})
app.conf.update(task_acks_late=True, worker_prefetch_multiplier=100, task_ignore_result=True,
                broker_transport_options={{"confirm_publish": True}}, task_default_delivery_mode="persistent",
                worker_hijack_root_logger=False)
@app.task(name="nothing")
def nothing(path, number):
    if number:
        open(path, "w").close()
"""

_SUBMIT = """
import sys; sys.path.insert(0, {folder!r})
from bench_app import nothing
with nothing.app.connection_for_write() as connection:
    producer = nothing.app.amqp.Producer(connection)
    for number in range({count}):
        nothing.apply_async(({end!r}, int(number == {count} - 1)), producer=producer)
"""


def celery(url: str, count: int) -> float:
    """Tasks a second from the first publish to the end of the last task."""
    with tempfile.TemporaryDirectory(prefix="rainbow-bench-") as folder:
        (Path(folder) / "bench_app.py").write_text(_APP.format(url=url))
        end = Path(folder) / "end"
        worker = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "bench_app", "worker", "-P", "solo", "-c", "1", "-l", "error"],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "C_FORCE_ROOT": "1"},
        )
        try:
            time.sleep(5)
            code = _SUBMIT.format(folder=folder, count=count, end=str(end))
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True, timeout=600)
            eventually(end.exists, 300, every=0.01)
            return count / (time.perf_counter() - began)
        finally:
            worker.terminate()
            worker.wait(20)


def rainbow(amqp_url: str, redis_url: str, count: int) -> float:
    """Jobs a second from the first publish to the last record that is complete."""
    with tempfile.TemporaryDirectory(prefix="rainbow-bench-") as folder:
        with Site(Path(folder), amqp_url, redis_url, "bench:", log_level="warning") as site:
            site.scheduler()
            settings = load(site.config, {})
            with Client(settings=settings, timeout=120) as client:
                eventually(lambda: _up(client), 60)
                for name in ("red", "blue"):
                    site.agent(name, resources(nodes=64, cores=32))
                eventually(lambda: sum(c.alive for c in client.clusters()) == 2, 60)
                ids = [str(uuid.uuid4()) for _ in range(count)]
                jobs = [{"id": i, "command": ["true"], "nodes": 1} for i in ids]
                store = open_store(StoreOptions(redis_url, prefix="bench:"))
                began = time.perf_counter()
                for start in range(0, count, 500):
                    client.submit_many(jobs[start : start + 500])  # type: ignore[arg-type]
                eventually(lambda: _over(store, ids), 300, every=0.1)
                wall = time.perf_counter() - began
                store.close()
    return count / wall


def _over(store: object, ids: list[str]) -> bool:
    # The last one first: looking at all of them all the time would take from what is measured.
    parts = (ids[-1:], *(ids[start : start + 1000] for start in range(0, len(ids), 1000)))
    return all(r is not None and r.terminal for part in parts for r in store.jobs.get(part))  # type: ignore[attr-defined]


def _up(client: Client) -> bool:
    try:
        return bool(client.ping(timeout=2))
    except RainbowError:
        return False


def run() -> dict[str, float | None]:
    theirs, ours = [], []
    for _ in range(ROUNDS):
        with rabbitmq() as amqp_url, redis() as redis_url:
            theirs.append(celery(amqp_url, JOBS))
            ours.append(rainbow(amqp_url, redis_url, JOBS))
    print("  pairs:", ", ".join(f"{o:.0f} over {t:.0f}" for o, t in zip(ours, theirs, strict=True)), file=sys.stderr)
    return {
        "celery_ratio": median(o / t for o, t in zip(ours, theirs, strict=True)),
        "celery_per_s": median(theirs),
        "rainbow_per_s": median(ours),
    }


if __name__ == "__main__":
    print(run())
