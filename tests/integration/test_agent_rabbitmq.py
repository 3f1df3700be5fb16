"""The agent on a real RabbitMQ: what it must refuse, drop, hold and repeat. Dispatches are made by hand."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from agentrig import Agents, shell
from rainbow import codec, topology
from rainbow.brokers.base import Consumer, Delivery, Message
from rainbow.security import signing
from rainbow.security.tokens import KeyRing
from rainbow_agents.agent import Agent
from rig import Rig, eventually


class Scheduler:
    """The scheduler's side by hand: signed dispatches out, events and rejected deliveries in."""

    def __init__(self, rig: Rig, agents: Agents, **agent: Any) -> None:
        self.rig = rig
        self.agent: Agent = agents.start(**agent)
        rig.service.stop()  # the registrar has done its part
        self.events_queue: Consumer = rig.broker.consume(topology.RECORDER_QUEUE, prefetch=500)
        self.rejected_queue: Consumer = rig.broker.consume(topology.REJECTED_QUEUE, prefetch=500)
        self.events: list[dict[str, Any]] = []
        self.rejected: list[Delivery] = []

    @property
    def keys(self) -> dict[str, bytes]:
        assert self.agent.registrar.current is not None
        return self.agent.registrar.current.signing

    def dispatch(self, **changes: Any) -> dict[str, Any]:
        now = time.time()
        made = {
            "version": 1,
            "id": str(uuid.uuid4()),
            "attempt": 1,
            "cluster": "blue",
            "name": None,
            "jobspec": shell("true"),
            "user": "alice",
            "priority": 16,
            "submitted_at": now,
            "assigned_at": now,
            "expires_at": None,
            "route": b"",
        }
        return {**made, **changes}

    def send(self, dispatch: dict[str, Any], keys: dict[str, bytes] | None = None) -> str:
        body = codec.encode_msgpack(dispatch)
        self.send_bytes(body, signing.sign(keys or self.keys, body), codec.MSGPACK)
        return str(dispatch["id"])

    def send_bytes(self, body: bytes, signature: str | None, kind: str) -> None:
        headers = {signing.HEADER: signature} if signature else None
        self.rig.broker.publish([Message(topology.JOBS, "blue", body, kind, headers=headers)]).check(10)

    def command(self, **fields: Any) -> None:
        body = codec.encode_json({"version": 1, **fields})
        headers = {signing.HEADER: signing.sign(self.keys, body)}
        self.rig.broker.publish([Message(topology.AGENTS, "blue", body, headers=headers)]).check(10)

    def look(self) -> list[Delivery]:
        """Take what has come; all that came back rejected so far."""
        for d in self.events_queue.take(500, 0.05):
            signing.check(self.keys, d.body, d.headers[signing.HEADER])
            assert d.headers["rainbow-cluster"] == "blue"
            for event in codec.decode(d.body)["events"]:
                assert d.routing_key == f"job.blue.{event['state']}"
                self.events.append(event)
            self.events_queue.ack([d])
        got = self.rejected_queue.take(500, 0.01)
        self.rejected += got
        self.rejected_queue.ack(got)
        return self.rejected

    def until(self, job: str, state: str, timeout: float = 30.0) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            self.look()
            return next((e for e in self.events if (e["id"], e["state"]) == (job, state)), None)

        return eventually(look, timeout)

    def states(self, job: str) -> list[str]:
        self.look()
        return [e["state"] for e in self.events if e["id"] == job]

    def refused(self, job: str) -> dict[str, Any]:
        """The event of a rejection, once the delivery has come back rejected as well."""
        event = self.until(job, "rejected")
        eventually(lambda: any(codec.decode(d.body, codec.MSGPACK)["id"] == job for d in self.look()), 30)
        return event

    def idle(self) -> None:
        """A good job goes through at once: nothing is stuck."""
        self.until(self.send(self.dispatch()), "completed")


@pytest.fixture
def rig(amqp_url: str) -> Iterator[Rig]:
    with Rig(amqp_url, f"memory://{uuid.uuid4()}") as rig:
        yield rig


@pytest.fixture
def side(rig: Rig, agents: Agents) -> Scheduler:
    return Scheduler(rig, agents)


def test_the_events_of_a_job(side: Scheduler) -> None:
    job = side.send(side.dispatch(name="mine"))
    last = side.until(job, "completed")
    assert side.states(job) == ["accepted", "running", "completed"]
    assert (last["returncode"], last["user"], last["name"], last["attempt"]) == (0, "alice", "mine", 1)
    assert side.until(job, "accepted")["flux_id"].startswith("dry")


def test_the_same_dispatch_again_changes_nothing(side: Scheduler) -> None:
    dispatch = side.dispatch()
    job = side.send(dispatch)
    side.until(job, "completed")
    for _ in range(3):
        side.send(dispatch)
    side.idle()
    eventually(lambda: side.rig.broker.stats(topology.jobs_queue("blue")).messages == 0, 60)
    assert side.states(job) == ["accepted", "running", "completed"]


def test_two_copies_at_once_start_once(side: Scheduler) -> None:
    dispatch = side.dispatch()
    body = codec.encode_msgpack(dispatch)
    headers = {signing.HEADER: signing.sign(side.keys, body)}
    copies = [Message(topology.JOBS, "blue", body, codec.MSGPACK, headers=headers) for _ in range(5)]
    side.rig.broker.publish(copies).check(10)
    side.until(dispatch["id"], "completed")
    side.idle()
    assert side.states(dispatch["id"]).count("running") == 1


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"cluster": "green"}, "bad-signature", "is for cluster green"),
        ({"expires_at": 1000.0}, "expired", "had expired"),
        ({"jobspec": {"version": 1}}, "bad-spec", ""),
        ({"jobspec": shell("true", cores=100_000)}, "no-fit", "100000 cores"),
    ],
    ids=["another cluster", "expired", "no jobspec", "too large"],
)
def test_refused_with_a_reason(side: Scheduler, changes: dict[str, Any], code: str, words: str) -> None:
    event = side.refused(side.send(side.dispatch(**changes)))
    assert event["code"] == code
    assert words in event["detail"]
    side.idle()


@pytest.mark.parametrize("how", ["none", "wrong", "forged"])
def test_nothing_unsigned_runs(how: str, rig: Rig, agents: Agents) -> None:
    side = Scheduler(rig, agents, parts={"keys_within": 1.0})
    dispatch = side.dispatch()
    body = codec.encode_msgpack(dispatch)
    signature = {"none": None, "wrong": "k1:00", "forged": signing.sign({"k": b"x" * 32}, body)}[how]
    side.send_bytes(body, signature, codec.MSGPACK)
    assert side.refused(dispatch["id"])["code"] == "bad-signature"
    assert side.states(dispatch["id"]) == ["rejected"]
    side.idle()


@pytest.mark.parametrize(
    "body",
    [b"", b"\xc1", b"{", b"[]", codec.encode_msgpack({"id": 1}), b"\x81\xa1a" * 2000, b"\xff" * 3000],
    ids=["empty", "reserved", "half", "list", "no dispatch", "deep", "noise"],
)
def test_garbage_is_rejected_and_stops_nothing(side: Scheduler, body: bytes) -> None:
    side.send_bytes(body, signing.sign(side.keys, body), codec.MSGPACK)
    eventually(lambda: [d for d in side.look() if d.body == body], 30)
    side.idle()


def test_an_older_attempt_is_dropped(side: Scheduler) -> None:
    job = side.send(side.dispatch(attempt=3))
    side.until(job, "completed")
    side.send(side.dispatch(id=job, attempt=2))
    side.idle()
    assert {e["attempt"] for e in side.events if e["id"] == job} == {3}
    assert side.rejected == []


def test_a_newer_attempt_waits_for_the_older_to_end(rig: Rig, agents: Agents) -> None:
    side = Scheduler(rig, agents, options={"run_s": 300.0})
    job = side.send(side.dispatch())
    side.until(job, "running")
    side.send(side.dispatch(id=job, attempt=2))
    # The older one ends as `rejected` as well: its job is not cancelled, it goes on with the newer.
    eventually(lambda: side.states(job).count("rejected") == 2, 30)
    codes = {e["attempt"]: e["code"] for e in side.events if e["id"] == job and e["state"] == "rejected"}
    assert codes == {1: "cancel", 2: "busy"}


def test_cancelled_before_it_came(side: Scheduler) -> None:
    dispatch = side.dispatch()
    side.command(command="cancel", id=dispatch["id"], attempt=1, reason="never mind")
    eventually(lambda: side.agent.journal.look([(dispatch["id"], 1)])[dispatch["id"], 1].cancel, 60)
    side.send(dispatch)
    assert side.until(dispatch["id"], "cancelled")["detail"] == "never mind"
    assert side.states(dispatch["id"]) == ["cancelled"]
    assert side.rejected == []


def test_a_cancel_of_an_older_attempt_leaves_the_newer_alone(side: Scheduler) -> None:
    job = str(uuid.uuid4())
    side.command(command="cancel", id=job, attempt=1)
    eventually(lambda: side.agent.journal.look([(job, 1)])[job, 1].cancel, 60)
    side.send(side.dispatch(id=job, attempt=2))
    side.until(job, "completed")


def test_a_forged_cancel_is_ignored(rig: Rig, agents: Agents) -> None:
    side = Scheduler(rig, agents, options={"run_s": 2.0})
    job = side.send(side.dispatch())
    side.until(job, "running")
    body = codec.encode_json({"version": 1, "command": "cancel", "id": job, "attempt": 1})
    headers = {signing.HEADER: signing.sign({"k": b"x" * 32}, body)}
    rig.broker.publish([Message(topology.AGENTS, "blue", body, headers=headers)]).check(10)
    side.until(job, "completed")


def test_keys_that_were_rotated_are_fetched(rig: Rig, agents: Agents) -> None:
    """A dispatch with a key that is not known yet waits for the registration to be renewed."""
    agent = agents.start()
    assert agent.registrar.current is not None
    before = list(agent.registrar.current.keys)
    ring: KeyRing = rig.ring.rotated()
    rig.service.stop()
    from rainbow_workers.service import Service

    rig.service = Service(rig.worker_broker, rig.store, ring, rig.options)
    rig.service.start()
    record = rig.until(rig.submit(jobspec=shell("true"))["id"], "completed", 60)
    assert record["attempt"] == 1
    assert list(agent.registrar.current.keys) != before


def test_resync_registers_and_reports_anew(side: Scheduler) -> None:
    """With the registrar away the wish stays: it is done when it is back."""
    asked: list[str] = []
    plain = side.agent.registrar.request

    def request(why: str) -> int:
        asked.append(why)
        return plain(why)

    side.agent.registrar.request = request  # type: ignore[method-assign]
    side.command(command="resync")
    eventually(lambda: "resync" in asked, 60)


def test_prefetch_bounds_what_is_held(rig: Rig, agents: Agents) -> None:
    """With the executor away nothing is held at all; the queue keeps it."""
    from rainbow_agents.executors.base import Down

    side = Scheduler(rig, agents, prefetch=5)
    assert side.agent.parts is not None
    side.agent.parts.listener(Down("for the test"))
    eventually(lambda: rig.broker.stats(topology.jobs_queue("blue")).consumers == 0, 60)
    ids = [side.send(side.dispatch()) for _ in range(20)]
    eventually(lambda: rig.broker.stats(topology.jobs_queue("blue")).messages == 20, 60)
    from rainbow_agents.executors.base import Up

    side.agent.parts.listener(Up("again"))
    for job in ids:
        side.until(job, "completed")
    assert side.rejected == []
