"""A queue that somebody deleted, with jobs in it: it is made again, and what went with it ends `lost`."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrig import Agents, ended, shell, submit
from rainbow import topology
from rainbow_workers.registry.operations import barring
from rig import Rig, eventually, resources


@pytest.fixture
def rig(amqp_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setattr(barring, "_LAST_WORDS", 5.0)
    with Rig(amqp_url, f"memory://{uuid.uuid4()}") as rig:
        yield rig


def test_a_dispatch_that_is_nowhere_ends_lost(rig: Rig) -> None:
    """S25: not before the agent had time to say what it had taken; and nothing that was assigned afterwards."""
    rig.register("blue")
    gone, taken = (rig.submit(command=["true"])["id"] for _ in range(2))
    time.sleep(0.1)
    rig.broker.delete([topology.jobs_queue("blue")])
    time.sleep(2)  # RabbitMQ 3.10 loses what is confirmed into a quorum queue that is declared again at once
    rig.register("blue")
    fresh = rig.submit(command=["true"])["id"]
    assert rig.job(gone)["state"] == "assigned"  # type: ignore[index]
    rig.event("blue", taken, 1, "accepted")
    record = rig.until(gone, "lost", 30)
    assert "submit it again" in record["detail"]
    eventually(lambda: not rig.service.world.clusters["blue"].record.emptied_at, 60)
    assert rig.job(fresh)["state"] == "assigned"  # type: ignore[index]
    assert rig.job(taken)["state"] == "accepted"  # type: ignore[index]


def test_an_agent_whose_queue_is_gone_has_it_made_again(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S02: nobody has to declare it by hand."""
    monkeypatch.setattr("rainbow_agents.parts.HOUSEKEEPING", 2.0)
    agents = Agents(rig, tmp_path)
    try:
        agent = agents.start(graph=resources())
        assert {r["state"] for r in ended(rig, submit(rig, 2, lambda _: shell("true"))).values()} == {"completed"}
        rig.broker.delete([topology.jobs_queue("blue")])
        eventually(lambda: agent.state == "paused", 30)
        assert not agent.health().ok
        eventually(lambda: agent.state == "running", 60)
        assert {r["state"] for r in ended(rig, submit(rig, 2, lambda _: shell("true"))).values()} == {"completed"}
    finally:
        agents.close()
