"""The parts of the broker plugins that need no broker."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pika
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rainbow.brokers import ConnectOptions, Tls, connect, redact
from rainbow.brokers.ack_tracker import Outstanding
from rainbow.brokers.base import Broker, Message, Receipt
from rainbow.brokers.rabbitmq import wire
from rainbow.brokers.routing import matches
from rainbow.brokers.topology_mismatch import difference
from rainbow.brokers.x_death import is_cycle, with_death
from rainbow.errors import InvalidInput, InvalidSettings, PublishFailed, TimedOut, UnknownPlugin
from rainbow.testing.brokers import LIMIT, Place, collect, until
from rainbow.topology import Exchange, Queue, Topology

pika_frame = pytest.importorskip("pika.frame")

# -- frames -----------------------------------------------------------------------------------------------


def decode(frames: bytes) -> list[Any]:
    out = []
    while frames:
        used, frame = pika_frame.decode_frame(frames)
        assert used
        out.append(frame)
        frames = frames[used:]
    return out


@pytest.mark.parametrize("size", [0, 1, 4088, 4089, 10_000])
def test_frames_are_what_pika_reads(size: int) -> None:
    message = Message(
        "ex",
        "key",
        b"x" * size,
        content_type="text/plain",
        message_id="m",
        correlation_id="c",
        reply_to="r",
        priority=7,
        expiration=1.5,
        headers={"a": 1, "when": datetime(2024, 1, 2, tzinfo=UTC), "deep": [{"b": None}]},
    )
    out: list[bytes] = []
    method = wire.publish_method("ex", "key", True)
    length = wire.publish_frames(out, 3, method, wire.properties(message), message.body, 4096)
    raw = b"".join(out)
    publish, header, *body = decode(raw)
    assert (publish.channel_number, publish.method.exchange, publish.method.routing_key) == (3, "ex", "key")
    assert publish.method.mandatory
    assert header.body_size == size
    p = header.properties
    assert (p.content_type, p.message_id, p.correlation_id, p.reply_to) == ("text/plain", "m", "c", "r")
    assert (p.priority, p.expiration, p.delivery_mode, p.user_id) == (7, "1500", 2, None)
    assert p.headers == message.headers
    assert b"".join(b.fragment for b in body) == message.body
    assert all(len(b.fragment) <= 4088 for b in body)
    assert size <= length <= len(raw)


@pytest.mark.parametrize("headers", [{"a": "", "é": "ü" * 300}, {"a": "text", "b": 1}, {"a": "text"}])
def test_headers_are_written_as_pika_writes_them(headers: dict[str, Any]) -> None:
    theirs: list[bytes] = []
    pika.data.encode_table(theirs, headers)
    assert b"".join(theirs) in wire.properties(Message("ex", "key", b"", headers=headers))


def test_acks_are_what_pika_reads() -> None:
    ack, nack, requeue = decode(
        wire.ack_frame(2, 1 << 40, True) + wire.nack_frame(2, 7, False) + wire.nack_frame(2, 8, True)
    )
    assert (ack.method.NAME, ack.method.delivery_tag, ack.method.multiple) == ("Basic.Ack", 1 << 40, True)
    assert (nack.method.NAME, nack.method.delivery_tag, nack.method.requeue) == ("Basic.Nack", 7, False)
    assert (requeue.method.requeue, requeue.method.multiple) == (True, False)


@pytest.mark.parametrize(
    "fields",
    [
        {"routing_key": "k" * 256},
        {"message_id": "é" * 128},
        {"priority": 256},
        {"headers": {"x": 1.5}},
        {"headers": {"x": object()}},
        {"headers": {"k" * 256: 1}},
        {"headers": {"x": 1 << 70}},
        {"headers": {"k" * 256: "text"}},
        {"headers": {"x": "\udc80"}},
    ],
)
def test_what_amqp_cannot_carry_is_refused(fields: dict[str, Any]) -> None:
    message = Message(**{"exchange": "e", "routing_key": "k", "body": b"", **fields})
    with pytest.raises(InvalidInput):
        wire.publish_method(message.exchange, message.routing_key, True) + wire.properties(message)


# -- receipts ---------------------------------------------------------------------------------------------


def test_receipt_settles_each_once() -> None:
    receipt = Receipt(2)
    receipt.settle(0, None)
    receipt.settle(0, PublishFailed("late"))
    assert not receipt.done
    with pytest.raises(TimedOut, match="1 message"):
        receipt.wait(0)
    receipt.settle_all(PublishFailed("gone"))
    assert receipt.outcomes[0] is None
    with pytest.raises(PublishFailed, match="gone"):
        receipt.check(0)


def test_receipt_calls_back_now_or_later() -> None:
    called: list[str] = []
    receipt = Receipt(1)
    receipt.then(lambda _r: called.append("later"))
    assert called == []
    receipt.settle(0, None)
    receipt.then(lambda _r: called.append("now"))
    assert called == ["later", "now"]


# -- routing and deaths -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "key", "hit"),
    [
        ("#", "", True),
        ("#", "a.b.c", True),
        ("a.#", "a", True),
        ("a.#", "a.b.c", True),
        ("a.#", "ab", False),
        ("#.a", "a", True),
        ("#.a", "b.c.a", True),
        ("#.a", "ba", False),
        ("*", "a", True),
        ("*", "a.b", False),
        ("*.a", "b.a", True),
        ("*.a", "a", False),
        ("a.#.b", "a.b", True),
        ("a.#.b", "a.c.d.b", True),
        ("a.#.b", "a.c.d", False),
        ("a.*.#", "a", False),
        ("job.*.done", "job.-.done", True),
        ("a+b", "aab", False),
    ],
)
def test_topic_patterns(pattern: str, key: str, hit: bool) -> None:
    assert matches("topic", pattern, key) is hit


def test_direct_keys_are_compared() -> None:
    assert matches("direct", "#", "#")
    assert not matches("direct", "#", "a")


def test_history_counts_and_comes_newest_first() -> None:
    headers = with_death({"mine": 1}, queue="q", reason="rejected", exchange="e", routing_key="k")
    headers = with_death(headers, queue="r", reason="expired", exchange="d", routing_key="k", expiration=2.0)
    headers = with_death(headers, queue="q", reason="rejected", exchange="e", routing_key="k")
    assert [(d["queue"], d["reason"], d["count"]) for d in headers["x-death"]] == [
        ("q", "rejected", 2),
        ("r", "expired", 1),
    ]
    assert headers["x-death"][1]["original-expiration"] == "2000"
    assert (headers["mine"], headers["x-first-death-queue"]) == (1, "q")


def test_cycle_is_one_by_time_alone() -> None:
    once = with_death(None, queue="hold", reason="expired", exchange="h", routing_key="k")
    assert is_cycle(once, "hold")
    assert not is_cycle(once, "work")
    rejected = with_death(once, queue="work", reason="rejected", exchange="w", routing_key="k")
    assert not is_cycle(rejected, "hold")
    assert not is_cycle(None, "hold")


def test_difference_in_words() -> None:
    text = (
        "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': received the value "
        "'2000' of type 'signedint' but current is the value '1000' of type 'signedint'"
    )
    assert difference("queue 'q'", 406, text) == "queue 'q' has x-message-ttl=1000, wanted 2000"
    text = (
        "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'q' in vhost '/': received none but "
        "current is the value '5' of type 'long'"
    )
    assert difference("queue 'q'", 406, text) == "queue 'q' has x-max-length=5, wanted none"
    assert "404" in difference("queue 'q'", 404, "NOT_FOUND")


# -- choosing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("127.0.0.1", InvalidSettings),
        ("carrier-pigeon://x", UnknownPlugin),
        ("amqp://host:port/x", InvalidSettings),
        ("amqp:///x", InvalidSettings),
        ("amqp://host/x?heartbeat=5", InvalidSettings),
        ("redis://host/0?colour=blue", InvalidSettings),
        ("redis://host/0?visibility_timeout=soon", InvalidSettings),
        ("kombu+nothing://host", InvalidSettings),
    ],
)
def test_urls_that_cannot_work(url: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        connect(ConnectOptions(url))


@pytest.mark.parametrize("scheme", ["amqp", "redis"])
def test_tls_is_never_silently_off(scheme: str) -> None:
    with pytest.raises(InvalidSettings, match="TLS"):
        connect(ConnectOptions(f"{scheme}://host/x", tls=Tls(ca="ca.pem")))


def test_tls_files_are_read_at_once() -> None:
    with pytest.raises(InvalidSettings, match="TLS file"):
        connect(ConnectOptions("amqps://host/x", tls=Tls(ca="no-such-file.pem")))


def test_redacted_url_has_no_password() -> None:
    assert redact("amqp://me:secret@host:1/v") == "amqp://me:***@host:1/v"
    assert "secret" not in repr(connect(ConnectOptions("memory://me:secret@x")))


# -- the memory broker's own ------------------------------------------------------------------------------


@pytest.fixture
def memory() -> Iterator[Broker]:
    broker = connect(ConnectOptions(f"memory://{uuid.uuid4().hex}"))
    yield broker
    broker.close()


def test_delivery_limit(memory: Broker) -> None:
    place = Place("quorum")
    memory.declare(place.topology(delivery_limit=2))
    memory.publish([place.message(b"poison")]).check(LIMIT)
    consumer = memory.consume(place.queue, prefetch=1)
    counts = []
    for _ in range(3):
        [d] = collect(consumer, 1)
        counts.append(d.headers.get("x-delivery-count"))
        consumer.requeue([d])
    assert counts == [None, 1, 2]
    [dead] = collect(memory.consume(place.graves, prefetch=1), 1)
    assert dead.headers["x-death"][0]["reason"] == "delivery_limit"


def test_circle_by_time_alone_is_dropped_as_rabbitmq_does(memory: Broker) -> None:
    memory.declare(
        Topology(
            (Exchange("a", "topic"), Exchange("b", "topic")),
            (
                Queue("qa", (("a", "#"),), message_ttl=0.05, dead_letter="b"),
                Queue("qb", (("b", "#"),), message_ttl=0.05, dead_letter="a"),
            ),
        )
    )
    memory.publish([Message("a", "k", b"round")]).check(LIMIT)
    until(lambda: memory.stats("qa").messages == 0 and memory.stats("qb").messages == 0, "it is gone")
    assert memory.consume("qa", prefetch=1).take(1, 0.3) == []


def test_time_to_live_ends_only_at_the_head(memory: Broker) -> None:
    place = Place("quorum")
    memory.declare(place.topology())
    memory.publish([place.message(b"long"), place.message(b"short", expiration=0.05)]).check(LIMIT)
    graves = memory.consume(place.graves, prefetch=5)
    assert graves.take(1, 0.3) == []
    consumer = memory.consume(place.queue, prefetch=1)
    consumer.ack(collect(consumer, 1))
    assert collect(graves, 1)[0].body == b"short"


def test_brokers_of_one_name_share_and_messages_outlive_them() -> None:
    name = uuid.uuid4().hex
    first = connect(ConnectOptions(f"memory://{name}"))
    place = Place("quorum")
    first.declare(place.topology(message_ttl=0.3))
    first.publish([place.message()]).check(LIMIT)
    first.close()
    time.sleep(0.4)  # nobody is there to see its time run out
    second = connect(ConnectOptions(f"memory://{name}"))
    assert len(collect(second.consume(place.graves, prefetch=1), 1)) == 1
    second.close()


def test_no_thread_is_left_behind() -> None:
    name = uuid.uuid4().hex
    broker = connect(ConnectOptions(f"memory://{name}"))
    place = Place("quorum")
    broker.declare(place.topology(message_ttl=60))
    broker.publish([place.message()]).check(LIMIT)

    def sweepers() -> list[str]:
        return [t.name for t in threading.enumerate() if t.name == f"memory-broker-{name}"]

    assert sweepers()
    broker.close()
    until(lambda: not sweepers(), "the sweeper ended")


def test_a_loop_on_a_cancelled_consumer_does_not_spin(memory: Broker) -> None:
    consumer = memory.consume("nothing", prefetch=1)
    consumer.cancel()
    began = time.monotonic()
    for _ in range(3):
        assert consumer.take(1, 10.0) == []
    assert 0.1 < time.monotonic() - began < 10


# -- acks -------------------------------------------------------------------------------------------------


@given(
    st.integers(1, 40).flatmap(
        lambda n: st.tuples(
            st.just(n), st.permutations(range(1, n + 1)), st.lists(st.integers(1, 8)), st.sets(st.integers(1, n))
        )
    )
)
def test_acks_cover_exactly_what_was_done(case: tuple[int, list[int], list[int], set[int]]) -> None:
    """Played to a model of the broker: after each turn it waits for exactly those that are not done (S04)."""
    count, order, cuts, refused = case
    outstanding = Outstanding()
    broker = set(range(1, count + 1))
    for tag in broker:
        outstanding.delivered(tag)
    expected = set(broker)
    while order:
        size = cuts.pop() if cuts else len(order)
        turn, order = order[:size], order[size:]
        for tag in turn:
            if tag in refused:
                assert outstanding.remove(tag)
                broker.discard(tag)
        outstanding.ack(t for t in turn if t not in refused)
        expected.difference_update(turn)
        for tag, multiple in outstanding.acks():
            assert tag in broker
            broker = {t for t in broker if t > tag} if multiple else broker - {tag}
        assert broker == expected
    assert outstanding.acks() == []


def test_a_run_in_order_is_one_ack() -> None:
    outstanding = Outstanding()
    for tag in range(1, 101):
        outstanding.delivered(tag)
    outstanding.ack(range(1, 51))
    assert outstanding.acks() == [(50, True)]
    outstanding.ack([60, 60, 999])
    assert outstanding.acks() == [(60, False)]
    assert not outstanding.remove(60)
