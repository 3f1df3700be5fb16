"""What an agent does not take goes to a cluster that is idle."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from agentrig import shell
from rainbow_workers.scheduling import rebinding
from rainbow_workers.service import ServiceOptions
from rig import Rig, eventually, resources


@pytest.fixture(params=["memory", "servers"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    urls, prefix = (f"memory://{uuid.uuid4()}",) * 2, "rainbow:"
    if request.param == "servers":
        urls = request.getfixturevalue("amqp_url"), request.getfixturevalue("redis_url")
        prefix = request.getfixturevalue("redis_prefix")
    with Rig(*urls, prefix=prefix, options=ServiceOptions(retry_after=0.5)) as made:
        yield made


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
