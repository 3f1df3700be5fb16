"""Jobs that wait for other jobs, or for a time: in memory and on RabbitMQ with Redis."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from agentrig import ended, shell
from rainbow import topology
from rainbow_workers.scheduling import dependents
from rainbow_workers.service import ServiceOptions
from rig import Rig, eventually, resources


@pytest.fixture(params=["memory", "servers"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    options = ServiceOptions(retry_after=0.5)
    if request.param == "memory":
        name = uuid.uuid4().hex
        made = Rig(f"memory://{name}", f"memory://{name}", options=options)
    else:
        made = Rig(
            request.getfixturevalue("amqp_url"),
            request.getfixturevalue("redis_url"),
            prefix=request.getfixturevalue("redis_prefix"),
            options=options,
        )
    with made:
        made.register("blue", resources(nodes=4, cores=8))
        yield made


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that nobody knows are not waited for."""
    monkeypatch.setattr(dependents, "GRACE", 0.0)


def job(rig: Rig, *dependencies: str, **fields: Any) -> dict[str, Any]:
    if dependencies:
        fields["dependency"] = list(dependencies)
    return rig.submit(jobspec=shell("true"), **fields)


def dispatched(rig: Rig, job_id: str) -> None:
    eventually(lambda: (rig.job(job_id) or {}).get("state") == "assigned")


def empty(rig: Rig) -> bool:
    stats = rig.broker.stats(topology.DEPENDENTS_QUEUE)
    return stats.messages == 0


def test_a_job_starts_when_what_it_waits_for_has_happened(rig: Rig) -> None:
    first, second = job(rig)["id"], job(rig)["id"]
    answers = {scheme: job(rig, f"{scheme}:{first}") for scheme in ("after", "afterok", "afterany", "afternotok")} | {
        "both": job(rig, f"afterok:{first},afterany:{second}")
    }
    assert {a["status"] for a in answers.values()} == {"held"}
    assert f"waits for afterok:{first}" in answers["afterok"]["error"]
    waits = {scheme: a["id"] for scheme, a in answers.items()}
    record = rig.job(waits["both"])
    assert record is not None
    assert (record["state"], record["code"]) == ("held", "dependency")

    rig.event("blue", first, 1, "running")
    dispatched(rig, waits["after"])
    rig.event("blue", first, 1, "completed", returncode=0)
    for scheme in ("afterok", "afterany"):
        dispatched(rig, waits[scheme])
    record = rig.until(waits["afternotok"], "unsatisfiable")
    assert record["code"] == "dependency-never"
    assert record["detail"] == f"afternotok:{first} can never be met: that job ended as completed"
    assert (rig.job(waits["both"]) or {})["state"] == "held"
    rig.event("blue", second, 1, "failed", returncode=1)
    dispatched(rig, waits["both"])
    eventually(lambda: empty(rig))
    assert job(rig, f"afterok:{first}")["status"] == "assigned", "what has happened before is not waited for"


def test_an_end_that_is_not_good_ends_all_that_wait_for_a_good_one(rig: Rig) -> None:
    first = job(rig)["id"]
    chain = [first]
    for _ in range(3):
        chain.append(job(rig, f"afterok:{chain[-1]}")["id"])
    cleanup = job(rig, f"afternotok:{chain[-1]}")["id"]
    rig.event("blue", first, 1, "failed", returncode=3)
    for one in chain[1:]:
        assert rig.until(one, "unsatisfiable")["code"] == "dependency-never"
    dispatched(rig, cleanup)
    late = job(rig, f"afterok:{first}")
    assert late["status"] == "unsatisfiable"
    assert late["error"] == f"afterok:{first} can never be met: that job ended as failed"


def test_a_job_that_is_cancelled_while_it_waits(rig: Rig) -> None:
    first = job(rig)["id"]
    waits = job(rig, f"afterany:{first}")["id"]
    after = job(rig, f"afterany:{waits}")["id"]
    rig.rpc.call({"op": "cancel", "ids": [waits], "reason": "no more"})
    assert rig.until(waits, "cancelled")["detail"] == "no more"
    dispatched(rig, after)
    eventually(lambda: empty(rig))


def test_sent_twice_it_waits_once(rig: Rig) -> None:
    first, mine = job(rig)["id"], str(uuid.uuid4())
    assert job(rig, f"afterok:{first}", id=mine)["status"] == "held"
    again = job(rig, f"afterok:{first}", id=mine)
    assert (again["status"], again["state"]) == ("duplicate", "held")
    assert (rig.job(mine) or {})["state"] == "held"
    rig.event("blue", first, 1, "completed", returncode=0)
    dispatched(rig, mine)
    eventually(lambda: empty(rig))


@pytest.mark.usefixtures("quick")
def test_another_users_job_under_its_id_takes_nothing_and_learns_nothing(rig: Rig) -> None:
    first = job(rig)["id"]
    waits = job(rig, f"afterok:{first}")["id"]
    token = rig.issue("mallory")
    own = job(rig, token=token)["id"]
    answer = job(rig, f"afterok:{own}", id=waits, token=token)
    assert (answer["status"], answer["cluster"]) == ("invalid", None)
    assert "taken" in answer["error"]
    assert first not in str(answer)
    record = rig.job(waits)
    assert record is not None
    assert (record["state"], record["user"]) == ("held", "alice")
    rig.event("blue", own, 1, "completed", returncode=0)
    rig.event("blue", first, 1, "completed", returncode=0)
    dispatched(rig, waits)
    assert (rig.job(waits) or {})["user"] == "alice"
    eventually(lambda: empty(rig))


def test_what_cannot_be_waited_for_is_one_line_and_nothing_is_kept(rig: Rig) -> None:
    mine, nobody = str(uuid.uuid4()), str(uuid.uuid4())
    others = rig.submit(jobspec=shell("true"), token=rig.issue("bob", "submit", ("*",)))["id"]
    sent = []
    for dependency, words in [
        (f"afterok:{mine}", "depends on itself"),
        ("afterok:123", "no id of a job of rainbow"),
        ("singleton", "write after:ID"),
        ("afterok", "write after:ID"),
        (f"afterok:{nobody}", f"dependency afterok:{nobody}: no such job (or it is another user's)"),
        (f"afterok:{others}", f"dependency afterok:{others}: no such job (or it is another user's)"),
    ]:
        sent.append((words, rig.send(jobspec=shell("true"), dependency=dependency, id=mine)))
        mine = str(uuid.uuid4())
    for words, submission in sent:
        while (answer := rig.answer(submission))["status"] == "held":
            pass
        assert (answer["status"], words in answer["error"]) == ("invalid", True), answer
    eventually(lambda: empty(rig))


def test_whole_chains_are_submitted_at_once_in_any_order(rig: Rig) -> None:
    """The first may be known later than those that wait for it: they wait for it a little."""
    ids = [str(uuid.uuid4()) for _ in range(6)]
    sent = [
        rig.send(jobspec=shell("true"), id=one, **({"dependency": f"afterok:{before}"} if before else {}))
        for before, one in reversed(list(zip([None, *ids], ids, strict=False)))
    ]
    assert {rig.answer(s)["status"] for s in sent} == {"held", "assigned"}
    for one in ids:
        dispatched(rig, one)
        rig.event("blue", one, 1, "completed", returncode=0)
    ended(rig, ids)


@pytest.mark.parametrize("order", ["forward", "backward"])
def test_a_chain_that_was_submitted_while_no_scheduler_ran(rig: Rig, order: str) -> None:
    """All of it is read at once, and no part of it waits until the part before it is looked at again."""
    rig.service.stop()
    ids = [str(uuid.uuid4()) for _ in range(40)]
    chain = list(zip([None, *ids], ids, strict=False))
    sent = [
        rig.send(jobspec=shell("true"), id=one, **({"dependency": f"afterok:{before}"} if before else {}))
        for before, one in (chain if order == "forward" else reversed(chain))
    ]
    rig.restart()
    assert [rig.answer(s)["status"] for s in sent].count("held") == 39
    assert {(rig.job(one) or {})["state"] for one in ids[1:]} == {"held"}


def test_dependencies_of_flux_and_nextgen_and_a_time(rig: Rig) -> None:
    first = job(rig)["id"]
    begin = time.time() + 1.5
    listed = [{"scheme": "afterok", "value": first}, {"scheme": "begin-time", "value": str(begin)}]
    v1 = rig.submit(jobspec=shell("true", dependencies=[*listed, {"scheme": "string", "value": "x"}]))
    task = {"command": ["true"], "resources": "a", "name": "t", "depends_on": [first]}
    nextgen = rig.submit(
        jobspec={"version": 1, "resources": {"a": {"type": "node", "count": 1}}, "tasks": [task]},
    )
    timed = rig.submit(command="true", begin_time=begin)
    assert {v1["status"], nextgen["status"], timed["status"]} == {"held"}
    assert "at the earliest, as asked" in timed["error"]
    consumer = rig.jobs_of("blue")
    rig.event("blue", first, 1, "completed", returncode=0)
    for answer in (nextgen, v1, timed):
        dispatched(rig, answer["id"])
    got: dict[str, dict[str, Any]] = {}
    while len(got) < 4:
        for delivery in consumer.take(10, 5):
            dispatch = rig.open(delivery)
            got[dispatch["id"]] = dispatch
    assert min(got[timed["id"]]["assigned_at"], got[v1["id"]]["assigned_at"]) >= begin - 1.0
    assert got[v1["id"]]["jobspec"]["attributes"]["system"]["dependencies"] == [{"scheme": "string", "value": "x"}]
    assert got[nextgen["id"]]["jobspec"]["tasks"][0]["depends_on"] == []


def test_what_waits_outlives_its_scheduler(rig: Rig) -> None:
    first = job(rig)["id"]
    waits = [job(rig, f"afterok:{first}")["id"] for _ in range(3)]
    rig.service.stop()
    rig.restart()
    rig.event("blue", first, 1, "completed", returncode=0)
    for one in waits:
        dispatched(rig, one)
    eventually(lambda: empty(rig))
