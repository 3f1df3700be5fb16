"""The agent beside a real Flux: registers itself from R, runs jobs, and starts each exactly once whatever is killed."""

from __future__ import annotations

import os
import random
import signal
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agentrig import Agents, ended, shell, submit
from rig import Rig, eventually


@pytest.mark.usefixtures("flux_uri", "flux_bindings")
class TestBesideFlux:
    def test_registers_itself_from_r_and_runs_a_job(self, rig: Rig, agents: Agents) -> None:
        agents.start(executor="flux", graph=None)
        known = agents.known("blue")
        assert known["totals"] == {"node": 1, "core": 8} | {
            k: v for k, v in known["totals"].items() if k not in ("node", "core")
        }
        eventually(lambda: agents.known("blue")["state"].get("cores_free") == 8, 60)
        record = rig.until(rig.submit(jobspec=shell("echo hello; exit 3"))["id"], "failed", 60)
        assert (record["returncode"], record["output"]) == (3, "hello\n")
        assert record["flux_id"].startswith("f")

    def test_cancel_reaches_flux(self, rig: Rig, agents: Agents) -> None:
        agents.start(executor="flux", graph=None)
        answer = rig.submit(jobspec=shell("sleep 300"))
        rig.until(answer["id"], "running", 60)
        rig.rpc.call({"op": "cancel", "ids": [answer["id"]]})
        rig.until(answer["id"], "cancelled", 60)

    def test_simple_form_and_nextgen_run_too(self, rig: Rig, agents: Agents, tmp_path: Path) -> None:
        agents.start(executor="flux", graph=None)
        answer = rig.submit(command=["/bin/echo", "simple"], tasks=2)
        assert rig.until(answer["id"], "completed", 60)["output"] == "simple\nsimple\n"
        nextgen = {
            "version": 1,
            "resources": {"one": {"type": "core", "count": 1}},
            "tasks": [
                {"name": "first", "command": ["/bin/sh", "-c", f"echo 1 >> {tmp_path}/order"], "resources": "one"},
                {
                    "name": "second",
                    "command": ["/bin/sh", "-c", f"echo 2 >> {tmp_path}/order"],
                    "resources": "one",
                    "depends_on": ["first"],
                },
            ],
        }
        record = rig.until(rig.submit(jobspec=nextgen)["id"], "completed", 60)
        assert len(record["flux_id"].split(",")) == 2
        assert (tmp_path / "order").read_text() == "1\n2\n"

    def test_held_jobs_nobody_wrote_down_are_swept(self, rig: Rig, agents: Agents, flux_instance: Any) -> None:
        """As an agent leaves them that was killed between submitting and writing down."""
        from rainbow_agents.executors.base import Capacity, Context, ExecutorEvent
        from rainbow_agents.executors.flux import FluxExecutor
        from rainbow_agents.executors.testing import Rig as ExecutorRig

        agent = agents.start(executor="flux", graph=None)
        owner = agent.identity.owner
        agent.stop()

        def make(listener: Any) -> FluxExecutor:
            return FluxExecutor(Context("blue", owner, Path("/"), Capacity()), listener)

        executors = ExecutorRig(make)
        orphan = executors.submit(executors.work("true"))
        told: list[ExecutorEvent] = executors.told
        agents.start(executor="flux", graph=None)
        ended = executors.wait_for("Ended", orphan.mark)
        assert ended.state == "cancelled"
        assert told
        executors.executor.close()


@pytest.mark.usefixtures("flux_bindings")
def test_flux_away_and_back(rig: Rig, agents: Agents, own_instance: Any) -> None:
    """A frozen Flux: nothing is rejected or lost, the report says so, and work goes on by itself."""
    instance = own_instance()
    agent = agents.start(executor="flux", graph=None, report_every=1.0)
    ended(rig, submit(rig, 3, lambda _: shell("true")))
    pid = instance.broker()
    os.kill(pid, signal.SIGSTOP)
    try:
        eventually(lambda: agent.state == "executor-down", 60)
        eventually(lambda: agents.known("blue")["state"]["agent_state"] == "executor-down", 60)
        ids = [rig.send(jobspec=shell("true")) for _ in range(5)]
    finally:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: agent.state == "running", 60)
    answers = [rig.answer(i, 60)["id"] for i in ids]
    assert {r["state"] for r in ended(rig, answers).values()} == {"completed"}


@pytest.mark.usefixtures("flux_bindings")
def test_flux_replaced_by_a_fresh_instance(rig: Rig, agents: Agents, own_instance: Any) -> None:
    """What ran is lost, and told so; new jobs run; no id of the fresh instance is taken for an old job's."""
    first = own_instance("first")
    agent = agents.start(executor="flux", graph=None, parts={"reconcile_every": 1.0})
    long = rig.submit(jobspec=shell("sleep 300"))["id"]
    rig.until(long, "running", 60)
    os.kill(first.broker(), signal.SIGKILL)
    first.stop()
    eventually(lambda: agent.state == "executor-down", 60)
    own_instance("second")
    record = ended(rig, [long])[long]
    assert record["state"] == "lost"
    assert rig.until(rig.submit(jobspec=shell("true"))["id"], "completed", 60)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("executor", "count"), [("flux", 2000), ("flux-cli", 400)])
def test_killed_at_random_each_job_starts_once(
    executor: str, count: int, amqp_url: str, own_instance: Any, flux_bindings: None, tmp_path: Path
) -> None:
    """kill -9 of the agent at random instants while jobs come in: the file has each job exactly once."""
    own_instance()
    name = uuid.uuid4()
    with Rig(amqp_url, f"memory://{name}") as rig:
        agents = Agents(rig, tmp_path)
        env_path = os.pathsep.join(p for p in __import__("sys").path if p)
        os.environ["PYTHONPATH"] = env_path
        try:
            process = agents.program(executor=executor, graph=None)
            agents.known("blue")
            ids: list[str] = []
            kills = 0
            # A kill for each hundred jobs or less, each somewhere between their arrival and their start.
            while len(ids) < count:
                ids += submit(rig, random.randint(20, 100), lambda n: shell(f"echo $RAINBOW_JOB_ID >> {tmp_path}/ran"))
                time.sleep(random.choice([0.0, 0.05, 0.2, 1.0]) * random.random())
                process.kill()
                process.wait()
                process = agents.program(executor=executor, graph=None)
                kills += 1
                if random.random() < 0.5:  # long enough to take some before the next
                    agents.known("blue")
                    time.sleep(random.uniform(0.0, 3.0))
            records = ended(rig, ids, 600)
        finally:
            agents.close()
            del os.environ["PYTHONPATH"]
    lines = Counter((tmp_path / "ran").read_text().split())
    assert {r["state"] for r in records.values()} == {"completed"}
    assert set(lines) == set(ids)
    assert max(lines.values()) == 1
    assert kills >= count // 100
