"""The agent killed, frozen, cut off: each job starts exactly once. The oracle is the file every job writes a line to.

Real RabbitMQ, the real scheduler side, jobs of the `local` executor that really run.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentrig import Agents, ended, shell, submit
from rainbow import topology
from rig import Rig, eventually, resources

#: Wide enough that jobs do not queue for long.
WIDE = resources(nodes=8, cores=8)


@pytest.fixture
def rig(amqp_url: str) -> Iterator[Rig]:
    with Rig(amqp_url, f"memory://{uuid.uuid4()}") as rig:
        yield rig


class Ledger:
    """The file jobs write to, one line each as they start."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "ran"

    def script(self, then: str = "") -> str:
        return f"echo $RAINBOW_JOB_ID >> {self.file}; {then}"

    def starts(self) -> Counter[str]:
        return Counter(self.file.read_text().split()) if self.file.exists() else Counter()

    def check(self, ids: list[str]) -> None:
        starts = self.starts()
        twice = [job for job, count in starts.items() if count > 1]
        missing = [job for job in ids if job not in starts]
        assert (twice, missing) == ([], []), f"{len(twice)} started twice, {len(missing)} never"


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path)


def kill_often(agents: Agents, ledger: Ledger, count: int, kills: int, **given: Any) -> int:
    """Kill the agent at random instants, starting it anew each time, until all jobs ran. Gives the number of kills."""
    process = agents.program(executor="local", graph=WIDE, **given)
    done = 0
    deadline = time.monotonic() + 240
    while len(ledger.starts()) < count and time.monotonic() < deadline:
        time.sleep(random.uniform(0.2, 2.5))
        if done < kills:
            process.kill()
            process.wait()
            process = agents.program(executor="local", graph=WIDE, **given)
            done += 1
    return done


def test_killed_at_random(rig: Rig, agents: Agents, ledger: Ledger) -> None:
    """S05, I2: kill -9 at random instants over some hundred jobs."""
    agents.program(executor="local", graph=WIDE).kill()
    count = 150
    first = agents.program(executor="local", graph=WIDE)
    agents.known("blue")
    first.kill()
    first.wait()
    ids = submit(rig, count, lambda _: shell(ledger.script()))
    kills = kill_often(agents, ledger, count, 12)
    records = ended(rig, ids, 240)
    ledger.check(ids)
    assert {r["state"] for r in records.values()} == {"completed"}, Counter(r["state"] for r in records.values())
    assert kills > 0


def test_jobs_go_on_while_the_agent_is_dead(rig: Rig, agents: Agents, ledger: Ledger, tmp_path: Path) -> None:
    process = agents.program(executor="local", graph=WIDE)
    agents.known("blue")
    (job,) = submit(rig, 1, lambda _: shell(ledger.script(f"while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; exit 9")))
    rig.until(job, "running", 60)
    process.kill()
    process.wait()
    (tmp_path / "go").touch()
    agents.program(executor="local", graph=WIDE)
    record = ended(rig, [job])[job]
    assert (record["state"], record["returncode"]) == ("failed", 9)
    ledger.check([job])


def test_frozen_while_a_second_agent_takes_over(rig: Rig, agents: Agents, ledger: Ledger) -> None:
    """S08: the broker gives a frozen agent's deliveries to the second one; when the first wakes up it stands down."""
    frozen = agents.program(executor="local", graph=WIDE)
    agents.known("blue")
    ids = submit(rig, 40, lambda _: shell(ledger.script()))
    eventually(lambda: ledger.starts(), 60)
    frozen.send_signal(signal.SIGSTOP)
    agents.program(executor="local", graph=WIDE)
    ids += submit(rig, 40, lambda _: shell(ledger.script()))
    # The frozen one's deliveries come back once the broker misses its heartbeats. (The second agent may have to wait
    # for the journal, if the first was frozen while it wrote: it is safe then, and goes on after.)
    gone = 0

    def alone() -> bool:
        nonlocal gone
        gone = gone + 1 if rig.broker.stats(topology.jobs_queue("blue")).consumers <= 1 else 0
        return gone >= 20

    eventually(alone, 120, every=0.5)
    frozen.send_signal(signal.SIGCONT)
    records = ended(rig, ids, 120)
    ledger.check(ids)
    assert {r["state"] for r in records.values()} == {"completed"}


def test_two_agents_share_the_queue(rig: Rig, agents: Agents, ledger: Ledger) -> None:
    """S11: neither takes more than its prefetch, both work, nothing runs twice; one of them is killed on the way."""
    first = agents.program(executor="local", graph=WIDE, prefetch=4)
    agents.known("blue")
    agents.program(executor="local", graph=WIDE, prefetch=4)
    ids = submit(rig, 80, lambda _: shell(ledger.script()))
    eventually(lambda: len(ledger.starts()) > 10, 120)
    first.kill()
    records = ended(rig, ids, 240)
    ledger.check(ids)
    assert {r["state"] for r in records.values()} == {"completed"}


def test_stand_by_takes_over_at_once(rig: Rig, agents: Agents, ledger: Ledger) -> None:
    active = agents.program(executor="local", graph=WIDE)
    agents.known("blue")
    agents.program(executor="local", graph=WIDE, role="stand-by")
    ids = submit(rig, 5, lambda _: shell(ledger.script()))
    ended(rig, ids)
    active.kill()
    ids += submit(rig, 5, lambda _: shell(ledger.script()))
    ended(rig, ids)
    ledger.check(ids)


def took_over(agents: Agents, before: int) -> bool:
    return agents.log().count('"taking jobs"') > before


def test_rolling_restarts_lose_and_double_nothing(rig: Rig, agents: Agents, ledger: Ledger) -> None:
    """S61: SIGTERM under load, again and again: exits 0 within its grace, gives back what it holds."""
    process = agents.program(executor="local", graph=WIDE)
    agents.known("blue")
    ids: list[str] = []
    for _ in range(4):
        ids += submit(rig, 25, lambda _: shell(ledger.script()))
        process.terminate()
        assert process.wait(30) == 0
        before = agents.log().count('"taking jobs"')
        process = agents.program(executor="local", graph=WIDE)
        eventually(partial(took_over, agents, before), 60)
    records = ended(rig, ids, 240)
    ledger.check(ids)
    assert {r["state"] for r in records.values()} == {"completed"}
    assert {r["attempt"] for r in records.values()} == {1}


@pytest.mark.parametrize("moment", ["assigned", "accepted", "running"])
def test_cancel_survives_a_kill_at_each_state(
    moment: str, rig: Rig, agents: Agents, ledger: Ledger, tmp_path: Path
) -> None:
    """S40: a confirmed cancel holds, whatever is restarted right after."""
    one = resources(nodes=1, cores=1)
    given: dict[str, Any] = {"executor": "local", "graph": one, "options": {"kill_after": 0.5}}
    process = agents.program(**given)
    agents.known("blue")
    blocker: list[str] = []
    if moment == "accepted":
        blocker = submit(rig, 1, lambda _: shell("sleep 300"))
        rig.until(blocker[0], "running", 60)
    if moment == "assigned":
        process.kill()
        process.wait()
    (job,) = submit(rig, 1, lambda _: shell(ledger.script("sleep 300")))
    rig.until(job, moment, 60)
    if moment == "running":
        eventually(ledger.starts, 60)
    rig.rpc.call({"op": "cancel", "ids": [job, *blocker]})
    process.kill()
    process.wait()
    agents.program(**given)
    record = ended(rig, [job, *blocker])[job]
    assert record["state"] == "cancelled"
    rig.rpc.call({"op": "cancel", "ids": [job]})  # a second one is harmless
    assert len(ledger.starts()) == (1 if moment == "running" else 0)


POISON = """
import os, sys
from rainbow_agents.executors import local
plain = local.LocalExecutor.submit
def submit(self, works):
    if any(work.name == "poison" and work.mark.attempt == 1 for work in works):
        os._exit(9)
    plain(self, works)
local.LocalExecutor.submit = submit
from rainbow_agents.cli import main
sys.argv = ["rainbow-agent", "run", "--config", sys.argv[1]]
main()
"""


def test_a_poison_job_is_refused_after_three_tries_and_alone(
    rig: Rig, agents: Agents, ledger: Ledger, tmp_path: Path
) -> None:
    """S21, S22: a job that kills its agent each time it is taken; the nine beside it all run."""
    agents.program(executor="local", graph=WIDE).terminate()
    first = agents.program(executor="local", graph=WIDE)
    agents.known("blue")
    first.kill()
    first.wait()
    good = submit(rig, 5, lambda _: shell(ledger.script()))
    (bad,) = submit(rig, 1, lambda _: shell("true"), name="poison")
    good += submit(rig, 4, lambda _: shell(ledger.script()))
    program = tmp_path / "poisoned.py"
    program.write_text(POISON)
    config = tmp_path / "agents" / "blue.yaml"
    deaths = 0
    with (tmp_path / "poisoned.log").open("ab") as log:
        for _ in range(10):
            process = subprocess.Popen([sys.executable, str(program), str(config)], stdout=log, stderr=log)
            try:

                def settled(running: subprocess.Popen[bytes] = process) -> bool:
                    record = rig.rpc.call({"op": "status", "ids": [bad]})["jobs"][0]
                    return running.poll() is not None or record["state"] == "rejected" or record["attempt"] > 1

                eventually(settled, 120)
                if process.poll() is None:
                    break
                deaths += 1
            finally:
                if process.poll() is not None:
                    process.wait()
        records = ended(rig, good)
        process.terminate()
        process.wait(30)
    assert deaths == 3
    assert {r["state"] for r in records.values()} == {"completed"}
    ledger.check(good)
    history = rig.rpc.call({"op": "status", "ids": [bad]})["jobs"][0]["history"]
    refused = next(h for h in history if h["state"] == "rejected")
    assert refused["code"] == "error"
    assert "3 times" in refused["detail"]


def test_killed_right_after_each_step(rig: Rig, agents: Agents, ledger: Ledger, tmp_path: Path) -> None:
    """S05: the five instants around one start: after submit, written down, confirmed, released, acked."""
    steps = ["submit", "decide", "confirm", "release", "ack"]
    agents.program(executor="local", graph=WIDE).terminate()
    first = agents.program(executor="local", graph=WIDE)
    agents.known("blue")
    first.kill()
    first.wait()
    program = tmp_path / "dying.py"
    program.write_text(DYING)
    config = tmp_path / "agents" / "blue.yaml"
    ids: list[str] = []
    for step in steps:
        ids += submit(rig, 1, lambda _: shell(ledger.script()), name=f"dies-after-{step}")
        with (tmp_path / "dying.log").open("ab") as log:
            process = subprocess.Popen([sys.executable, str(program), str(config), step], stdout=log, stderr=log)
        assert process.wait(60) == 9, (tmp_path / "dying.log").read_text()[-3000:]
    agents.program(executor="local", graph=WIDE)
    records = ended(rig, ids, timeout=240)
    ledger.check(ids)
    assert {r["state"] for r in records.values()} == {"completed"}


DYING = """
import os, sys
step = sys.argv[2]
from rainbow_agents import journal
from rainbow_agents.intake import finalizer
from rainbow_agents.executors import local
def dies_after(owner, name):
    plain = getattr(owner, name)
    def wrapped(self, *args, **kwargs):
        out = plain(self, *args, **kwargs)
        if not name == "release" or args[0]:
            os._exit(9)
        return out
    setattr(owner, name, wrapped)
if step == "submit":
    dies_after(local.LocalExecutor, "submit")
elif step == "decide":
    dies_after(journal.Journal, "decide")
elif step == "confirm":
    dies_after(finalizer.Finalizer, "_confirm")
elif step == "release":
    dies_after(local.LocalExecutor, "release")
elif step == "ack":
    dies_after(finalizer.Finalizer, "_finish")
from rainbow_agents.cli import main
sys.argv = ["rainbow-agent", "run", "--config", sys.argv[1]]
main()
"""


def test_a_second_program_on_the_same_folder_shares_identity(agents: Agents) -> None:
    agents.program(executor="local", graph=WIDE)
    agents.known("blue")
    second = agents.program(executor="local", graph=WIDE)
    eventually(lambda: agents.log().count('"taking jobs"') >= 2 or second.poll() is not None, 60)
    assert second.poll() is None
    assert os.path.exists(agents.folder / "agents" / "state" / "blue" / "identity")
