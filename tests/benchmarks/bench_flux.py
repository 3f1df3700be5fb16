"""The Flux ratio: jobs from the dispatch queue into Flux by the agent, over a plain pipelined loop of Flux's bindings.

Both hand the same jobspecs to the same instance, whose queue is stopped, so that taking jobs in is all that Flux does;
the loop keeps `WINDOW` submissions under way and does nothing else. The agent also checks each job's signature, writes
it down, has its event confirmed by the broker, releases it and acks. Each runs as a process of its own, in turn,
several times; the ratio is the median over the pairs. `flux_live_ratio` is the same while the instance starts and ends
the jobs as they come (it pretends to run them), and the agent follows them to their end, which the loop does not.

After that the agent follows `FOLLOWED` jobs at once, which wait in the stopped queue: its memory, and the processor
time it takes while nothing happens.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from agentrig import Agents, shell
from flux.conftest import Instance
from rig import Rig, eventually
from servers_here import rabbitmq

JOBS = int(os.environ.get("RAINBOW_BENCH_FLUX_JOBS", "1500"))
ROUNDS = int(os.environ.get("RAINBOW_BENCH_ROUNDS", "3"))
FOLLOWED = int(os.environ.get("RAINBOW_BENCH_FOLLOWED", "5000"))
WINDOW = 256
#: Seconds over which an idle agent is watched.
IDLE = 20.0

_BARE = """
import json, sys, time
import flux, flux.job
specs = [json.dumps(s) for s in json.load(open(sys.argv[1]))]
count, window = int(sys.argv[2]), int(sys.argv[3])
h = flux.Flux()
state = {"sent": 0, "done": 0}
def send():
    spec = specs[state["sent"] % len(specs)]
    state["sent"] += 1
    flux.job.submit_async(h, spec).then(done)
def done(future):
    flux.job.submit_get_id(future)
    state["done"] += 1
    if state["sent"] < count: send()
    elif state["done"] == count: h.reactor_stop()
flux.job.submit(h, specs[0])  # the validator is started with the first one
cpu, began = time.process_time(), time.perf_counter()
for _ in range(min(window, count)): send()
h.reactor_run()
wall = time.perf_counter() - began
print(json.dumps({"per_s": count / wall, "cpu_us": (time.process_time() - cpu) / count * 1e6}))
"""


def run() -> dict[str, float | None]:
    if shutil.which("flux") is None:
        return {"flux_ratio": None}
    _need_bindings()
    with (
        tempfile.TemporaryDirectory(prefix="rainbow-bench-", ignore_cleanup_errors=True) as folder,
        rabbitmq() as amqp_url,
        _flux(Path(folder) / "flux") as instance,
        Rig(amqp_url, f"memory://{uuid.uuid4().hex}") as rig,
    ):
        agents = Agents(rig, Path(folder))
        try:
            return _measure(rig, agents, instance, Path(folder))
        finally:
            agents.close()


def _paths() -> str:
    """A PYTHONPATH that has Flux's bindings."""
    shown = subprocess.run(["flux", "env", "printenv", "PYTHONPATH"], capture_output=True, text=True, check=True)
    return os.pathsep.join([*(p for p in sys.path if p), *shown.stdout.strip().split(":")])


def _need_bindings() -> None:
    tried = subprocess.run(
        [sys.executable, "-c", "import flux.job"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": _paths()},
    )
    if tried.returncode:
        why = tried.stderr.strip().splitlines()[-1]
        raise RuntimeError(f"this Python cannot import Flux's bindings: {why}: `pip install -e '.[flux]'`")


@contextlib.contextmanager
def _flux(folder: Path) -> Iterator[Instance]:
    kept = os.environ.copy()
    instance = Instance(folder, cores=64, nodes=64)
    os.environ["PYTHONPATH"] = _paths()
    os.environ["FLUX_URI"] = instance.uri
    try:
        yield instance
    finally:
        instance.stop()
        os.environ.clear()
        os.environ.update(kept)


def _measure(rig: Rig, agents: Agents, instance: Instance, folder: Path) -> dict[str, float | None]:
    journal = folder / "agents" / "state" / "blue" / "journal.sqlite"
    specs = folder / "specs.json"
    given: dict[str, Any] = {"executor": "flux", "graph": None, "report_every": 10.0}
    first = agents.program(**given)
    agents.known("blue")
    _fill(rig, 1)
    eventually(lambda: _accepted(journal) == 1, 60)
    _end(first)
    number = instance.command("jobs", "-a", "-n", "-o", "{id}").split()[0]
    sent = json.loads(instance.command("job", "info", "--original", number, "jobspec"))
    specs.write_text(json.dumps([sent]))
    pairs = {}
    for queue in ("start", "stop"):
        instance.command("queue", queue, "--all")
        pairs[queue] = [_pair(rig, agents, instance, journal, specs, given) for _ in range(ROUNDS)]
        for mine, bare in pairs[queue]:
            print(f"  queue {queue}: {mine['per_s']:.0f}/s over {bare['per_s']:.0f}/s", file=sys.stderr, flush=True)
    _empty(instance)
    live, stopped = pairs["start"], pairs["stop"]
    figures: dict[str, float | None] = {
        "flux_ratio": median(m["per_s"] / b["per_s"] for m, b in stopped),
        "flux_live_ratio": median(m["per_s"] / b["per_s"] for m, b in live),
        "flux_per_s": median(m["per_s"] for m, _ in stopped),
        "flux_bare_per_s": median(b["per_s"] for _, b in stopped),
        "flux_agent_cpu_us": median(m["cpu_us"] for m, _ in stopped),
        "flux_bare_cpu_us": median(b["cpu_us"] for _, b in stopped),
    }
    return {**figures, **_follow(rig, agents, journal, given)}


def _pair(
    rig: Rig, agents: Agents, instance: Instance, journal: Path, specs: Path, given: dict[str, Any]
) -> tuple[dict[str, float], dict[str, float]]:
    """The agent, and the loop before it."""
    _empty(instance)
    bare = _bare(specs)
    _empty(instance)
    _fill(rig, JOBS)
    # The scheduler's side is another machine's: here it would take the processor from what is measured.
    rig.service.stop()
    mine = _ours(agents, instance, journal, JOBS, given)
    rig.restart()
    return mine, bare


def _fill(rig: Rig, count: int) -> None:
    pretend = {"test": {"run_duration": "0.01s"}}
    for start in range(0, count, 500):
        some = range(min(500, count - start))
        jobs = [rig.send(jobspec=shell("true", duration=60, exec=pretend), clusters=["blue"]) for _ in some]
        for correlation in jobs:
            rig.answer(correlation, 60)


def _bare(specs: Path) -> dict[str, float]:
    command = [sys.executable, "-c", _BARE, str(specs), str(JOBS), str(WINDOW)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _ours(agents: Agents, instance: Instance, journal: Path, count: int, given: dict[str, Any]) -> dict[str, float]:
    """From the first job that Flux has, released, to the last. It then sees them end: the next agent would look up
    each of them first."""
    before = _accepted(journal)
    process = agents.program(**given)
    eventually(lambda: _accepted(journal) > before, 60, every=0.001)
    began, first, cpu = time.perf_counter(), _accepted(journal) - before, _cpu(process.pid)
    # Not more often: each look is a scan of the journal, on the processors that are measured.
    eventually(lambda: _accepted(journal) >= before + count, 300, every=0.05)
    wall, spent = time.perf_counter() - began, _cpu(process.pid) - cpu
    _empty(instance)
    eventually(lambda: _active(journal) == 0, 120, every=0.2)
    _end(process)
    return {"per_s": (count - first) / wall, "cpu_us": spent / (count - first) * 1e6}


def _follow(rig: Rig, agents: Agents, journal: Path, given: dict[str, Any]) -> dict[str, float | None]:
    before = _accepted(journal)
    process = agents.program(**given)
    _fill(rig, FOLLOWED)
    eventually(lambda: _accepted(journal) >= before + FOLLOWED, 600, every=0.2)
    time.sleep(5.0)  # what came of them is told by then
    cpu, began = _cpu(process.pid), time.perf_counter()
    time.sleep(IDLE)
    cores = (_cpu(process.pid) - cpu) / (time.perf_counter() - began)
    status = Path(f"/proc/{process.pid}/status").read_text()
    kilobytes = int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])
    _end(process)
    return {"flux_followed_mb": kilobytes / 1024, "flux_idle_cores": cores}


def _accepted(journal: Path) -> int:
    """Jobs that Flux has and that were released."""
    return _count(journal, "handle IS NOT NULL AND released")


def _active(journal: Path) -> int:
    return _count(journal, "state IN ('accepted', 'running')")


def _count(journal: Path, which: str) -> int:
    if not journal.exists():
        return 0
    with contextlib.closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True, timeout=10)) as db:
        try:
            return int(db.execute(f"SELECT count(*) FROM jobs WHERE {which}").fetchone()[0])
        except sqlite3.OperationalError:  # not made yet
            return 0


def _empty(instance: Instance) -> None:
    """No jobs in the instance: each round begins as the one before."""
    instance.command("cancel", "--all", "-q")
    eventually(lambda: instance.command("jobs", "-n", "-c", "1", "-o", "{id}") == "", 120, every=0.2)


def _cpu(pid: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(60)


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
