"""Agents and schedulers are killed while jobs are taken back from clusters: none is lost, none runs twice.

The oracle is the file to which each job writes a line as it starts.
"""

from __future__ import annotations

import random
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentrig import Agents, ended, shell, submit
from processes import Site
from rainbow import codec, topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.brokers.base import Message
from rainbow.client import Client
from rainbow.errors import RainbowError
from rainbow.settings import load
from rainbow_workers.scheduling.waiting import WaitingPolicy
from rainbow_workers.service import ServiceOptions
from rig import Rig, eventually, resources

pytestmark = pytest.mark.timeout(240)

ONE = resources(nodes=1, cores=1)


class Starts:
    """The file that jobs write to."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "ran"

    def script(self, then: str = "") -> str:
        return f"echo $RAINBOW_JOB_ID >> {self.file}; {then}"

    def check(self, ids: list[str]) -> None:
        assert Counter(self.file.read_text().split()) == Counter(ids)


@pytest.fixture
def starts(tmp_path: Path) -> Starts:
    return Starts(tmp_path)


@pytest.fixture
def rig(amqp_url: str) -> Iterator[Rig]:
    options = ServiceOptions(waiting=WaitingPolicy(recall=0.2))
    with Rig(amqp_url, f"memory://{uuid.uuid4()}", options=options) as rig:
        yield rig


@pytest.fixture
def agents(rig: Rig, tmp_path: Path) -> Iterator[Agents]:
    made = Agents(rig, tmp_path)
    yield made
    made.close()


STEPS = ["begin", "recall", "progress", "confirm", "finish"]


def test_an_agent_is_killed_after_each_step_of_a_recall(
    rig: Rig, agents: Agents, starts: Starts, tmp_path: Path
) -> None:
    """Each dying agent holds one job that runs and one that waits, which then runs here or on the other cluster."""
    agents.start("red", executor="local", graph=ONE, state_dir=tmp_path / "red")
    agents.program("blue", executor="local", graph=ONE)
    agents.known("blue")
    program = tmp_path / "dying.py"
    program.write_text(DYING)
    ids: list[str] = []
    for step in STEPS:
        agents.stop_programs()
        rig.rpc.call({"op": "drain", "cluster": "red", "reason": "not yet"})
        with (tmp_path / "dying.log").open("ab") as log:
            command = [sys.executable, str(program), str(tmp_path / "agents" / "blue.yaml"), step]
            process = subprocess.Popen(command, stdout=log, stderr=log)
        go = tmp_path / f"go-{step}"
        wait = starts.script(f"while [ ! -e {go} ]; do sleep 0.05; done")
        [first] = submit(rig, 1, partial(_script, wait))
        [second] = submit(rig, 1, partial(_script, starts.script()))
        rig.until(first, "running")
        rig.until(second, "accepted")
        rig.rpc.call({"op": "resume", "cluster": "red"})
        assert process.wait(30) == 9, (tmp_path / "dying.log").read_text()[-3000:]
        agents.program("blue", executor="local", graph=ONE)
        eventually(partial(moved_or_waits, rig, second), 30)
        go.touch()
        ids += [first, second]
        records = ended(rig, [first, second])
        assert {r["state"] for r in records.values()} == {"completed"}, step
    starts.check(ids)


def _script(text: str, _number: int) -> dict[str, Any]:
    return shell(text)


def moved_or_waits(rig: Rig, job: str) -> bool:
    """Whether a job is over on the other cluster, or will start here."""
    record = rig.job(job)
    assert record is not None
    return record["state"] == "completed" or (record["state"], record["cluster"]) == ("accepted", "blue")


#: An agent that dies once a step of its first recall is done.
DYING = """
import os, sys
step = sys.argv[2]
from rainbow_agents import journal
from rainbow_agents.executors import local
from rainbow_agents.intake import finalizer
from rainbow_agents.journal import recalls
recalled = []
def wrap(owner, name, dies):
    plain = getattr(owner, name)
    def wrapped(self, *args, **kwargs):
        out = plain(self, *args, **kwargs)
        if name == "begin" and out:
            recalled.append(True)
        if dies and recalled:
            os._exit(9)
        return out
    setattr(owner, name, wrapped)
wrap(recalls.Recalls, "begin", step == "begin")
wrap(local.LocalExecutor, "recall", step == "recall")
wrap(journal.Journal, "progress", step == "progress")
wrap(finalizer.Finalizer, "_confirm", step == "confirm")
wrap(finalizer.Finalizer, "_finish", step == "finish")
from rainbow_agents.cli import main
sys.argv = ["rainbow-agent", "run", "--config", sys.argv[1]]
main()
"""

ROUNDS, EACH = 5, 8


def test_agents_and_schedulers_are_killed_at_random_while_jobs_move(
    amqp_url: str, redis_url: str, redis_prefix: str, tmp_path: Path, starts: Starts
) -> None:
    """Each round fills one cluster far ahead while the other one is drained; then the other one is resumed."""
    chance = random.Random(17)
    graphs = {name: resources(nodes=1, cores=2, host=name) for name in ("blue", "red")}
    scheduler: dict[str, Any] = {"waiting": {"recall": 0.2, "share": 3.0}}
    with Site(tmp_path, amqp_url, redis_url, redis_prefix, log_level="warning", scheduler=scheduler) as site:
        schedulers = {name: site.scheduler(name=name) for name in ("one", "two")}
        agents = {name: site.agent(name, graph, executor="local", options={}) for name, graph in graphs.items()}
        broker = connect(ConnectOptions(amqp_url))
        token, ids = site.token("alice"), list[str]()
        with Client(settings=load(site.config, {})) as client:
            site.served(client, len(graphs))

            def open_ones() -> list[Any]:
                """Which are not over, and what is known of them."""
                try:
                    found = zip(ids, client.status(ids), strict=True)
                except RainbowError as exc:
                    return [exc.code]
                return [r and (i, r.state, r.cluster, r.history) for i, r in found if r is None or not r.terminal]

            for number in range(ROUNDS):
                full, other = ("blue", "red") if number % 2 else ("red", "blue")
                eventually(partial(drained, client, other), 30, every=0.1)
                new = [str(uuid.uuid4()) for _ in range(EACH)]
                job = {"token": token, "jobspec": shell(starts.script("sleep 1"))}
                bodies = [codec.encode_json({**job, "id": i}) for i in new]
                broker.publish([Message(topology.SUBMIT, "submit", b) for b in bodies]).check(30)
                ids += new
                eventually(partial(accepted, client, new), 60, every=0.1)
                client.resume(other)
                eventually(lambda: chance.random() < 0.3, 2, every=0.1)
                if number % 2:
                    site.kill_schedulers(schedulers, chance, times=1, down=(0.0, 0.3), up=(0.0, 0.1))
                site.kill(agents[full])
                agents[full] = site.agent(full, graphs[full], executor="local", options={})
                eventually(lambda: open_ones() == [], 60, every=0.2)
            records = [r for r in client.status(ids) if r is not None]
        broker.close()
    assert {r.state for r in records} == {"completed"}
    starts.check(ids)
    moved = [r for r in records if any(e.get("code") == "recalled" for e in r.history)]
    assert moved, "no job was recalled"
    assert all(r.attempt > 1 for r in moved)


def drained(client: Client, cluster: str) -> bool:
    try:
        client.drain(cluster, "for the test")
    except RainbowError:
        return False
    return True


def accepted(client: Client, ids: list[str]) -> bool:
    """Whether a cluster has all of them."""
    try:
        return all(r is not None and r.state not in ("submitted", "held", "assigned") for r in client.status(ids))
    except RainbowError:
        return False
