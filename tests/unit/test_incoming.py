"""Frames read straight: what comes out is what pika makes of the same bytes, however they are cut."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import frame, spec

from rainbow.brokers.rabbitmq.incoming import Properties, Reader

SHORT = st.text(max_size=40)
VALUES = st.one_of(SHORT, st.text(max_size=300), st.binary(max_size=40), st.integers(0, 1 << 40), st.booleans())
HEADERS = st.dictionaries(st.text(min_size=1, max_size=20), VALUES)
PROPERTIES = st.builds(
    spec.BasicProperties,
    content_type=st.none() | SHORT,
    content_encoding=st.none() | SHORT,
    headers=st.none() | HEADERS,
    delivery_mode=st.none() | st.integers(1, 2),
    priority=st.none() | st.integers(0, 255),
    correlation_id=st.none() | SHORT,
    reply_to=st.none() | SHORT,
    expiration=st.none() | SHORT,
    message_id=st.none() | SHORT,
    timestamp=st.none() | st.integers(0, 1 << 40),
    type=st.none() | SHORT,
    user_id=st.none() | SHORT,
    app_id=st.none() | SHORT,
)


def delivery(channel: int, tag: int, properties: Any, body: bytes, piece: int = 1 << 17) -> bytes:
    method = spec.Basic.Deliver("ctag", tag, tag % 2 == 1, "rainbow.submit", "key")
    parts = [frame.Method(channel, method).marshal(), frame.Header(channel, len(body), properties).marshal()]
    parts += [frame.Body(channel, body[at : at + piece]).marshal() for at in range(0, len(body), piece)]
    return b"".join(parts)


class Both:
    """A reader for channel 1, and beside it all that it left to pika."""

    def __init__(self) -> None:
        self.got: list[tuple[Any, ...]] = []
        self.left = b""
        self.reader = Reader(self._leave)
        self.reader.delivered[1] = lambda *parts: self.got.append(parts)
        self.reader.confirmed[1] = lambda *parts: self.got.append(parts)

    def _leave(self, data: bytes) -> None:
        self.left += data

    def feed(self, data: bytes, rng: random.Random) -> None:
        while data:
            size = rng.randint(1, len(data))
            self.reader.consume(data[:size])
            data = data[size:]


@given(st.lists(st.tuples(PROPERTIES, st.binary(max_size=300)), min_size=1, max_size=4), st.randoms())
def test_a_delivery_is_what_pika_reads(messages: list[tuple[Any, bytes]], rng: random.Random) -> None:
    both = Both()
    both.feed(b"".join(delivery(1, n, p, body) for n, (p, body) in enumerate(messages, 1)), rng)
    assert not both.left
    for number, (given_, body) in enumerate(messages, 1):
        read = spec.BasicProperties()
        read.decode(b"".join(given_.encode()))
        assert both.got[number - 1] == (
            number,
            number % 2 == 1,
            "rainbow.submit",
            "key",
            Properties(
                read.content_type,
                read.message_id,
                read.correlation_id,
                read.reply_to,
                read.priority,
                read.headers or {},
                read.user_id,
            ),
            body,
        )


@given(st.randoms())
def test_confirms(rng: random.Random) -> None:
    both = Both()
    sent = [spec.Basic.Ack(5, True), spec.Basic.Nack(7, False, True), spec.Basic.Ack(6, False)]
    both.feed(b"".join(frame.Method(1, m).marshal() for m in sent), rng)
    assert both.got == [(5, True, True), (7, False, False), (6, False, True)]


@pytest.mark.parametrize(
    "data",
    [
        delivery(2, 1, spec.BasicProperties(), b"of a channel nobody registered for"),
        delivery(1, 1, spec.BasicProperties(), b"in pieces" * 10, piece=16),
        frame.Method(1, spec.Channel.Close(404, "NOT_FOUND", 60, 40)).marshal(),
        frame.Method(1, spec.Basic.Cancel("ctag")).marshal(),
        frame.Heartbeat().marshal(),
        frame.ProtocolHeader().marshal(),
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
    ids=["other-channel", "pieces", "close", "cancel", "heartbeat", "protocol", "no-amqp"],
)
def test_the_rest_is_left_to_pika_whole(data: bytes) -> None:
    both = Both()
    both.reader.consume(data)
    assert (both.left, both.got) == (data, [])


def test_text_that_is_not_utf8_is_left_to_pika() -> None:
    both = Both()
    data = delivery(1, 1, spec.BasicProperties(message_id="abc"), b"x").replace(b"abc", b"\xff\xfe\xfd")
    both.reader.consume(data)
    assert (both.left, both.got) == (data, [])


@given(st.binary(max_size=200), st.randoms())
def test_no_bytes_stop_the_reader(data: bytes, rng: random.Random) -> None:
    both = Both()
    both.feed(b"\x01\x00\x01" + data, rng)
    both.feed(data, rng)


def test_deliveries_among_other_channels_come_in_order() -> None:
    both = Both()
    first, second = delivery(1, 1, spec.BasicProperties(), b"a"), delivery(1, 2, spec.BasicProperties(), b"b")
    other = delivery(2, 1, spec.BasicProperties(), b"c")
    both.reader.consume(first + other + second)
    assert [got[0] for got in both.got] == [1, 2]
    assert both.left == other
