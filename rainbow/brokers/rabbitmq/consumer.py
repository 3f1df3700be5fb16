"""Consuming: a channel for each consumer, with its own prefetch, that comes back after whatever ends it.

A delivery is known by (epoch, tag); each channel is a new epoch, also among consumers, and what is settled with
another one is dropped: the broker has given those messages back already. Quorum queues refuse a prefetch shared by a
channel (rabbitmq.com/docs/quorum-queues#global-qos), so it is always per consumer.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from pika import exceptions as pika_exceptions

from rainbow.backoff import Backoff
from rainbow.brokers.ack_tracker import BURST, LINGER, Outstanding
from rainbow.brokers.base import Delivery
from rainbow.brokers.rabbitmq.buffer import Buffer, delivery
from rainbow.brokers.rabbitmq.incoming import Properties
from rainbow.brokers.rabbitmq.loop import IoThread
from rainbow.brokers.rabbitmq.wire import Connection, ack_frame, nack_frame
from rainbow.brokers.x_death import dead_lettered
from rainbow.errors import BadCredentials, RainbowError

log = logging.getLogger(__name__)

#: Longest wait before looking again for a queue that is not there, in seconds.
LOOK_AGAIN = 15.0
#: Seconds between two lines about a queue that we have no right to read: somebody must mend it.
SAY_AGAIN = 60.0
#: Of no two channels the same: a delivery of one consumer that is settled with the next never meets its tags.
_epochs = itertools.count(1)
#: How long `cancel` waits for the broker, in seconds.
CANCEL_LIMIT = 5.0


class QueueConsumer:
    """A Consumer of one queue. `take` and the settling methods are called by its user; the rest in the I/O thread."""

    def __init__(
        self, io: IoThread, queue: str, prefetch: int, gone: Callable[[QueueConsumer], None], on_expired_secret: Any
    ) -> None:
        self.address = queue
        self._io = io
        self._queue = queue
        self._prefetch = prefetch
        self._gone = gone
        self._on_expired_secret = on_expired_secret
        self._buffer = Buffer()
        self._backoff = Backoff(first=0.1, most=LOOK_AGAIN)
        self._connection: Connection | None = None
        self._channel: Any = None
        self._epoch = next(_epochs)
        self._outstanding = Outstanding()
        self._burst_at = float("-inf")
        self._refused: list[tuple[int, bool]] = []
        self._retry: Any = None
        self._cancelled = False
        self._done = threading.Event()
        self._warned_at: float | None = None
        self.consuming = False
        #: Why the broker gives us nothing from the queue, while it does not; None also while there is no connection.
        self.trouble: str | None = None

    # -- its user's threads --------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """Of the channel as it is now: a delivery of an older one is no longer ours."""
        return self._epoch

    def take(self, limit: int, timeout: float) -> list[Delivery]:
        return self._buffer.take(limit, timeout)

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        items = [(d.epoch, d.tag) for d in deliveries]
        self._io.call(lambda: self._settle_acks(items))

    def reject(self, deliveries: Sequence[Delivery]) -> None:
        sound, forged = dead_lettered(deliveries, self._queue)
        self._refuse(sound, requeue=False)
        if forged:
            self.ack(forged)

    def requeue(self, deliveries: Sequence[Delivery]) -> None:
        self._refuse(deliveries, requeue=True)

    def _refuse(self, deliveries: Sequence[Delivery], *, requeue: bool) -> None:
        items = [(d.epoch, d.tag) for d in deliveries]
        self._io.call(lambda: self._settle_refusals(items, requeue))

    def cancel(self) -> None:
        self._buffer.close()
        self._io.call(self.end)
        if not self._io.here:
            self._done.wait(CANCEL_LIMIT)

    # -- settling ------------------------------------------------------------------------------------

    def _settle_acks(self, items: list[tuple[int, int]]) -> None:
        epoch = self._epoch
        self._outstanding.ack(tag for e, tag in items if e == epoch)
        self._io.at_end_of_turn(self._send_settled)

    def _settle_refusals(self, items: list[tuple[int, int]], requeue: bool) -> None:
        for epoch, tag in items:
            if epoch == self._epoch and self._outstanding.remove(tag):
                self._refused.append((tag, requeue))
        self._io.at_end_of_turn(self._send_settled)

    def _send_settled(self) -> None:
        """Send what was settled in this turn, in one write.

        Requeued ones go in order: a quorum queue hands returned messages out in the order they came back.
        """
        channel, connection = self._channel, self._connection
        if channel is None or connection is None or not channel.is_open:
            return
        number = channel.channel_number
        frames = [nack_frame(number, tag, requeue) for tag, requeue in sorted(self._refused)]
        self._refused.clear()
        frames += [ack_frame(number, tag, multiple) for tag, multiple in self._outstanding.acks()]
        if frames:
            connection.send(b"".join(frames))
            if len(frames) > BURST:
                self._burst_at = time.monotonic()

    # -- the channel ---------------------------------------------------------------------------------

    def link_up(self, connection: Connection) -> None:
        self._connection = connection
        self._open()

    def link_down(self, error: RainbowError) -> None:
        self._connection = None
        self._lose_channel()
        if isinstance(error, BadCredentials):
            self._buffer.close(error)
        if self._cancelled:
            self._finish()

    def _open(self) -> None:
        self._retry = None
        connection = self._connection
        if self._cancelled or self._channel is not None or connection is None or not connection.is_open:
            return
        self._channel = connection.channel(on_open_callback=self._opened)
        self._channel.add_on_close_callback(self._closed)

    def _opened(self, channel: Any) -> None:
        if channel is not self._channel:
            return
        self._epoch = next(_epochs)
        self._read_straight(channel)
        channel.add_on_cancel_callback(lambda _frame: self._on_cancel(channel))
        channel.basic_qos(prefetch_count=self._prefetch, global_qos=False)
        channel.basic_consume(
            self._queue, self._on_message, auto_ack=False, callback=lambda _frame: self._on_consuming(channel)
        )

    def _on_consuming(self, channel: Any) -> None:
        if channel is self._channel:
            self.consuming = True
            self._backoff.reset()
            self.trouble = None
            if self._warned_at is not None:
                self._warned_at = None
                log.info(
                    "consuming from %s again", self._queue, extra={"action": "broker.consuming", "queue": self._queue}
                )

    def _on_message(self, channel: Any, method: Any, props: Any, body: bytes) -> None:
        if channel is not self._channel:
            return
        self._outstanding.delivered(method.delivery_tag)
        self._buffer.put(delivery(self._queue, method, props, body, self._epoch))

    def _read_straight(self, channel: Any) -> None:
        """Take deliveries as they are read, without pika; `_on_message` gets those that come in pieces."""
        connection, epoch, queue = self._connection, self._epoch, self._queue
        assert connection is not None
        outstanding, put = self._outstanding.delivered, self._buffer.put

        def delivered(tag: int, redelivered: bool, exchange: str, key: str, props: Properties, body: bytes) -> None:
            if channel is self._channel:
                outstanding(tag)
                kind, message_id, correlation_id, reply_to, priority, headers, user_id = props
                put(
                    Delivery(
                        queue,
                        body,
                        kind,
                        message_id,
                        correlation_id,
                        reply_to,
                        priority,
                        headers,
                        exchange,
                        key,
                        user_id,
                        redelivered,
                        tag,
                        epoch,
                    )
                )

        number, reader = channel.channel_number, connection.reader
        reader.delivered[number] = delivered
        channel.add_on_close_callback(lambda *_: reader.delivered.pop(number, None))

    def wake(self) -> None:
        """Called after a piece was read from the socket: one wake-up for all deliveries in it."""
        self._buffer.wake()

    def _on_cancel(self, channel: Any) -> None:
        """The broker ended the subscription (queue deleted, leader moved, ack timeout): the channel is still open.

        rabbitmq.com/docs/consumer-cancel
        """
        if channel is self._channel and not self._cancelled:
            self._note("the broker cancelled the consumer")
            self._lose_channel()
            if channel.is_open:
                channel.close(0, "cancelled by the broker")
            self._schedule()

    def _closed(self, channel: Any, reason: BaseException) -> None:
        if channel is not self._channel:
            return
        if self._cancelled:
            self._lose_channel()
            self._finish()
            return
        if not isinstance(reason, pika_exceptions.ChannelClosed):
            return  # the connection is lost: `link_down` follows
        self._lose_channel()
        code, text = int(reason.reply_code), str(reason.reply_text)
        self._note(f"the broker closed the channel: {code} {text}", code)
        if code == 403 and "expired" in text and self._on_expired_secret is not None:
            self._on_expired_secret()
        self._schedule()

    def _note(self, what: str, code: int = 0) -> None:
        """One warning for each outage; no right to read is an error somebody must mend, and said again and again."""
        now, since = time.monotonic(), self._warned_at
        refused = code == 403
        said = since is not None and not (refused and now - since >= SAY_AGAIN)
        level = logging.DEBUG if said else logging.ERROR if refused else logging.WARNING
        if not said:
            self._warned_at = now
        do = "give this account the right to read the queue" if refused else "trying again until it works"
        self.trouble = f"{what}; {do}"
        log.log(
            level,
            "not consuming from %s: %s",
            self._queue,
            self.trouble,
            extra={"action": "broker.not_consuming", "queue": self._queue, "code": code},
        )

    def _schedule(self) -> None:
        if self._retry is None and self._connection is not None:
            self._retry = self._io.later(self._backoff.next(), self._open)

    def _lose_channel(self) -> None:
        self.consuming = False
        self._channel = None
        # From here on what was delivered is of an older epoch; the broker gives it to somebody else.
        self._epoch = next(_epochs)
        self._outstanding.clear()
        self._refused.clear()
        self._buffer.clear()

    # -- ending --------------------------------------------------------------------------------------

    def end(self) -> None:
        """Close the channel: the broker takes back what is unsettled."""
        if self._cancelled:
            return
        self._cancelled = True
        self._buffer.close()
        self._io.cancel(self._retry)
        channel = self._channel
        if channel is None or not channel.is_open:
            self._finish()
            return
        self._send_settled()
        if time.monotonic() - self._burst_at < LINGER:
            self._io.later(LINGER, lambda: self._close(channel))
        else:
            self._close(channel)

    def _close(self, channel: Any) -> None:
        if channel is self._channel and channel.is_open:
            channel.close(0, "cancelled")

    def _finish(self) -> None:
        if not self._done.is_set():
            self._done.set()
            self._gone(self)
