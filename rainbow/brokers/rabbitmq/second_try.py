"""Sends messages that were nacked once more, on a channel of its own, to learn what the nack meant.

RabbitMQ nacks without a reason (rabbitmq.com/docs/confirms#server-sent-nacks). A queue may be full (`reject-publish`).
Or the publishing channel still sends to the leader of before, although the queue has another one: then a channel that
is opened now is confirmed at once. What is nacked there as well is full.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from pika.spec import Basic

from rainbow.brokers.base import REPLIES, Message
from rainbow.brokers.rabbitmq.wire import Connection, publish_frames, publish_method
from rainbow.errors import PublishFailed, QueueFull, RainbowError

#: Seconds for which a queue that was found full counts as full: more nacks of it need no second try.
FULL_FOR = 1.0
#: Seconds after which a channel is too old to tell the two reasons apart.
_FRESH_FOR = 1.0


class Nacked(Protocol):
    """A message with its content header as AMQP."""

    @property
    def message(self) -> Message: ...

    @property
    def header(self) -> bytes: ...

    @property
    def deadline(self) -> float: ...


class SecondTry:
    """All methods run in the I/O thread.

    Args:
        settle: Takes each message that was added, with its outcome.
        stale: Called when a message was confirmed here: the channel that nacked it is out of date.
    """

    def __init__(
        self,
        settle: Callable[[Any, RainbowError | None], None],
        stale: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settle = settle
        self._stale = stale
        self._clock = clock
        self._connection: Connection | None = None
        self._channel: Any = None
        self._opened_at = 0.0
        self._ready = False
        self._waiting: list[Nacked] = []
        self._sent: dict[int, Nacked] = {}
        self._next = 1
        self._full: dict[tuple[str, str], float] = {}

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._sent)

    def link_up(self, connection: Connection) -> None:
        self._connection = connection

    def link_down(self, error: RainbowError) -> None:
        self._connection = None
        self._drop(error)

    def add(self, slot: Nacked) -> None:
        m = slot.message
        # Where the answer can only come on its own channel (rabbitmq.com/docs/direct-reply-to#usage), there is one try.
        if m.reply_to == REPLIES or self._full.get((m.exchange, m.routing_key), 0.0) > self._clock():
            self._settle(slot, _full(m))
            return
        self._waiting.append(slot)
        self._flush()

    def tick(self) -> None:
        """Give up what has no outcome in time, and let go of a channel that is not needed."""
        now = self._clock()
        self._full = {key: until for key, until in self._full.items() if until > now}
        if any(slot.deadline <= now for slot in (*self._waiting, *self._sent.values())):
            self._drop(PublishFailed("nacked by the broker, and not confirmed on a second try in time"))
        elif not self.busy:
            self._drop(None)

    def _flush(self) -> None:
        connection = self._connection
        if connection is None or not connection.is_open:
            self._drop(PublishFailed("nacked by the broker, and the connection was lost before a second try"))
            return
        old = self._clock() - self._opened_at > _FRESH_FOR
        if self._channel is not None and old and not self._sent:
            self._close()
        if self._channel is None:
            self._opened_at = self._clock()
            self._channel = connection.channel(on_open_callback=self._opened)
            self._channel.add_on_close_callback(self._closed)
        elif self._ready and not old:
            self._send(connection)

    def _opened(self, channel: Any) -> None:
        if channel is self._channel:
            channel.confirm_delivery(self._confirmed, callback=lambda _frame: self._confirming(channel))

    def _confirming(self, channel: Any) -> None:
        if channel is self._channel and self._connection is not None:
            self._ready = True
            self._opened_at = self._clock()
            self._send(self._connection)

    def _send(self, connection: Connection) -> None:
        frames: list[bytes] = []
        waiting, self._waiting = self._waiting, []
        for slot in waiting:
            m = slot.message
            # It was routed to a queue: nothing comes back from there.
            method = publish_method(m.exchange, m.routing_key, False)
            publish_frames(frames, self._channel.channel_number, method, slot.header, m.body, connection.frame_max)
            self._sent[self._next] = slot
            self._next += 1
        connection.send(b"".join(frames))

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        tag, ok = method.delivery_tag, isinstance(method, Basic.Ack)
        tags = [t for t in self._sent if t <= tag] if method.multiple else [tag]
        for slot in [self._sent.pop(t) for t in tags if t in self._sent]:
            m = slot.message
            if not ok:
                self._full[m.exchange, m.routing_key] = self._clock() + FULL_FOR
            self._settle(slot, None if ok else _full(m))
        if ok:
            self._stale()
        if self._waiting and not self._sent:
            self._flush()

    def _closed(self, channel: Any, reason: BaseException) -> None:
        if channel is self._channel:
            self._channel = None
            self._drop(PublishFailed(f"nacked by the broker, and on a second try the channel was closed: {reason}"))

    def _close(self) -> None:
        channel, self._channel = self._channel, None
        self._ready, self._next = False, 1
        if channel is not None and channel.is_open:
            channel.close(0, "done")

    def _drop(self, error: RainbowError | None) -> None:
        """Let go of the channel; what has no outcome gets `error`."""
        slots = [*self._sent.values(), *self._waiting]
        self._sent, self._waiting = {}, []
        self._close()
        for slot in slots:
            self._settle(slot, error)


def _full(m: Message) -> QueueFull:
    """The error of a message that a full queue nacked."""
    return QueueFull(f"a queue for {m.routing_key!r} from exchange {m.exchange!r} took no message: it is full")


__all__ = ["SecondTry"]
