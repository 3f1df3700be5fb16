"""Publishing with pipelined confirms on a channel of its own (rabbitmq.com/docs/confirms#publisher-confirms).

A message is in one of two places: `_outbox` (not sent yet: no channel, or the broker is blocked) or `_sent`
(by its confirm tag). From either it leaves with exactly one outcome: by a confirm, by a return, with the channel,
or when its time is up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pika import exceptions as pika_exceptions
from pika.spec import Basic

from rainbow.backoff import Backoff
from rainbow.brokers.base import Message, Receipt
from rainbow.brokers.rabbitmq import refusals
from rainbow.brokers.rabbitmq.confirm_watch import ConfirmWatch
from rainbow.brokers.rabbitmq.loop import IoThread
from rainbow.brokers.rabbitmq.nacks import Look, Nacks
from rainbow.brokers.rabbitmq.reply_sinks import ReplySinks
from rainbow.brokers.rabbitmq.wire import Connection, properties, publish_frames, publish_method
from rainbow.errors import BadCredentials, BrokerBlocked, InvalidInput, PublishFailed, RainbowError, TooLarge

log = logging.getLogger(__name__)

#: Seconds a broker may be blocked before messages that were not sent are given back.
BLOCKED_GRACE = 1.0
#: How often time limits are looked at, in seconds.
TICK = 0.5
#: Frames are handed to the socket in pieces of about this many bytes.
PIECE = 1 << 16


@dataclass(slots=True, eq=False)
class _Slot:
    receipt: Receipt
    index: int
    message: Message
    method: bytes
    header: bytes
    deadline: float
    returned: RainbowError | None = None


class Publisher:
    """All methods but `publish` and the properties run in the I/O thread."""

    def __init__(
        self,
        io: IoThread,
        *,
        max_in_flight: int,
        max_message_bytes: int,
        publish_timeout: float,
        address: str,
        look: Look,
    ) -> None:
        self._io = io
        self._max_in_flight = max_in_flight
        self._max_bytes = max_message_bytes
        self._timeout = publish_timeout
        self._address = address
        self._watch = ConfirmWatch(address)
        self.nacks: Nacks[_Slot] = Nacks(look, self._nacked)
        #: The broker refuses what comes by this channel, though the queue is not full: nothing more is sent on it.
        self._stale = False
        self._room = threading.Condition()
        self._in_flight = 0
        #: Those among them that have their outcomes, and make room at the next `make_room`.
        self._settled = 0
        self._outbox: deque[_Slot] = deque()
        self._sent: dict[int, _Slot] = {}
        self._low = 1
        self._next = 1
        self._connection: Connection | None = None
        self._channel: Any = None
        self._ready = False
        self._backoff = Backoff(first=0.05, most=1.0)
        self._ticking = False
        self._grace: Any = None
        self._stop: RainbowError | None = None
        self._down: RainbowError | None = None
        self.blocked: str | None = None
        self._blocked_long = False
        #: Those who wait for answers to what is published here.
        self.replies = ReplySinks()
        #: Asked to renew the secret when the broker says that ours has run out.
        self.on_expired_secret: Any = None

    @property
    def ready(self) -> bool:
        return self._ready

    # -- any thread ----------------------------------------------------------------------------------

    def publish(self, messages: Sequence[Message]) -> Receipt:
        receipt = Receipt(len(messages))
        deadline = time.monotonic() + self._timeout
        slots: list[_Slot] = []
        limit = self._max_bytes
        for index, m in enumerate(messages):
            if len(m.body) > limit:
                receipt.settle(
                    index,
                    TooLarge(f"message {m.message_id or ''} has {len(m.body)} bytes: the limit is {limit} bytes"),
                )
                continue
            try:
                slots.append(
                    _Slot(
                        receipt,
                        index,
                        m,
                        publish_method(m.exchange, m.routing_key, m.mandatory),
                        properties(m),
                        deadline,
                    )
                )
            except InvalidInput as exc:
                receipt.settle(index, exc)
        start = 0
        while start < len(slots):
            count = self._reserve(len(slots) - start)
            chunk = slots[start : start + count] if start or count < len(slots) else slots
            self._io.call(lambda chunk=chunk: self._accept(chunk))  # type: ignore[misc]
            start += count
        return receipt

    def wait_empty(self, timeout: float) -> bool:
        """Wait until nothing is in flight; whether it is so."""
        with self._room:
            return self._room.wait_for(lambda: self._in_flight == 0 or self._stop is not None, timeout)

    def _reserve(self, wanted: int) -> int:
        """Wait until there is room for some messages; for how many."""
        with self._room:
            # A callback in the I/O thread must not wait for itself.
            while self._in_flight >= self._max_in_flight and self._stop is None and not self._io.here:
                self._room.wait()
            if isinstance(self._stop, BadCredentials):
                raise self._stop
            count = wanted
            if self._stop is None and not self._io.here:
                count = min(wanted, self._max_in_flight - self._in_flight)
            self._in_flight += count
            return count

    # -- sending -------------------------------------------------------------------------------------

    def _accept(self, slots: list[_Slot]) -> None:
        refusal = self._stop or (self._blocked_error() if self._blocked_long else None)
        if refusal is not None:
            self._finish([(slot, refusal) for slot in slots])
            return
        self._outbox.extend(slots)
        if not self._ticking:
            self._ticking = True
            self._io.later(TICK, self._tick)
        if self._ready:
            # Once for everything handed over in this turn: one write for many small publishes.
            self._io.at_end_of_turn(self._flush)

    def _flush(self) -> None:
        if not self._ready or self._stale or self.blocked is not None or self._connection is None or not self._outbox:
            return
        outbox, sent, tag = self._outbox, self._sent, self._next
        number, frame_max = self._channel.channel_number, self._connection.frame_max
        frames: list[bytes] = []
        size = 0
        while outbox:
            slot = outbox.popleft()
            sent[tag] = slot
            tag += 1
            size += publish_frames(frames, number, slot.method, slot.header, slot.message.body, frame_max)
            if size >= PIECE:
                self._connection.send(b"".join(frames))
                frames.clear()
                size = 0
        self._next = tag
        if frames:
            self._connection.send(b"".join(frames))

    def _finish(self, outcomes: list[tuple[_Slot, RainbowError | None]]) -> None:
        """Settle messages that are in neither place any more."""
        for slot, outcome in outcomes:
            self._settle(slot, outcome)
        self.make_room()

    def _settle(self, slot: _Slot, outcome: RainbowError | None) -> None:
        slot.receipt.settle(slot.index, outcome)
        self._settled += 1

    def make_room(self) -> None:
        """For as many messages as have their outcomes. Confirms come by the hundred: once for all that were read."""
        if self._settled:
            with self._room:
                self._in_flight -= self._settled
                self._settled = 0
                self._room.notify_all()

    # -- confirms ------------------------------------------------------------------------------------

    def _on_confirm(self, frame: Any) -> None:
        """From pika, for as long as they are not read straight."""
        method = frame.method
        self._confirmed(method.delivery_tag, method.multiple, isinstance(method, Basic.Ack))

    def _confirmed(self, tag: int, multiple: bool, ok: bool) -> None:
        tags: Sequence[int] = range(self._low, tag + 1) if multiple else (tag,)
        sent = self._sent
        for t in tags:
            slot = sent.pop(t, None)
            if slot is None:
                continue
            if ok or slot.returned is not None:
                self._settle(slot, slot.returned)
            else:
                self.nacks.add(slot)
        low, following = self._low, self._next
        while low < following and low not in sent:
            low += 1
        self._low = low
        if ok:
            self._backoff.reset()
        if self._stale and not sent:
            self._renew()

    def _nacked(self, found: list[tuple[_Slot, RainbowError]]) -> None:
        """Why they were nacked is known now.

        RabbitMQ may go on refusing what comes by a channel that was open when a queue lost its leader, long after the
        queue has another one. Where answers are awaited on the channel it stays: they could not be told elsewhere.
        """
        self._finish([*found])
        if self._ready and not self.replies and any(type(error) is PublishFailed for _, error in found):
            self._stale = True
            if not self._sent:
                self._renew()

    def _renew(self) -> None:
        self._leave_channel(PublishFailed("the channel is replaced: messages were refused on it"))
        self._io.later(self._backoff.next(), self._open)

    def _on_return(self, _channel: Any, method: Any, props: Any, body: bytes) -> None:
        """Note what came back, for the oldest message like it: a return arrives before the confirm of its message."""
        for tag in range(self._low, self._next):
            slot = self._sent.get(tag)
            if slot is not None and slot.returned is None and refusals.alike(slot.message, method, props, body):
                slot.returned = refusals.returned(slot.message, method)
                return
        log.warning(
            "the broker returned a message that is not in flight",
            extra={"action": "broker.stray_return", "exchange": method.exchange, "key": method.routing_key},
        )

    # -- the channel ---------------------------------------------------------------------------------

    def link_up(self, connection: Connection) -> None:
        self._connection = connection
        connection.after_read.append(self.make_room)
        self._down = None
        self._open()

    def link_down(self, error: RainbowError) -> None:
        self._connection = None
        self._down = error
        self._drop_channel(PublishFailed(f"not confirmed before the connection was lost: {error}"))
        if isinstance(error, BadCredentials):
            self.stop(error)

    def _open(self) -> None:
        connection = self._connection
        if connection is None or self._channel is not None or self._stop is not None or not connection.is_open:
            return
        self._channel = connection.channel(on_open_callback=self._opened)
        self._channel.add_on_close_callback(self._closed)

    def _opened(self, channel: Any) -> None:
        if channel is not self._channel:
            return
        self._low = self._next = 1
        channel.add_on_return_callback(self._on_return)
        channel.confirm_delivery(self._on_confirm, callback=lambda _frame: self._confirming(channel))

    def _confirming(self, channel: Any) -> None:
        if channel is not self._channel:
            return
        self._ready = True
        self._read_straight(channel)
        self.replies.opened(channel)
        self._flush()

    def _read_straight(self, channel: Any) -> None:
        """Take confirms as they are read, without pika."""
        assert self._connection is not None
        number, confirmed = channel.channel_number, self._connection.reader.confirmed

        def take(tag: int, multiple: bool, ok: bool) -> None:
            if channel is self._channel:
                self._confirmed(tag, multiple, ok)

        confirmed[number] = take
        channel.add_on_close_callback(lambda *_: confirmed.pop(number, None))

    def _closed(self, channel: Any, reason: BaseException) -> None:
        """The broker closed the channel: find the messages it was about; the others may or may not have arrived."""
        if channel is not self._channel or not isinstance(reason, pika_exceptions.ChannelClosed):
            return  # not ours any more, or the connection is lost: `link_down` follows
        code, text = int(reason.reply_code), str(reason.reply_text)
        log.warning(
            "the broker closed the publishing channel: %s %s",
            code,
            text,
            extra={"action": "broker.channel_closed", "code": code},
        )
        about = refusals.blamed(code, text)
        self._drop_channel(PublishFailed(f"not confirmed before the broker closed the channel: {code} {text}"), about)
        if code == 403 and "expired" in text and self.on_expired_secret is not None:
            self.on_expired_secret()
        self._io.later(self._backoff.next(), self._open)

    def _leave_channel(self, error: RainbowError) -> None:
        channel = self._channel
        self._drop_channel(error)
        if channel is not None and channel.is_open:
            channel.close(0, str(error)[:200])

    def _drop_channel(self, error: RainbowError, about: Any = None) -> None:
        self._channel = None
        self._ready = self._stale = False
        self.replies.opened(None)
        slots, self._sent = list(self._sent.values()), {}
        self._low = self._next = 1
        self._finish([(s, s.returned or (about(s.message) if about else None) or error) for s in slots])

    # -- time limits, blocked, end -------------------------------------------------------------------

    def set_blocked(self, reason: str | None) -> None:
        self.blocked = reason
        self._io.cancel(self._grace)
        self._grace = None
        if reason is None:
            self._blocked_long = False
            self._flush()
        elif not self._blocked_long:
            self._grace = self._io.later(BLOCKED_GRACE, self._blocked_for_long)

    def _blocked_for_long(self) -> None:
        self._grace = None
        if self.blocked is not None:
            self._blocked_long = True
            slots, self._outbox = list(self._outbox), deque()
            error = self._blocked_error()
            self._finish([(slot, error) for slot in slots])

    def _blocked_error(self) -> BrokerBlocked:
        return BrokerBlocked(f"the broker takes no messages now ({self.blocked}): try again later")

    def _tick(self) -> None:
        now = time.monotonic()
        late: list[tuple[_Slot, RainbowError | None]] = []
        while self._outbox and self._outbox[0].deadline <= now:
            why = self._down or (f"blocked: {self.blocked}" if self.blocked is not None else "no channel")
            late.append((self._outbox.popleft(), PublishFailed(f"not sent within {self._timeout:g} s: {why}")))
        self._finish(late)
        oldest = self._sent.get(self._low)
        self._watch.look(None if oldest is None else oldest.message, len(self._sent), now)
        if oldest is not None and oldest.deadline <= now:
            # All or nothing: after this the channel's tags mean nothing any more.
            log.warning(
                "the broker confirms nothing within %g s: replacing the channel",
                self._timeout,
                extra={"action": "broker.confirm_timeout", "messages": len(self._sent)},
            )
            self._leave_channel(PublishFailed(f"not confirmed by {self._address} within {self._timeout:g} s"))
            self._open()
        self._ticking = bool(self._outbox or self._sent)
        if self._ticking:
            self._io.later(TICK, self._tick)

    def stop(self, error: RainbowError) -> None:
        """Take nothing more; what has no outcome yet gets `error`."""
        with self._room:
            self._stop = self._stop or error
            self._room.notify_all()
        slots, self._outbox = list(self._outbox), deque()
        self._finish([(slot, error) for slot in slots])
        self.nacks.end(error)
        self._leave_channel(error)
