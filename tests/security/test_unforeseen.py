"""Nothing that one message says ends a worker, or keeps another message from being handled."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from rainbow import codec, topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.brokers.base import Broker, Consumer, Delivery, Message
from rainbow.errors import BadCredentials, RainbowError, TooLarge
from rainbow.security.tokens import KeyRing
from rainbow.testing.brokers import LIMIT
from rainbow_workers.scheduling.decide import Decider
from rainbow_workers.worker import Task, Worker
from rig import Rig, eventually, gathered

QUEUE = topology.SCHEDULER_QUEUE


class Counting(Task):
    """Acks what it is given, and raises when a body says so. With `hold` it settles with the call after."""

    name = "counting"
    queue = QUEUE

    def __init__(self, *, hold: bool = False) -> None:
        self.seen: list[bytes] = []
        self.hold = hold
        self.held: list[Delivery] = []
        self.ending: list[Delivery] = []

    @property
    def under_way(self) -> bool:
        return bool(self.held)

    def ready(self) -> None:
        """Always."""

    def abandon(self) -> Sequence[Delivery]:
        held, self.held, self.ending = [*self.ending, *self.held], [], []
        return held

    def handle(self, deliveries: Sequence[Delivery], consumer: Consumer) -> None:
        self.ending, self.held = self.held, list(deliveries) if self.hold else []
        done = self.ending if self.hold else deliveries
        for delivery in done:
            if delivery.body.startswith(b"raise "):
                raise {b"key": KeyError, b"memory": MemoryError, b"rainbow": RainbowError}[delivery.body[6:]]("x")
        self.seen += [d.body for d in done]
        consumer.ack(done)
        self.ending = []


@pytest.fixture
def broker() -> Iterator[Broker]:
    made = connect(ConnectOptions(f"memory://{uuid.uuid4()}"))
    made.declare(topology.core())
    yield made
    made.close()


@pytest.mark.parametrize("hold", [False, True])
@pytest.mark.parametrize("kind", ["key", "memory", "rainbow"])
def test_what_nobody_foresaw_is_one_dead_letter(broker: Broker, kind: str, hold: bool) -> None:
    task = Counting(hold=hold)
    bodies = [b"%d" % n for n in range(40)]
    for at in (0, 13, 13, 40):
        bodies.insert(at, b"raise " + kind.encode())
    broker.publish([Message(topology.SUBMIT, "submit", body) for body in bodies]).check(LIMIT)
    worker = Worker(task, broker, batch=20, prefetch=100, poll=0.05)
    worker.start()
    try:
        eventually(lambda: len(set(task.seen)) == 40)
        letters = broker.consume(topology.DEAD_QUEUE, prefetch=10)
        found = gathered(lambda: letters.take(10, 0.1), lambda found: len(found) == 4)
        assert {d.headers["rainbow-reason"] for d in found} == {"unforeseen"}
        assert sorted(task.seen) == sorted(set(bodies) - {b"raise " + kind.encode()})
        assert broker.stats(QUEUE).messages == 0
    finally:
        worker.stop()
        worker.join(10)
    assert worker.error is None


def test_a_failure_that_no_message_is_to_blame_for_ends_nothing(broker: Broker) -> None:
    class Failing(Counting):
        failures = 3

        def handle(self, deliveries: Sequence[Delivery], consumer: Consumer) -> None:
            if not deliveries and self.failures:
                self.failures -= 1
                raise RuntimeError("not of a message")
            super().handle(deliveries, consumer)

    task = Failing()
    worker = Worker(task, broker, batch=20, prefetch=100, poll=0.05)
    worker.start()
    try:
        eventually(lambda: task.failures == 0)
        broker.publish([Message(topology.SUBMIT, "submit", b"1")]).check(LIMIT)
        eventually(lambda: task.seen == [b"1"])
    finally:
        worker.stop()
        worker.join(10)
    assert worker.error is None


def test_an_error_of_ours_ends_a_worker_with_one_line(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    class Refused(Counting):
        def ready(self) -> None:
            raise BadCredentials("the store refused our password")

    worker = Worker(Refused(), broker, batch=20, prefetch=100, poll=0.05)
    worker.start()
    worker.join(60)
    assert isinstance(worker.error, BadCredentials)
    [line] = [r for r in caplog.records if "worker ended" in r.message]
    assert line.message == "worker ended: the store refused our password"
    assert line.exc_info is None


def test_the_scheduler_places_what_comes_with_it(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each job of a batch once, though deciding one of them fails."""
    rig.register("blue")
    decide = Decider.decide

    def failing(self: Decider, job: Any, *more: Any, **named: Any) -> Any:
        if job.name == "poison":
            raise ZeroDivisionError("of this job alone")
        return decide(self, job, *more, **named)

    monkeypatch.setattr(Decider, "decide", failing)
    jobs = [str(uuid.uuid4()) for _ in range(30)]
    names = {job: "poison" if at in (0, 7, 29) else "good" for at, job in enumerate(jobs)}
    rig.submitter.publish(
        [
            Message(
                topology.SUBMIT,
                "submit",
                codec.encode_json({"id": job, "token": rig.token, "command": ["true"], "name": names[job]}),
            )
            for job in jobs
        ]
    ).check(20)
    consumer = rig.jobs_of("blue")
    taken = gathered(lambda: consumer.take(100, 0.2), lambda found: len({d.message_id for d in found}) == 27)
    assert {(rig.open(d)["id"], rig.open(d)["attempt"]) for d in taken} == {
        (job, 1) for job in jobs if names[job] == "good"
    }
    letters = gathered(rig.dead_letters, lambda found: len(found) == 3)
    assert {d.headers["rainbow-reason"] for d in letters} == {"unforeseen"}
    assert all(b"***" in d.body for d in letters)  # no token of theirs


@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_a_message_that_names_more_keys_is_refused(rig: Rig, name: str) -> None:
    body = codec.encode_json({"token": rig.token, "command": ["true"]})
    rig.publish(body, headers={name: ["job.blue.completed"]})
    [letter] = eventually(rig.dead_letters)
    assert letter.headers["rainbow-reason"] == "invalid"
    assert "CC" in letter.headers["rainbow-detail"]


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (codec.MSGPACK, b"\x81\xa1a\xdc\x00\x10" + (b"\xdc\xff\xff" + b"\x90" * 65535) * 16),
        (codec.JSON, b'{"a":[' + b"[]," * 330_000 + b"[]]}"),
        (codec.JSON, b'{"a":[' + b"1," * 500_000 + b"1]}"),
    ],
)
def test_values_are_counted_before_memory_is_taken(content_type: str, body: bytes) -> None:
    with pytest.raises(TooLarge, match="values"):
        codec.decode(body, content_type, max_bytes=2 << 20)


def test_a_long_text_is_no_many_values() -> None:
    text = "[,{" * 300_000
    assert codec.decode(codec.encode_json({"a": text}))["a"] == text
    assert codec.decode(codec.encode_msgpack({"a": text}), codec.MSGPACK)["a"] == text


def test_a_large_message_is_read_for_somebody_alone(rig: Rig) -> None:
    """Its tokens are looked at before it is decoded: what it says otherwise is not known."""
    large = {"command": ["true"], "colour": "x" * 100_000}
    for token, status in (("x.y.z", "denied"), (_foreign(), "denied"), (rig.token, "invalid")):
        assert rig.submit(token=token, **large)["status"] == status
    with pytest.raises(RainbowError, match="no good token"):
        rig.rpc.call({"op": "clusters", "token": _foreign(), "colour": "x" * 100_000})
    # A submitter's request is bounded as a submission is; only graphs may be larger.
    with pytest.raises(RainbowError, match="limit"):
        rig.rpc.call({"op": "clusters", "token": rig.token, "colour": "x" * (2 << 20)})


def _foreign() -> str:
    from rainbow.security import tokens

    return tokens.issue(KeyRing.generate(), sub="m", role="admin", ttl=60)
