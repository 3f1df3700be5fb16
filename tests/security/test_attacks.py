"""What holders of credentials tried, each with a good token of their own or with none: they get nothing of others'."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rainbow import codec, topology
from rainbow.brokers.base import Message
from rainbow.errors import Denied
from rainbow.security import tokens
from rainbow_workers.headers import ROUTE
from rainbow_workers.service import ServiceOptions
from rig import Rig, eventually, resources


@pytest.fixture(params=["memory", "servers"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    name = uuid.uuid4()
    urls, prefix = (f"memory://{name}", f"memory://{name}"), "rainbow:"
    if request.param == "servers":
        urls = request.getfixturevalue("amqp_url"), request.getfixturevalue("redis_url")
        prefix = request.getfixturevalue("redis_prefix")
    options = ServiceOptions(retry_after=1.0, audit=tmp_path / "audit.jsonl")
    with Rig(*urls, prefix=prefix, options=options) as rig:
        yield rig


def strangers(rig: Rig) -> dict[str, str]:
    return {"nobody": "x.y.z", "mallory": rig.issue("mallory"), "an agent": rig.issue("m", "agent")}


@pytest.mark.parametrize("who", ["nobody", "mallory", "an agent"])
def test_nobody_ends_or_takes_over_the_job_of_another_by_its_id(rig: Rig, who: str) -> None:
    """On hold, it has not been dispatched: whatever is submitted under its id changes nothing of it."""
    held = rig.submit(command=["true"], hold=60)
    assert held["status"] == "held"
    token = strangers(rig)[who]
    for fields in ({"command": ["rm"]}, {"command": ["rm"], "hold": 60}, {"command": ["rm"], "nodes": 0}):
        rig.submit(id=held["id"], token=token, **fields)
        record = rig.job(held["id"])
        assert record is not None
        assert (record["state"], record["user"]) == ("held", "alice")
    rig.register("blue")
    record = rig.until(held["id"], "assigned", 30)
    assert record["user"] == "alice"
    (delivery,) = eventually(lambda: rig.jobs_of("blue").take(1, 1.0))
    assert rig.open(delivery)["user"] == "alice"


def test_an_id_tells_a_stranger_nothing_of_its_job(rig: Rig) -> None:
    rig.register("blue")
    job = rig.submit(command=["true"])
    answer = rig.submit(id=job["id"], command=["true"], token=rig.issue("mallory"))
    assert (answer["status"], answer["cluster"]) == ("invalid", None)
    assert "taken" in answer["error"]
    again = rig.submit(id=job["id"], command=["true"])
    assert (again["id"], again["cluster"]) == (job["id"], "blue")


def test_an_id_cannot_be_used_up_without_a_token(rig: Rig) -> None:
    rig.register("blue")
    job = str(uuid.uuid4())
    assert rig.submit(id=job, command=["true"], token="x.y.z")["status"] == "denied"
    assert rig.submit(id=job, command=["true"])["status"] == "assigned"


def test_no_header_hides_a_submission_from_the_audit_log(rig: Rig, tmp_path: Path) -> None:
    """One that only says it was on hold is noted as any other."""
    rig.register("blue")
    job = str(uuid.uuid4())
    body = codec.encode_json({"token": rig.issue("mallory"), "id": job, "command": ["true"]})
    rig.publish(body, headers={ROUTE: b"forged"})
    rig.until(job, "assigned", 30)
    eventually(lambda: job in (tmp_path / "audit.jsonl").read_text())


def test_no_answer_goes_into_a_queue_of_ours(rig: Rig) -> None:
    """Workers may write into every queue: an address to answer to must not be one, or who asks could, too."""
    made = rig.register("blue")
    consumer = rig.jobs_of("blue")
    good = codec.encode_json({"token": rig.token, "command": ["true"], "clusters": ["nowhere"]})
    ask = codec.encode_json({"token": rig.token, "op": "jobs"})
    for queue in (*(q.name for q in topology.core().queues), *topology.cluster_queues("blue")):
        rig.publish(good, reply_to=queue, correlation_id="c")
        asking = Message(topology.CONTROL, "jobs", ask, reply_to=queue, correlation_id="c")
        rig.broker.publish([asking]).check(10)
    assert made["cluster"] == "blue"
    assert rig.submit(command=["true"])["status"] == "assigned"
    taken = eventually(lambda: consumer.take(100, 1.0))
    assert [rig.open(d)["user"] for d in taken] == ["alice"]
    assert rig.dead_letters() == []


def test_the_agent_of_a_deleted_cluster_has_no_right_to_the_next_of_its_name(rig: Rig) -> None:
    old = rig.register("blue")["secret"]
    older = tokens.issue(rig.ring, sub="agent-blue", role="agent", clusters=["blue"], ttl=600, now=time.time() - 60)
    rig.rpc.call({"op": "delete", "cluster": "blue"})
    new = rig.register("blue", identity="identity-of-another-place")
    job = rig.submit(command=["true"])
    for token in (old, older):
        for request in (
            {"op": "drain", "cluster": "blue"},
            {"op": "cancel", "ids": [job["id"]]},
            {"op": "register", "cluster": "blue", "identity": "identity-of-blue", "graph": resources()},
        ):
            with pytest.raises(Exception, match=r"revoked|earlier registration|not yours|somebody else"):
                rig.rpc.call({**request, "token": token})
        for op in ("status", "jobs"):
            request = {"op": op, "token": token, **({"ids": [job["id"]]} if op == "status" else {})}
            with suppress(Denied):  # the newest of its tokens is revoked
                assert not any(rig.rpc.call(request)["jobs"])
    assert rig.rpc.call({"op": "drain", "cluster": "blue", "token": new["secret"]})["drained"]


def test_a_forged_header_ends_no_job_on_hold(rig: Rig) -> None:
    """Rubbish under its id, from somebody who says that it came out of a hold queue."""
    held = rig.submit(command=["true"], hold=60)
    for fields in ({"colour": "red"}, {"token": "x.y.z", "command": ["true"]}):
        body = codec.encode_json({"id": held["id"], **fields})
        rig.publish(body, headers={ROUTE: b"forged"}, reply_to=rig.replies.address, correlation_id=str(uuid.uuid4()))
    assert rig.submit(command=["true"], clusters=["nowhere"])["status"] == "no-match"  # those before are done
    record = rig.job(held["id"])
    assert record is not None
    assert record["state"] == "held"
