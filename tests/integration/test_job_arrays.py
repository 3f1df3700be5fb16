"""Job arrays: one message in, elements that become jobs bit by bit; in memory and on RabbitMQ with Redis."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentrig import Agents, shell
from rainbow import topology
from rainbow.models.cluster import Revocation
from rainbow.models.ids import element_id
from rainbow_workers.scheduling import arrays
from rainbow_workers.service import ServiceOptions
from rig import Rig, eventually, resources


@pytest.fixture(params=["memory", "kombu", "servers"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    options = ServiceOptions(retry_after=0.5)
    prefix = "rainbow:"
    if request.param == "memory":
        broker = store = f"memory://{uuid.uuid4().hex}"
    else:
        store, prefix = request.getfixturevalue("redis_url"), request.getfixturevalue("redis_prefix")
        broker = request.getfixturevalue("amqp_url") if request.param == "servers" else f"{store}?prefix={prefix}"
    with Rig(broker, store, prefix=prefix, options=options) as made:
        made.register("blue", resources(nodes=4, cores=8))
        yield made


def array(rig: Rig, indices: str, **fields: Any) -> dict[str, Any]:
    return rig.submit(**{"jobspec": shell("true"), "array": indices, **fields})


def counts(rig: Rig, array_id: str) -> dict[str, int]:
    found: dict[str, int] = (rig.job(array_id) or {})["counts"]
    return found


def empty(rig: Rig) -> bool:
    return rig.broker.stats(topology.ARRAYS_QUEUE).messages == 0


def end(rig: Rig, array_id: str, index: int, state: str = "completed", returncode: int = 0) -> None:
    rig.event("blue", element_id(array_id, index), 1, state, returncode=returncode)


def full(rig: Rig) -> None:
    """The cluster's agent says that it has enough to do."""
    rig.report("blue", nodes_free=0, cores_free=0, gpus_free=0, jobs_pending=1)
    eventually(lambda: rig.service.world.clusters["blue"].state.heartbeat_at)


def test_elements_become_jobs_and_are_counted(rig: Rig) -> None:
    answer = array(rig, "1,3-5")
    assert (answer["status"], answer["error"]) == ("held", "array of 4 elements")
    array_id = answer["id"]
    eventually(lambda: counts(rig, array_id) == {"assigned": 4})
    record = rig.job(array_id)
    assert record is not None
    assert (record["state"], record["code"], record["indices"]) == ("held", "array", "1,3-5")
    element = rig.job(f"{array_id}[3]")
    assert element is not None
    assert (element["id"], element["array"], element["index"]) == (element_id(array_id, 3), array_id, 3)
    assert [job["id"] for job in rig.rpc.call({"op": "jobs"})["jobs"]] == [array_id]

    end(rig, array_id, 1)
    rig.until(array_id, "running")
    end(rig, array_id, 3, "failed", 3)
    end(rig, array_id, 4, "failed", 2)
    end(rig, array_id, 5)
    record = rig.until(array_id, "failed")
    assert (record["exit_code"], record["returncode"], record["detail"]) == (3, 3, "2 completed, 2 failed")
    eventually(lambda: empty(rig))
    again = array(rig, "1,3-5", id=array_id)
    assert (again["status"], again["state"]) == ("duplicate", "failed")
    assert counts(rig, array_id) == {"completed": 2, "failed": 2}


def test_a_dispatch_says_which_element_it_is(rig: Rig) -> None:
    array_id = array(rig, "0-15:5")["id"]
    consumer = rig.jobs_of("blue")
    got: dict[int, dict[str, Any]] = {}
    while len(got) < 4:
        for delivery in consumer.take(10, 5):
            dispatch = rig.open(delivery)
            got[dispatch["element"]["index"]] = dispatch
    assert sorted(got) == [0, 5, 10, 15]
    assert got[5]["id"] == element_id(array_id, 5)
    assert got[5]["element"] == {"array": array_id, "index": 5, "count": 4, "min": 0, "max": 15, "step": 5}


def test_no_more_than_its_limit_run_at_once(rig: Rig) -> None:
    array_id = array(rig, "1-7%2")["id"]
    most = 0
    for index in range(1, 8):
        released = min(7, index + 1)
        eventually(lambda: sum(counts(rig, array_id).values()) >= released)  # noqa: B023 -- called at once
        most = max(most, counts(rig, array_id).get("assigned", 0))
        end(rig, array_id, index)
    assert most == 2
    assert rig.until(array_id, "completed")["counts"] == {"completed": 7}


def test_a_cancelled_array_starts_nothing_more(rig: Rig) -> None:
    array_id = array(rig, "1-100000%40")["id"]
    eventually(lambda: sum(counts(rig, array_id).values()) == 40)
    commands = rig.broker.consume(topology.agent_queue("blue"), prefetch=1000)
    end(rig, array_id, 1)
    rig.until(array_id, "running")
    rig.rpc.call({"op": "cancel", "ids": [array_id], "reason": "enough"})
    told: list[Any] = []
    while len(told) < 39:
        told += commands.take(100, 5)
    for index in range(2, 42):
        end(rig, array_id, index, "cancelled")
    record = rig.until(array_id, "cancelled")
    assert record["counts"]["completed"] == 1
    assert sum(record["counts"].values()) <= 41
    eventually(lambda: empty(rig))


def test_an_array_that_waits_for_room_is_cancelled_at_once(rig: Rig) -> None:
    full(rig)
    array_id = array(rig, "1-500")["id"]
    eventually(lambda: counts(rig, array_id).get("held", 0) > 400)
    rig.rpc.call({"op": "cancel", "ids": [array_id]})
    eventually(lambda: counts(rig, array_id).get("cancelled", 0) > 400)
    for job in rig.rpc.call({"op": "jobs", "array": array_id, "state": "assigned"})["jobs"]:
        rig.event("blue", job["id"], 1, "cancelled")
    rig.until(array_id, "cancelled")
    eventually(lambda: counts(rig, array_id) == {"cancelled": 500} and empty(rig))


def test_others_wait_for_all_elements(rig: Rig) -> None:
    array_id = array(rig, "1-3")["id"]
    good = rig.submit(jobspec=shell("true"), dependency=f"afterok:{array_id}")
    any_end = array(rig, "1-2", dependency=f"afterany:{array_id}[2]")
    assert {good["status"], any_end["status"]} == {"held"}
    eventually(lambda: sum(counts(rig, array_id).values()) == 3)
    end(rig, array_id, 2)
    eventually(lambda: counts(rig, any_end["id"]) == {"assigned": 2})
    end(rig, array_id, 1)
    assert (rig.job(good["id"]) or {})["state"] == "held"
    end(rig, array_id, 3)
    rig.until(good["id"], "assigned")


def test_what_is_no_array_is_one_line(rig: Rig) -> None:
    for indices, words in [
        ("", "no index or range"),
        ("1-10:0", "the step in '1-10:0' is 0"),
        ("1-10%0", "%0 is no number"),
        ("0-999999999", "the array has 1000000000 elements: at most 1000000 are taken"),
        ("1-9999999999", "index 9999999999 is above"),
    ]:
        answer = array(rig, indices)
        assert (answer["status"], words in answer["error"]) == ("invalid", True), answer["error"]
    answer = rig.submit(jobspec=shell("true", cores=99), array="1-10")
    assert answer["status"] == "no-match"
    other = array(rig, "1-3", dependency="aftercorr:x")
    assert "write after:ID" in other["error"]
    assert empty(rig)


def test_a_million_elements_are_one_message_and_few_at_a_time(rig: Rig) -> None:
    full(rig)
    array_id = array(rig, "0-999999")["id"]
    eventually(lambda: counts(rig, array_id).get("held", 0) > arrays.AHEAD - 50)
    assert sum(counts(rig, array_id).values()) <= arrays.AHEAD + 50
    rig.service.stop()
    left = {queue.name: rig.broker.stats(queue.name).messages for queue in topology.core().queues}
    assert left[topology.ARRAYS_QUEUE] == 1
    assert sum(left.values()) <= arrays.AHEAD + 50
    rig.restart()
    rig.rpc.call({"op": "cancel", "ids": [array_id]})
    eventually(lambda: counts(rig, array_id).get("held", 0) == 0)
    assert sum(counts(rig, array_id).values()) <= arrays.AHEAD + 50


@pytest.mark.parametrize("restarted", [False, True], ids=["at once", "after a restart"])
def test_an_array_ends_with_its_token(rig: Rig, restarted: bool) -> None:
    array_id = array(rig, "1-100000%4", token=rig.issue("carol"))["id"]
    eventually(lambda: counts(rig, array_id) == {"assigned": 4})
    end(rig, array_id, 1)
    rig.until(array_id, "running")
    eventually(lambda: counts(rig, array_id) == {"assigned": 4, "completed": 1})
    if restarted:
        rig.service.stop()
        rig.store.clusters.revoke(
            Revocation(kind="sub", value="carol", before=time.time() + 60, until=time.time() + 600)
        )
        rig.restart()
    else:
        rig.rpc.call({"op": "revoke", "sub": "carol"})
    commands = rig.broker.consume(topology.agent_queue("blue"), prefetch=100)
    told = 0
    while told < 4:
        told += len(commands.take(100, 5))
    for index in range(2, 6):
        end(rig, array_id, index, "cancelled")
    rig.until(array_id, "cancelled")
    eventually(lambda: counts(rig, array_id) == {"cancelled": 4, "completed": 1} and empty(rig))


def test_elements_know_their_index(rig: Rig, tmp_path: Path) -> None:
    agents = Agents(rig, tmp_path)
    agents.start("green", executor="local")
    spec = shell("echo $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT: {{array.index}}; exit $FLUX_JOB_CC")
    spec["attributes"]["user"] = {"rainbow": {"array": "0-2"}}
    array_id = rig.submit(jobspec=spec, clusters=["green"])["id"]
    record = rig.until(array_id, "failed")
    assert (record["exit_code"], record["counts"]) == (2, {"completed": 1, "failed": 2})
    assert (rig.job(f"{array_id}[1]") or {})["output"] == "1 of 3: 1\n"
    agents.close()
