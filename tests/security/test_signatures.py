"""Signatures: what was not signed for this cluster and this registration never runs, and what a cluster did not sign
itself is never believed. All are tried with an agent that runs, and one AMQP account for everybody (the memory broker
has none at all): only the messages themselves are checked.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentrig import Agents, shell
from rainbow import codec, topology
from rainbow.brokers.base import MSGPACK, Delivery, Message
from rainbow.security import signing
from rainbow_workers.headers import ORIGIN
from rainbow_workers.keys import ClusterKeys
from rainbow_workers.service import ServiceOptions
from rig import Rig, eventually, resources


@pytest.fixture
def rig() -> Iterator[Rig]:
    name = uuid.uuid4()
    with Rig(f"memory://{name}", f"memory://{name}", options=ServiceOptions(retry_after=1.0)) as rig:
        yield rig


def agent_keys(rig: Rig, cluster: str) -> dict[str, bytes]:
    record = rig.service.world.clusters[cluster].record
    return signing.cluster_keys(rig.ring, cluster, record.registration)


def dispatch(path: Path, cluster: str = "blue", **more: Any) -> dict[str, Any]:
    """As the scheduler would write it, but for the route, which needs its key."""
    now = time.time()
    return {
        "version": 1,
        "id": str(uuid.uuid4()),
        "attempt": 1,
        "cluster": cluster,
        "name": None,
        "jobspec": shell(f"echo x >> {path}"),
        "user": "mallory",
        "priority": 16,
        "submitted_at": now,
        "assigned_at": now,
        "expires_at": None,
        "route": b"",
        **more,
    }


def send(rig: Rig, body: bytes, headers: dict[str, Any], exchange: str = topology.JOBS, key: str = "blue") -> None:
    message = Message(exchange, key, body, content_type=MSGPACK, headers=headers, message_id=str(uuid.uuid4()))
    rig.broker.publish([message]).check(10)


def registration(rig: Rig, cluster: str = "blue") -> str:
    return rig.service.world.clusters[cluster].record.registration


def reasons(rig: Rig, count: int) -> list[str]:
    found: list[Delivery] = []

    def look() -> bool:
        found.extend(rig.dead_letters())
        return len(found) >= count

    eventually(look, 30)
    return [d.headers["rainbow-reason"] for d in found]


def still_works(rig: Rig, path: Path) -> None:
    job = rig.submit(jobspec=shell(f"echo good >> {path}"))
    assert rig.until(job["id"], "completed", 60)


Forge = Callable[[Rig, dict[str, Any]], tuple[bytes, dict[str, Any]]]


def unsigned(rig: Rig, job: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    return codec.encode_msgpack(job), {"rainbow-registration": registration(rig)}


def wrong_key(rig: Rig, job: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    body = codec.encode_msgpack(job)
    kid = next(iter(agent_keys(rig, "blue")))
    return body, {signing.HEADER: signing.sign({kid: b"k" * 32}, body), "rainbow-registration": registration(rig)}


def unknown_key(rig: Rig, job: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    body = codec.encode_msgpack(job)
    return body, {signing.HEADER: signing.sign({"k": b"k" * 32}, body), "rainbow-registration": registration(rig)}


def key_of_another_cluster(rig: Rig, job: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """Red's agent writes a job for blue."""
    body = codec.encode_msgpack(job)
    return body, {signing.HEADER: signing.sign(agent_keys(rig, "red"), body)}


def changed_byte(rig: Rig, job: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    body = codec.encode_msgpack(job)
    headers = {signing.HEADER: signing.sign(agent_keys(rig, "blue"), body)}
    return body.replace(b"mallory", b"Mallory"), headers


def of_an_older_registration(rig: Rig, job: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    body = codec.encode_msgpack(job)
    old = signing.cluster_keys(rig.ring, "blue", "an-older-registration")
    return body, {signing.HEADER: signing.sign(old, body), "rainbow-registration": "an-older-registration"}


@pytest.mark.parametrize(
    "forge",
    [unsigned, wrong_key, unknown_key, key_of_another_cluster, changed_byte, of_an_older_registration],
    ids=lambda f: f.__name__,
)
def test_a_forged_dispatch_never_runs_and_is_recorded(rig: Rig, agents: Agents, tmp_path: Path, forge: Forge) -> None:
    rig.register("red", resources(host="r"))
    rig.rpc.call({"op": "drain", "cluster": "red"})
    agents.start(executor="local")
    job = dispatch(tmp_path / "ran")
    send(rig, *forge(rig, job))
    assert reasons(rig, 1) == ["bad-signature"]
    still_works(rig, tmp_path / "ran")
    assert (tmp_path / "ran").read_text() == "good\n"


def test_a_dispatch_for_another_cluster_never_runs(rig: Rig, agents: Agents, tmp_path: Path) -> None:
    """Well signed, for red; put into blue's queue."""
    agents.start("blue", executor="local")
    rig.register("red", resources(host="r"))
    job = rig.submit(jobspec=shell(f"echo x >> {tmp_path}/ran"), clusters=["red"])
    consumer = rig.jobs_of("red")
    (real,) = eventually(lambda: consumer.take(1, 1.0))
    send(rig, real.body, dict(real.headers))
    # It comes back, and its job is where it was: placed once, on red.
    time.sleep(1.0)
    still_works(rig, tmp_path / "ran")
    assert (tmp_path / "ran").read_text() == "good\n"
    record = rig.job(job["id"])
    assert record is not None
    assert (record["cluster"], record["attempt"]) == ("red", 1)


def test_a_replayed_dispatch_runs_once(rig: Rig, agents: Agents, tmp_path: Path) -> None:
    """The same good dispatch put into the queue again and again, during its life and after it."""
    agent = agents.start(executor="local", taking=True)
    spy = Spy(rig)
    job = rig.submit(jobspec=shell(f"echo once >> {tmp_path}/ran; sleep 0.5"))
    body, headers = spy.seen(job["id"])
    for _ in range(3):
        send(rig, body, headers)
    try:
        assert rig.until(job["id"], "completed", 60)
    except AssertionError:
        raise AssertionError(rig.job(job["id"])) from None
    for _ in range(3):
        send(rig, body, headers)
    still_works(rig, tmp_path / "ran")
    assert sorted((tmp_path / "ran").read_text().split()) == ["good", "once"]
    assert agent.failure is None


class Spy:
    """Reads dispatches as they are published, by a second queue that an admin bound."""

    def __init__(self, rig: Rig) -> None:
        spying = topology.Queue("rainbow.spy", bindings=((topology.JOBS, "blue"),))
        rig.broker.declare(topology.Topology(queues=(spying,)))
        self._consumer = rig.broker.consume("rainbow.spy", prefetch=100)

    def seen(self, job_id: str) -> tuple[bytes, dict[str, Any]]:
        def look() -> Delivery | None:
            return next((d for d in self._consumer.take(10, 0.5) if d.message_id == job_id), None)

        found = eventually(look)
        return found.body, dict(found.headers)


def test_an_older_attempt_never_runs(rig: Rig, agents: Agents, tmp_path: Path) -> None:
    """The first attempt was rejected and the job placed elsewhere: the old dispatch, replayed, starts nothing."""
    agent = agents.start("blue", executor="local", allowed_users=["somebody-else"])
    spy = Spy(rig)
    job = rig.submit(jobspec=shell(f"echo x >> {tmp_path}/ran"), hold=0)
    body, headers = spy.seen(job["id"])
    rig.until(job["id"], "unsatisfiable", 60)
    agent.reload(
        agent.settings.model_copy(update={"agent": agent.settings.agent.model_copy(update={"allowed_users": None})})
    )
    send(rig, body, headers)
    still_works(rig, tmp_path / "ran")
    assert (tmp_path / "ran").read_text() == "good\n"
    assert rig.job(job["id"])["state"] == "unsatisfiable"  # type: ignore[index]


# -- what agents say ----------------------------------------------------------------------------------------


def event(rig: Rig, sender: str, keys: dict[str, bytes], key: str = "", **fields: Any) -> None:
    body = codec.encode_json({"events": [{"attempt": 1, "state": "completed", "at": time.time(), **fields}]})
    headers = {
        signing.HEADER: signing.sign(keys, body),
        "rainbow-cluster": sender,
        "rainbow-registration": registration(rig, sender),
    }
    rig.broker.publish([Message(topology.EVENTS, key or f"job.{sender}.completed", body, headers=headers)]).check(10)


def test_a_cluster_speaks_for_itself_alone(rig: Rig) -> None:
    rig.register("blue")
    rig.register("red", resources(host="r"))
    job = rig.submit(command=["true"], clusters=["blue"])
    red = rig.keys("red")
    event(rig, "red", red, id=job["id"], cluster="blue")
    event(rig, "blue", red, id=job["id"], cluster="blue")
    event(rig, "red", red, id=job["id"], cluster=None)
    assert reasons(rig, 3) == ["bad-signature"] * 3
    assert rig.job(job["id"])["state"] == "assigned"  # type: ignore[index]


@pytest.mark.parametrize("key", ["job.blue.completed", "job.-.completed", "job.redder.completed", "x"])
def test_a_stolen_key_is_of_no_use_on_the_connection_of_another_cluster(rig: Rig, key: str) -> None:
    """RabbitMQ lets each agent publish with its own routing key alone (`test_every_cell_at_the_broker`)."""
    rig.register("red", resources(host="r"))
    job = rig.submit(command=["true"], clusters=["red"])
    event(rig, "red", rig.keys("red"), key, id=job["id"], cluster="red")
    assert reasons(rig, 1) == ["bad-signature"]
    assert rig.job(job["id"])["state"] == "assigned"  # type: ignore[index]


def test_events_that_a_worker_moved_from_another_queue_count(rig: Rig) -> None:
    rig.register("red", resources(host="r"))
    job = rig.submit(command=["true"], clusters=["red"])
    told = [{"id": job["id"], "attempt": 1, "cluster": "red", "state": "running", "at": time.time()}]
    body = codec.encode_json({"events": told})
    headers = {
        signing.HEADER: signing.sign(rig.keys("red"), body),
        "rainbow-cluster": "red",
        "rainbow-registration": registration(rig, "red"),
    }
    rig.broker.publish([Message("", topology.RECORDER_QUEUE, body, headers=headers)]).check(10)
    rig.until(job["id"], "running")


def test_an_event_of_an_older_attempt_changes_nothing(rig: Rig) -> None:
    rig.register("blue")
    rig.register("red", resources(host="r"))
    job = rig.submit(command=["true"], hold=30)
    first = job["cluster"]
    other = "red" if first == "blue" else "blue"
    consumer = rig.jobs_of(first)
    (delivery,) = eventually(lambda: consumer.take(1, 1.0))
    rig.event(first, job["id"], 1, "rejected", code="policy")
    consumer.reject([delivery])
    eventually(lambda: rig.job(job["id"])["attempt"] == 2, 30)  # type: ignore[index]
    rig.event(first, job["id"], 1, "completed", returncode=0)
    time.sleep(0.5)
    record = rig.job(job["id"])
    assert record is not None
    assert (record["state"], record["cluster"], record["attempt"]) == ("assigned", other, 2)
    assert any(entry.get("stale") for entry in record["history"])


def test_an_agent_cannot_change_where_its_job_may_go(rig: Rig) -> None:
    """The route is not secret; it is under the schedulers' signature of the whole."""
    rig.register("blue")
    rig.register("red", resources(host="r"))
    rig.submit(command=["true"], clusters=["blue"])
    (delivery,) = eventually(lambda: rig.jobs_of("blue").take(1, 1.0))
    sent = codec.decode(delivery.body, MSGPACK)
    route = codec.decode(sent["route"], MSGPACK)
    assert route["restrict"] == ["blue"]
    body = codec.encode_msgpack({**sent, "route": codec.encode_msgpack({**route, "restrict": None})})
    send(
        rig,
        body,
        {**delivery.headers, signing.HEADER: signing.sign(rig.keys("blue"), body)},
        exchange=topology.REJECTED,
    )
    assert reasons(rig, 1) == ["bad-signature"]


def test_a_dispatch_of_an_older_release_comes_back_whole(rig: Rig) -> None:
    """Its route was sealed once more."""
    rig.register("blue")
    rig.register("red", resources(host="r"))
    first = rig.submit(command=["true"])
    consumer = rig.jobs_of(first["cluster"])
    (delivery,) = eventually(lambda: consumer.take(1, 1.0))
    sent = codec.decode(delivery.body, MSGPACK)
    body = codec.encode_msgpack({**sent, "route": signing.seal(rig.ring, sent["route"])})
    origin = signing.sign(ClusterKeys(lambda: rig.ring).origin, body)
    rig.event(first["cluster"], first["id"], 1, "rejected", code="policy")
    send(rig, body, {**delivery.headers, ORIGIN: origin}, exchange=topology.REJECTED)
    eventually(lambda: rig.job(first["id"])["attempt"] == 2, 30)  # type: ignore[index]


def test_an_agent_cannot_send_back_a_job_that_never_left(rig: Rig) -> None:
    """Blue's agent has blue's key: with it, it signs a job of root's and pretends to reject it."""
    rig.register("blue")
    rig.register("red", resources(host="r"))
    real = rig.submit(command=["true"], clusters=["blue"])
    consumer = rig.jobs_of("blue")
    (delivery,) = eventually(lambda: consumer.take(1, 1.0))
    stolen = codec.decode(delivery.body, MSGPACK)
    forged = {**stolen, "id": str(uuid.uuid4()), "user": "root", "jobspec": shell("rm -rf /")}
    body = codec.encode_msgpack(forged)
    headers = {**delivery.headers, signing.HEADER: signing.sign(rig.keys("blue"), body)}
    send(rig, body, headers, exchange=topology.REJECTED)
    send(rig, body, {**headers, "rainbow-kind": "held-dispatch"}, exchange=topology.SUBMIT)
    assert reasons(rig, 2) == ["bad-signature"] * 2
    assert rig.jobs_of("red").take(1, 0.5) == []
    assert rig.job(forged["id"]) is None
    assert rig.job(real["id"])["state"] == "assigned"  # type: ignore[index]


def test_a_forged_cancel_ends_nothing(rig: Rig, agents: Agents, tmp_path: Path) -> None:
    agents.start(executor="local")
    job = rig.submit(jobspec=shell(f"sleep 2; echo done >> {tmp_path}/ran"))
    rig.until(job["id"], "running", 60)
    body = codec.encode_json({"version": 1, "command": "cancel", "id": job["id"], "attempt": 0})
    for keys in ({"k": b"x" * 32}, signing.cluster_keys(rig.ring, "red", "r")):
        message = Message(topology.AGENTS, "blue", body, headers={signing.HEADER: signing.sign(keys, body)})
        rig.broker.publish([message]).check(10)
    assert rig.until(job["id"], "completed", 60)


def test_the_agent_survives_any_bytes(rig: Rig, agents: Agents, tmp_path: Path) -> None:
    """Into its jobs and its commands; each job that is none becomes one dead letter."""
    agent = agents.start(executor="local")
    signed_rubbish = b"\x93\x01\x02\x03"
    rubbish = [
        b"",
        b"\x00",
        b"[" * 50_000,
        b"\x91" * 50_000,
        b"\xdf\xff\xff\xff\xff",
        b"a" * (3 << 20),
        b'{"version": 1, "id": "x", "attempt": -1}',
        codec.encode_msgpack({**dispatch(tmp_path / "ran"), "jobspec": "not a mapping"}),
        codec.encode_msgpack({**dispatch(tmp_path / "ran"), "attempt": 2**63}),
    ]
    for body in rubbish:
        send(rig, body, {})
        send(rig, body, {signing.HEADER: 7}, exchange=topology.AGENTS)
    send(rig, signed_rubbish, {signing.HEADER: signing.sign(agent_keys(rig, "blue"), signed_rubbish)})
    assert set(reasons(rig, len(rubbish) + 1)) <= {"bad-signature", "invalid", "too-large"}
    still_works(rig, tmp_path / "ran")
    assert agent.failure is None
    assert (tmp_path / "ran").read_text() == "good\n"
