"""The ledger decides who has a job: an agent's word counts for the attempts that a scheduler gave it, and for no other.

All events here are well signed, by an agent that is registered. There is one AMQP account for everybody.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rainbow import codec, topology
from rainbow.brokers.base import Delivery, Message
from rainbow.models.job import REPORTED
from rainbow_workers.records.recorder import NOT_GIVEN
from rainbow_workers.service import ServiceOptions
from rig import Rig, eventually, gathered

KEEP = 3.0


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


@pytest.fixture
def rig(audit: Path) -> Iterator[Rig]:
    name = uuid.uuid4()
    options = ServiceOptions(audit=audit, retry_after=0.3, keep=KEEP)
    with Rig(f"memory://{name}", f"memory://{name}", options=options) as rig:
        for cluster in ("blue", "red"):
            rig.register(cluster)
        yield rig


def running(rig: Rig, cluster: str = "red") -> tuple[str, Delivery]:
    """A job that runs on `cluster`, and its dispatch."""
    job = rig.submit(command=["true"], clusters=[cluster])["id"]
    consumer = rig.jobs_of(cluster)
    [delivery] = eventually(lambda: consumer.take(1, 1.0))
    consumer.ack([delivery])
    consumer.cancel()
    for state in ("accepted", "running"):
        rig.event(cluster, job, 1, state)
    rig.until(job, "running")
    return job, delivery


def refused(rig: Rig) -> int:
    """How many events were refused, once all that was sent is handled."""
    eventually(lambda: rig.broker.stats(topology.RECORDER_QUEUE).messages == 0)
    marker = rig.submit(command=["true"], clusters=["blue"])["id"]
    rig.event("blue", marker, 1, "failed")
    rig.until(marker, "failed")
    return rig.service.refused_events()


@pytest.mark.parametrize("attempt", [0, 1, 2, 100_000])
def test_no_cluster_reports_the_job_of_another(rig: Rig, audit: Path, attempt: int) -> None:
    job, _ = running(rig)
    before = rig.job(job)
    for state in sorted(REPORTED):
        rig.event("blue", job, attempt, state, user="alice", returncode=0, detail="says blue")
    assert refused(rig) == len(REPORTED)
    assert rig.job(job) == before
    noted = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [n for n in noted if n["result"] == NOT_GIVEN and n["object"] == [job]]
    assert rig.dead_letters() == []
    rig.event("red", job, 1, "completed", returncode=0)
    assert rig.until(job, "completed")["cluster"] == "red"


def test_no_cluster_starts_another_attempt_of_its_own_job(rig: Rig) -> None:
    job, _ = running(rig)
    for attempt in (2, 100_000):
        rig.event("red", job, attempt, "running")
    assert refused(rig) == 2
    rig.event("red", job, 1, "completed", returncode=0)
    assert rig.until(job, "completed")["attempt"] == 1


def test_no_cluster_invents_jobs(rig: Rig) -> None:
    """Neither for a user, nor under the id that somebody is about to submit."""
    job = str(uuid.uuid4())
    for state in sorted(REPORTED):
        rig.event("blue", job, 1, state, user="alice", name="invented")
    assert refused(rig) == len(REPORTED)
    assert rig.job(job) is None
    assert rig.submit(id=job, command=["true"], clusters=["red"])["status"] == "assigned"


def test_the_user_and_the_name_of_a_job_are_not_what_an_agent_says(rig: Rig) -> None:
    job = rig.submit(command=["true"], name="mine", clusters=["red"])["id"]
    rig.event("red", job, 1, "running", user="mallory", name="theirs", answer={"status": "denied"})
    record = rig.until(job, "running")
    assert (record["user"], record["name"], record["answer"]["status"]) == ("alice", "mine", "assigned")


@pytest.mark.parametrize("state", ["submitted", "held", "assigned", "no-match", "unsatisfiable", "denied", "expired"])
def test_what_a_scheduler_decides_is_not_for_an_agent_to_say(rig: Rig, state: str) -> None:
    job, _ = running(rig)
    rig.event("red", job, 1, state)
    [letter] = eventually(rig.dead_letters)
    assert letter.headers["rainbow-reason"] == "invalid"
    assert rig.until(job, "running")


def test_a_cluster_that_takes_over_a_name_does_not_take_over_its_jobs(rig: Rig) -> None:
    job, _ = running(rig)
    rig.rpc.call({"op": "delete", "cluster": "red"})
    rig.register("red", identity="somebody-else")
    rig.event("red", job, 1, "completed", returncode=0)
    assert refused(rig) == 1
    assert rig.until(job, "running")


# -- proofs ---------------------------------------------------------------------------------------------------


def grant_of(delivery: Delivery) -> str:
    return str(codec.decode(delivery.body, codec.MSGPACK)["grant"])


def forget(rig: Rig, job: str) -> None:
    """The store loses this job, as a store does that lost its last writes."""
    rig.store.jobs._data.jobs.pop(job)  # type: ignore[attr-defined]


def test_after_a_loss_a_job_is_what_its_dispatch_proves(rig: Rig) -> None:
    job, dispatch = running(rig)
    forget(rig, job)
    rig.event("red", job, 1, "running")
    assert refused(rig) == 1
    rig.event("red", job, 1, "running", grant=grant_of(dispatch), user="mallory")
    record = rig.until(job, "running")
    assert (record["user"], record["cluster"], record["attempt"]) == ("alice", "red", 1)
    rig.event("red", job, 1, "completed", returncode=0)
    rig.until(job, "completed")


def test_a_grant_proves_one_attempt_of_one_job_to_one_cluster(rig: Rig) -> None:
    job, dispatch = running(rig)
    other = str(uuid.uuid4())
    grant = grant_of(dispatch)
    forget(rig, job)
    lies: list[tuple[str, str, int, Any]] = [
        ("blue", job, 1, grant),
        ("red", job, 2, grant),
        ("red", other, 1, grant),
        ("red", job, 1, grant[:-4] + "AAA="),
        ("red", job, 1, "x:" + grant),
        ("red", job, 1, "nonsense"),
        ("red", job, 1, "a:b:!"),
    ]
    for cluster, id, attempt, shown in lies:
        rig.event(cluster, id, attempt, "running", grant=shown)
    assert refused(rig) == len(lies)
    assert rig.job(job) is None
    assert rig.job(other) is None


# -- what was on hold -----------------------------------------------------------------------------------------


def test_a_dispatch_that_was_kept_is_not_placed_again_once_its_record_is_gone(rig: Rig) -> None:
    """S6: its agent has the whole message, with the signatures, and publishes it as a job on hold, and as one that
    came back."""
    job, dispatch = running(rig)
    rig.event("red", job, 1, "completed", returncode=0)
    rig.until(job, "completed")

    def replay(**headers: Any) -> None:
        shown = {**dispatch.headers, **headers}
        message = Message(topology.SUBMIT, "submit", dispatch.body, codec.MSGPACK, job, headers=shown)
        returned = Message(topology.REJECTED, "red", dispatch.body, codec.MSGPACK, job, headers=dispatch.headers)
        rig.broker.publish([message, returned]).check(10)

    replay(**{"rainbow-kind": "held-dispatch"})
    eventually(lambda: rig.job(job) is None, KEEP + 10)
    for kind in ("held-dispatch", "bid-dispatch"):
        replay(**{"rainbow-kind": kind})
    letters = gathered(rig.dead_letters, lambda found: len(found) >= 5)
    assert {letter.headers["rainbow-reason"] for letter in letters} == {"bad-signature"}
    time.sleep(0.5)
    assert rig.job(job) is None or rig.job(job)["state"] == "invalid"  # type: ignore[index]
    for cluster in ("red", "blue"):
        assert rig.broker.stats(topology.jobs_queue(cluster)).messages == 0
