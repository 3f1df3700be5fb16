"""The caller's side of the control RPC, on the memory broker with a hand-written registrar's side."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rainbow import brokers, codec, topology
from rainbow.brokers.base import Broker, Delivery, Message
from rainbow.client.rpc import Rpc, error_from
from rainbow.errors import Conflict, Denied, RainbowError, TimedOut, Unroutable
from rainbow.models.control import Ping, Register

Answer = Callable[[Delivery], dict[str, Any] | None]


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = brokers.connect(brokers.ConnectOptions(f"memory://{uuid.uuid4()}"))
    yield broker
    broker.close()


@contextmanager
def registrar(broker: Broker, answer: Answer) -> Iterator[None]:
    """Answer each request on the control queue with what `answer` gives (nothing for None)."""
    broker.declare(topology.core())
    consumer = broker.consume(topology.CONTROL_QUEUE, prefetch=10)
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            for d in consumer.take(10, 0.1):
                reply = answer(d)
                if reply is not None and d.reply_to is not None:
                    body = codec.encode_json(reply)
                    broker.publish([Message("", d.reply_to, body, correlation_id=d.correlation_id)]).check(5)
                consumer.ack([d])

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_result_comes_back_with_the_token_put_in(broker: Broker) -> None:
    seen: list[Delivery] = []

    def answer(d: Delivery) -> dict[str, Any]:
        seen.append(d)
        return {"ok": True, "result": {"pong": 1}}

    with registrar(broker, answer):
        rpc = Rpc(broker, token=lambda: "tok")
        assert rpc.call(Ping(op="ping")) == {"pong": 1}
        rpc.close()
    assert seen[0].routing_key == "ping"
    assert codec.decode(seen[0].body)["token"] == "tok"


def test_bytes_travel_as_msgpack(broker: Broker) -> None:
    seen: list[Delivery] = []

    def answer(d: Delivery) -> dict[str, Any]:
        seen.append(d)
        return {"ok": True}

    with registrar(broker, answer):
        rpc = Rpc(broker)
        rpc.call(Register(op="register", cluster="blue", identity="x" * 16, summary=b"\0\xff"))
        rpc.close()
    assert seen[0].content_type == codec.MSGPACK
    assert codec.decode(seen[0].body, seen[0].content_type)["summary"] == b"\0\xff"


@pytest.mark.parametrize(
    ("code", "kind"), [("denied", Denied), ("conflict", Conflict), ("from-the-future", RainbowError)]
)
def test_errors_come_back_by_code(broker: Broker, code: str, kind: type[RainbowError]) -> None:
    with registrar(broker, lambda d: {"ok": False, "code": code, "error": "because"}):
        rpc = Rpc(broker)
        with pytest.raises(kind, match="because") as raised:
            rpc.call({"op": "ping"})
        rpc.close()
    assert type(raised.value) is kind


def test_a_lost_answer_is_asked_for_again_with_the_same_id(broker: Broker) -> None:
    ids: list[str | None] = []

    def answer(d: Delivery) -> dict[str, Any] | None:
        ids.append(d.correlation_id)
        return {"ok": True, "result": {"n": len(ids)}} if len(ids) == 3 else None

    with registrar(broker, answer):
        rpc = Rpc(broker, resend=0.05)
        assert rpc.call({"op": "ping"}, timeout=10) == {"n": 3}
        rpc.close()
    assert len(set(ids)) == 1


def test_no_answer_times_out_and_says_what_to_check(broker: Broker) -> None:
    with registrar(broker, lambda d: None):
        rpc = Rpc(broker)
        with pytest.raises(TimedOut, match="rainbow-scheduler"):
            rpc.call({"op": "ping"}, timeout=0.2)
        rpc.close()


def test_no_control_queue_is_told_at_once(broker: Broker) -> None:
    rpc = Rpc(broker)
    with pytest.raises(Unroutable, match="rainbow broker setup"):
        rpc.call({"op": "ping"})
    rpc.close()


def test_stream_gives_the_result_then_what_follows(broker: Broker) -> None:
    def answer(d: Delivery) -> dict[str, Any]:
        if d.reply_to:
            follow = Message("", d.reply_to, b'{"state":"running"}', correlation_id=d.correlation_id)
            threading.Timer(0.05, lambda: broker.publish([follow])).start()
        return {"ok": True, "result": {"jobs": []}}

    with registrar(broker, answer):
        rpc = Rpc(broker)
        stream = rpc.stream({"op": "watch", "ids": []})
        assert next(stream) == {"jobs": []}
        assert next(s for s in stream if s is not None) == {"state": "running"}
        rpc.close()


def test_two_threads_get_their_own_answers(broker: Broker) -> None:
    def answer(d: Delivery) -> dict[str, Any]:
        return {"ok": True, "result": {"n": codec.decode(d.body)["n"]}}

    with registrar(broker, answer):
        rpc = Rpc(broker)
        wrong: list[int] = []

        def ask(start: int) -> None:
            wrong.extend(n for n in range(start, start + 50) if rpc.call({"op": "ping", "n": n}) != {"n": n})

        threads = [threading.Thread(target=ask, args=(k * 1000,)) for k in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        rpc.close()
    assert wrong == []


def test_every_code_has_its_class() -> None:
    assert error_from("bad-signature", "x").code == "bad-signature"
    assert type(error_from(None, None)) is RainbowError
