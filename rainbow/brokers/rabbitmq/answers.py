"""Answers by direct reply-to, on a connection of their own: nothing else waits for them, or fails with them.

RabbitMQ (3.10) closes the whole connection, with 541, when the node of the one who asked is gone. An answer is sent
once, unconfirmed: what cannot be sent now, or goes with the connection, is dropped. The one who asked asks again.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from rainbow.brokers.base import REPLIES, Message
from rainbow.brokers.rabbitmq.link import Link
from rainbow.brokers.rabbitmq.loop import IoThread
from rainbow.brokers.rabbitmq.wire import Connection, properties, publish_frames, publish_method
from rainbow.errors import RainbowError

log = logging.getLogger(__name__)

#: Bytes of answers that wait for a connection; the oldest are dropped first.
MOST = 16 << 20
#: Seconds between two lines about answers that were dropped.
SAY_AGAIN = 60.0


def is_answer(m: Message) -> bool:
    """Whether `m` answers by direct reply-to, which is no queue (rabbitmq.com/docs/direct-reply-to)."""
    return m.exchange == "" and m.routing_key.startswith(f"{REPLIES}.")


class Answers:
    """Sends answers through `link`, which it starts with the first. All but `send` runs in the I/O thread."""

    def __init__(self, io: IoThread, link: Link) -> None:
        self._io = io
        self._link = link
        self._connection: Connection | None = None
        self._channel: Any = None
        self._ready = False
        self._blocked = False
        self._waiting: deque[tuple[Message, bytes]] = deque()
        self._bytes = 0
        self._dropped = 0
        self._said = float("-inf")

    def send(self, messages: Sequence[Message]) -> None:
        """Send answers, from any thread. Raises InvalidInput for what AMQP cannot carry."""
        ready = [(m, properties(m)) for m in messages]
        self._io.call(lambda: self._accept(ready))

    def set_blocked(self, reason: str | None) -> None:
        self._blocked = reason is not None
        self._flush()

    def _accept(self, messages: Sequence[tuple[Message, bytes]]) -> None:
        self._link.start()
        self._waiting.extend(messages)
        self._bytes += sum(len(m.body) for m, _ in messages)
        while self._bytes > MOST:
            self._bytes -= len(self._waiting.popleft()[0].body)
            self._drop(1, "too many wait for a connection")
        if self._ready:
            self._io.at_end_of_turn(self._flush)

    def _flush(self) -> None:
        if not self._ready or self._blocked or self._connection is None:
            return
        frames: list[bytes] = []
        number, frame_max = self._channel.channel_number, self._connection.frame_max
        for m, header in self._waiting:
            publish_frames(frames, number, publish_method("", m.routing_key, False), header, m.body, frame_max)
        self._waiting.clear()
        self._bytes = 0
        if frames:
            self._connection.send(b"".join(frames))

    def _drop(self, count: int, why: str) -> None:
        self._dropped += count
        now = time.monotonic()
        if count and now - self._said >= SAY_AGAIN:
            self._said = now
            log.warning("%d answers were dropped: %s", self._dropped, why, extra={"action": "broker.answers_dropped"})

    # -- the channel ---------------------------------------------------------------------------------

    def link_up(self, connection: Connection) -> None:
        self._connection = connection
        self._open()

    def link_down(self, error: RainbowError) -> None:
        self._connection = None
        self._lose(f"their connection was lost: {error}")

    def _open(self) -> None:
        if self._connection is not None and self._connection.is_open:
            self._channel = self._connection.channel(on_open_callback=self._opened)
            self._channel.add_on_close_callback(self._closed)

    def _opened(self, channel: Any) -> None:
        if channel is self._channel:
            self._ready = True
            self._flush()

    def _closed(self, channel: Any, reason: BaseException) -> None:
        if channel is self._channel:
            self._lose(f"the broker closed their channel: {reason}")
            self._open()

    def _lose(self, why: str) -> None:
        was_ready, self._ready, self._channel = self._ready, False, None
        if was_ready:  # else they wait for the first connection
            self._drop(len(self._waiting), why)
            self._waiting.clear()
            self._bytes = 0
