"""Jobs that are held here while their delivery is gone: what becomes of them is what the ledger says."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentrig import shell
from rainbow.backoff import Backoff
from rainbow.client.rpc import Rpc
from rainbow.models.job import JobEvent
from rainbow_agents.executors.base import Capacity, Context
from rainbow_agents.executors.dry_run import DryRunExecutor
from rainbow_agents.executors.testing import Rig as ExecutorRig
from rainbow_agents.intake import held_jobs
from rainbow_agents.intake.held_jobs import HeldJobReconciler
from rainbow_agents.journal import Journal
from rig import Rig, eventually


@pytest.fixture
def rig() -> Iterator[Rig]:
    name = uuid.uuid4()
    with Rig(f"memory://{name}", f"memory://{name}") as rig:
        rig.register("blue")
        yield rig


class Agent:
    """What of an agent matters here: a journal, an executor with one held job, and the ledger to ask."""

    def __init__(self, rig: Rig, folder: Path) -> None:
        self.rig = rig
        self.journal = Journal(folder / "journal.sqlite", cluster="blue")
        context = Context("blue", "owner", folder, Capacity(1, 4))
        self.executor = ExecutorRig(lambda listener: DryRunExecutor(context, listener))
        self.limbo = HeldJobReconciler(self.journal, rig.rpc, "blue", self.executor.executor, after=60.0)
        self.work = self.executor.work("true")

    def hold(self, job: str, attempt: int = 1) -> None:
        """Job `job` as it is after `accepted` was written down, and before it was released."""
        from dataclasses import replace

        self.work = replace(self.work, mark=replace(self.work.mark, id=job, attempt=attempt))
        assert self.journal.take([(self.work.mark, "alice", None, 16)]) == {self.work.mark}
        self.executor.submit(self.work)
        decided = self.journal.decide([self.executor.wait_for("Submitted", self.work.mark)], [])
        assert len(decided.accepted) == 1

    def look(self, later: float = 61.0) -> None:
        self.limbo.look(lambda: time.time() + later)

    @property
    def state(self) -> tuple[str | None, bool]:
        """The journal's word on the job, and whether it was let start."""
        row = self.journal.get(self.work.mark.id, self.work.mark.attempt)
        return (row.state if row else None, self.executor.count("Started", self.work.mark) == 1)

    @property
    def ended(self) -> str | None:
        ends: list[Any] = [t for t in self.executor.told if type(t).__name__ == "Ended"]
        return ends[0].state if ends else None


@pytest.fixture
def agent(rig: Rig, tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(rig, tmp_path)
    yield agent
    agent.executor.executor.close()
    agent.journal.close()


def submit(rig: Rig) -> str:
    answer = rig.submit(jobspec=shell("true"))
    assert (answer["cluster"], answer["attempt"]) == ("blue", 1)
    job: str = answer["id"]
    return job


def test_it_starts_when_the_ledger_has_it_accepted_here(rig: Rig, agent: Agent) -> None:
    job = submit(rig)
    rig.event("blue", job, 1, "accepted")
    rig.until(job, "accepted")
    agent.hold(job)
    agent.look(later=59.0)
    assert agent.state == ("accepted", False), "its delivery may still come back"
    agent.look()
    assert agent.state == ("accepted", True)
    agent.look(later=1000.0)
    assert agent.executor.count("Started", agent.work.mark) == 1


def test_those_left_by_the_agent_before_start_without_waiting(rig: Rig, agent: Agent) -> None:
    job = submit(rig)
    rig.event("blue", job, 1, "accepted")
    rig.until(job, "accepted")
    agent.hold(job)
    agent.limbo.confirm_left()
    agent.look(later=0.0)
    assert agent.state == ("accepted", True)


def test_one_that_stays_in_doubt_does_not_hold_up_the_next(
    rig: Rig, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger is asked more and more rarely about the first, and at once about the second."""
    monkeypatch.setattr(held_jobs, "_SOON", 0.02)
    monkeypatch.setattr(held_jobs, "Backoff", lambda *_: Backoff(0.02, 600.0, 30_000.0))
    asked = threading.Event()

    class Asked(Rpc):
        def call(self, *given: Any, **more: Any) -> Any:
            asked.set()
            return rig.rpc.call(*given, **more)

    limbo = HeldJobReconciler(agent.journal, Asked(rig.connect("asked"), token="-"), "blue", agent.executor.executor)
    stop = threading.Event()
    thread = threading.Thread(target=limbo.run, args=(stop,))
    agent.hold(str(uuid.uuid4()))
    limbo.confirm([(agent.work.mark.id, agent.work.mark.attempt)])
    thread.start()
    try:
        for _ in range(2):
            assert asked.wait(10)
            asked.clear()
        job = submit(rig)
        rig.event("blue", job, 1, "accepted")
        rig.until(job, "accepted")
        agent.hold(job)
        limbo.confirm([(job, 1)])
        eventually(lambda: agent.state == ("accepted", True), 20)
    finally:
        stop.set()
        thread.join(10)


def test_it_waits_while_the_ledger_only_has_it_assigned(rig: Rig, agent: Agent) -> None:
    agent.hold(submit(rig))
    agent.look()
    assert agent.state == ("accepted", False)
    assert agent.ended is None


def test_it_is_dropped_when_the_job_has_ended_or_gone_on(rig: Rig, agent: Agent) -> None:
    job = submit(rig)
    rig.event("blue", job, 1, "lost")
    rig.until(job, "lost")
    agent.hold(job)
    agent.look()
    assert agent.state[1] is False
    assert agent.ended == "cancelled"
    assert agent.journal.active() == []


def test_an_older_attempt_is_dropped(rig: Rig, agent: Agent) -> None:
    job = submit(rig)
    again = JobEvent(id=job, attempt=7, cluster="blue", state="assigned", at=time.time())
    rig.store.jobs.record([again])
    agent.hold(job, attempt=1)
    agent.look()
    assert agent.state[1] is False
    assert agent.ended == "cancelled"


def test_it_is_cancelled_when_that_was_asked_for(rig: Rig, agent: Agent) -> None:
    job = submit(rig)
    rig.event("blue", job, 1, "accepted")
    rig.until(job, "accepted")
    agent.hold(job)
    rig.rpc.call({"op": "cancel", "ids": [job]})
    agent.look()
    assert agent.state[1] is False
    assert agent.ended == "cancelled"


def test_one_the_ledger_does_not_know_waits_a_day_for_it_to_come_back(agent: Agent) -> None:
    agent.hold(str(uuid.uuid4()))
    agent.look(later=80_000.0)
    assert agent.state == ("accepted", False)
    assert agent.ended is None
    agent.look(later=90_000.0)
    assert agent.ended == "cancelled"
    assert agent.journal.active() == []


def test_nothing_happens_while_the_ledger_cannot_be_asked(rig: Rig, agent: Agent, tmp_path: Path) -> None:
    job = submit(rig)
    rig.event("blue", job, 1, "accepted")
    rig.until(job, "accepted")
    agent.hold(job)
    nobody = Rpc(rig.connect("nobody"), token="not a token")
    refused = HeldJobReconciler(agent.journal, nobody, "blue", agent.executor.executor, after=60.0)
    refused.look(lambda: time.time() + 61)
    assert agent.state == ("accepted", False)
    assert agent.ended is None


def test_one_that_the_executor_lost_ends_lost_when_the_ledger_has_it_here(rig: Rig, agent: Agent) -> None:
    job = submit(rig)
    rig.event("blue", job, 1, "accepted")
    rig.until(job, "accepted")
    agent.hold(job)
    agent.journal.lose(agent.journal.active(), "gone")
    agent.look(later=59.0)
    assert agent.state == ("returned", False), "its delivery may still come back"
    agent.look()
    assert agent.state == ("lost", False)
    assert [p.event.state for p in agent.journal.outbox.due(100)][-1:] == ["lost"]


def test_one_that_the_executor_lost_is_left_alone_when_the_job_is_elsewhere(rig: Rig, agent: Agent) -> None:
    job = submit(rig)
    rig.store.jobs.record([JobEvent(id=job, attempt=7, cluster="blue", state="assigned", at=time.time())])
    agent.hold(job, attempt=1)
    agent.journal.lose(agent.journal.active(), "gone")
    agent.look()
    agent.look()
    assert agent.state == ("returned", False)
