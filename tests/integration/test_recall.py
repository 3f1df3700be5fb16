"""Jobs that wait on a cluster go to one that is idle: taken by its agent and not started, or not taken at all."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentrig import Agents, ended, shell
from rainbow_workers.scheduling import rebinding
from rainbow_workers.scheduling.waiting import WaitingPolicy
from rainbow_workers.service import ServiceOptions
from rig import Rig, eventually, resources

OPTIONS = ServiceOptions(retry_after=0.5, waiting=WaitingPolicy(recall=0.5))


@pytest.fixture(params=["memory", "servers"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    urls, prefix = (f"memory://{uuid.uuid4()}",) * 2, "rainbow:"
    if request.param == "servers":
        urls = request.getfixturevalue("amqp_url"), request.getfixturevalue("redis_url")
        prefix = request.getfixturevalue("redis_prefix")
    with Rig(*urls, prefix=prefix, options=OPTIONS) as made:
        yield made


@pytest.fixture
def agents(rig: Rig, tmp_path: Path) -> Iterator[Agents]:
    made = Agents(rig, tmp_path)
    yield made
    made.close()


def start(agents: Agents, cluster: str, seconds: float) -> None:
    graph = resources(nodes=1, cores=4, host=cluster)
    state = agents.folder / cluster
    agents.start(
        cluster, graph=graph, options={"run_s": seconds, "log": str(agents.folder / "starts")}, state_dir=state
    )


def one_waits_on(rig: Rig, agents: Agents, cluster: str) -> str:
    """Four jobs run there, and another one is ahead: its id."""
    start(agents, cluster, 30.0)
    ids = [rig.submit(jobspec=shell("true"))["id"] for _ in range(5)]
    for job in ids[:4]:
        rig.until(job, "running")
    rig.until(ids[4], "accepted")
    return str(ids[4])


def moves(record: dict[str, Any]) -> list[tuple[int, str, str | None]]:
    """What the ledger says of refusals: attempt, code, and why."""
    return [(e["attempt"], e["code"], e["detail"]) for e in record["history"] if e["state"] == "rejected"]


def starts(agents: Agents, job: str) -> list[str]:
    return [line.split()[1] for line in (agents.folder / "starts").read_text().splitlines() if line.startswith(job)]


def test_a_job_that_has_not_started_goes_to_an_idle_cluster(rig: Rig, agents: Agents) -> None:
    job = one_waits_on(rig, agents, "slow")
    began = time.monotonic()
    start(agents, "fast", 0.1)
    record = ended(rig, [job])[job]
    assert time.monotonic() - began < 20, "it did not wait for the slow one"
    assert (record["state"], record["cluster"], record["attempt"]) == ("completed", "fast", 2)
    assert moves(record) == [
        (1, "recalled", "taken back before it started: slow has not started it, and fast has room")
    ]
    assert starts(agents, job) == ["2"]
    running = rig.rpc.call({"op": "jobs", "state": "running"})["jobs"]
    assert len(running) == 4, "what has started stays"


def test_a_drained_cluster_gives_back_what_has_not_started(rig: Rig, agents: Agents) -> None:
    start(agents, "fast", 0.1)
    rig.rpc.call({"op": "drain", "cluster": "fast", "reason": "not yet"})
    job = one_waits_on(rig, agents, "slow")
    rig.rpc.call({"op": "drain", "cluster": "slow", "reason": "maintenance"})
    rig.rpc.call({"op": "resume", "cluster": "fast"})
    record = ended(rig, [job])[job]
    assert (record["state"], record["cluster"]) == ("completed", "fast")
    assert moves(record) == [(1, "recalled", "taken back before it started: slow is drained, and fast has room")]


def test_what_an_agent_does_not_take_goes_elsewhere(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its executor is down: the agent lives, and takes no jobs."""
    monkeypatch.setattr(rebinding, "_CLOSED", 0.5)
    rig.register("blue", resources(nodes=1, cores=4, host="blue"))
    rig.report("blue", nodes_free=1, cores_free=4, gpus_free=0, jobs_pending=0)
    answer = rig.submit(jobspec=shell("true"))
    assert answer["cluster"] == "blue"
    rig.report("blue", nodes_free=0, cores_free=0, gpus_free=0, jobs_pending=0, closed="the agent is executor-down")
    eventually(lambda: "blue" in rig.service.world.closed.reasons)
    rig.register("red", resources(nodes=1, cores=4, host="red"))
    rig.report("red", nodes_free=1, cores_free=4, gpus_free=0, jobs_pending=0)
    [delivery] = rig.jobs_of("red").take(1, 20)
    dispatch = rig.open(delivery)
    assert (dispatch["id"], dispatch["attempt"]) == (answer["id"], 2)
    record = rig.job(answer["id"])
    assert record is not None
    assert record["cluster"] == "red"
