"""Calls that wait for an answer of the broker: declare, delete, look at a queue; on a channel of their own.

A call is a generator that yields one AMQP request at a time and is sent the broker's answer; when the broker
closes the channel over a request, the exception is thrown into it and it goes on with a new channel.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Generic, TypeVar

from pika import exceptions as pika_exceptions

from rainbow.brokers.base import QueueStats
from rainbow.brokers.rabbitmq.link import Link
from rainbow.brokers.rabbitmq.loop import IoThread
from rainbow.brokers.rabbitmq.wire import Connection
from rainbow.brokers.topology_mismatch import Difference, mismatch, parse
from rainbow.errors import BrokerUnavailable, Denied, NotFound, RainbowError
from rainbow.topology import MIGRATION, NO_DELIVERY_LIMIT, Exchange, Queue, Topology

_DELIVERY_LIMIT = "x-delivery-limit"

T = TypeVar("T")

Request = Callable[[Any, Callable[[Any], None]], object]
Steps = Generator[Request, Any, T]


class Call(Generic[T]):
    """One running call. A lost connection starts it again: all requests here may be repeated."""

    def __init__(self, io: IoThread, link: Link, steps: Callable[[], Steps[T]]) -> None:
        self._io = io
        self._link = link
        self._steps = steps
        self._running: Steps[T] | None = None
        self._connection: Connection | None = None
        self._channel: Any = None
        self._pending: Request | None = None
        self._done = threading.Event()
        self._result: T | None = None
        self._error: BaseException | None = None
        self._then: Callable[[T | BaseException], None] | None = None

    def run(self, timeout: float) -> T:
        """The result, in the caller's thread. Raises what the steps raise, or BrokerUnavailable after `timeout`."""
        self._io.call(lambda: self._link.join(self))
        if not self._done.wait(timeout):
            self._io.call(lambda: self._finish(error=None))
            raise self._link.last_error or BrokerUnavailable(f"the broker did not answer within {timeout:g} s")
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def begin(self, timeout: float, then: Callable[[T | BaseException], None]) -> None:
        """In the I/O thread: call `then` there with the result, or with the error."""
        self._then = then
        self._io.later(timeout, lambda: self.fail(BrokerUnavailable(f"no answer within {timeout:g} s")))
        self._link.join(self)

    def fail(self, error: RainbowError) -> None:
        self._finish(error=error)

    def link_up(self, connection: Connection) -> None:
        self._connection = connection
        self._running = self._steps()
        self._advance(lambda steps: next(steps))

    def link_down(self, error: RainbowError) -> None:
        self._connection = None
        self._channel = None
        if isinstance(error, Denied):
            self._finish(error=error)

    def _advance(self, resume: Callable[[Steps[T]], Request]) -> None:
        if self._running is None or self._done.is_set():
            return
        try:
            self._pending = resume(self._running)
        except StopIteration as stop:
            self._finish(result=stop.value)
        except Exception as exc:
            self._finish(error=exc)
        else:
            self._request()

    def _request(self) -> None:
        if self._channel is None:
            if self._connection is not None and self._connection.is_open:
                self._channel = self._connection.channel(on_open_callback=lambda _ch: self._send())
                self._channel.add_on_close_callback(self._closed)
            return
        self._send()

    def _send(self) -> None:
        request, self._pending = self._pending, None
        if request is not None and self._channel is not None and self._channel.is_open:
            channel = self._channel
            request(channel, lambda frame: self._answered(channel, frame))

    def _answered(self, channel: Any, frame: Any) -> None:
        if channel is self._channel:
            self._advance(lambda steps: steps.send(frame))

    def _closed(self, channel: Any, reason: BaseException) -> None:
        if channel is not self._channel:
            return
        self._channel = None
        if isinstance(reason, pika_exceptions.ChannelClosedByBroker):
            self._advance(lambda steps: steps.throw(reason))

    def _finish(self, result: T | None = None, error: BaseException | None = None) -> None:
        if self._done.is_set():
            return
        self._result, self._error = result, error
        channel, self._channel = self._channel, None
        self._link.leave(self)
        self._done.set()
        if channel is not None and channel.is_open:
            channel.close(0, "done")
        if self._then is not None:
            self._then(error if error is not None else result)  # type: ignore[arg-type]


def _denied(exc: pika_exceptions.ChannelClosedByBroker) -> RainbowError | None:
    return Denied(f"the broker refuses: {exc.reply_text}") if exc.reply_code == 403 else None


def declare(topology: Topology) -> Steps[None]:
    """Declare all of it; differences are collected and raised together as TopologyMismatch.

    Raises BrokerUnavailable while messages are being moved between queues.
    """
    yield from _check_migration()
    wrong: list[Difference | str] = []
    for exchange in topology.exchanges:
        try:
            yield partial(_exchange_declare, exchange)
        except pika_exceptions.ChannelClosedByBroker as exc:
            wrong.append(_difference(f"exchange {exchange.name!r}", exc))
    for queue in topology.queues:
        try:
            yield from _declare_queue(queue, wrong)
        except pika_exceptions.ChannelClosedByBroker as exc:
            wrong.append(_difference(f"queue {queue.name!r}", exc))
    if wrong:
        raise mismatch(wrong)


def _check_migration() -> Steps[None]:
    try:
        yield lambda ch, done: ch.queue_declare(MIGRATION, passive=True, callback=done)
    except pika_exceptions.ChannelClosedByBroker as exc:
        if exc.reply_code in (403, 404):  # not ours to see, for an account that may only use what is there
            return
        raise
    raise BrokerUnavailable(
        "queues are being changed by `rainbow broker migrate`; if it is not running, it was interrupted: run it again"
    )


def _declare_queue(queue: Queue, wrong: list[Difference | str]) -> Steps[None]:
    """Declare and bind. A queue with other limits is declared with those; the broker names one difference at a time."""
    arguments = queue.arguments()
    while True:
        try:
            yield partial(_queue_declare, queue.name, arguments)
            break
        except pika_exceptions.ChannelClosedByBroker as exc:
            found = parse(f"queue {queue.name!r}", int(exc.reply_code), str(exc.reply_text))
            if found is None or not found.tolerable or found in wrong:
                raise
            wrong.append(found)
            arguments = as_there(arguments, found)
    for exchange, key in queue.bindings:
        yield partial(_queue_bind, queue.name, exchange, key)


def as_there(arguments: dict[str, Any], found: Difference) -> dict[str, Any]:
    """`arguments` with the value that the queue has."""
    there = {key: value for key, value in arguments.items() if key != found.argument}
    return there if found.have is None else {**there, found.argument: int(found.have)}


def _queue_declare(queue: str, arguments: dict[str, Any], channel: Any, done: Callable[[Any], None]) -> None:
    told = for_server(arguments, channel.connection.server_properties)
    channel.queue_declare(queue, durable=True, arguments=told, callback=done)


def for_server(arguments: dict[str, Any], server: dict[str, Any] | None) -> dict[str, Any]:
    """`arguments` as this release of RabbitMQ takes them (see `topology.NO_DELIVERY_LIMIT`)."""
    if arguments.get(_DELIVERY_LIMIT) != NO_DELIVERY_LIMIT or not str((server or {}).get("version", "")).startswith(
        "3."
    ):
        return arguments
    return {key: value for key, value in arguments.items() if key != _DELIVERY_LIMIT}


def _exchange_declare(exchange: Exchange, channel: Any, done: Callable[[Any], None]) -> None:
    channel.exchange_declare(exchange.name, exchange.type, durable=True, callback=done)


def _queue_bind(queue: str, exchange: str, key: str, channel: Any, done: Callable[[Any], None]) -> None:
    channel.queue_bind(queue, exchange, key, callback=done)


def _queue_delete(queue: str, channel: Any, done: Callable[[Any], None]) -> None:
    channel.queue_delete(queue, callback=done)


def _difference(what: str, exc: pika_exceptions.ChannelClosedByBroker) -> Difference | str:
    if (denied := _denied(exc)) is not None:
        raise denied from None
    code, text = int(exc.reply_code), str(exc.reply_text)
    return parse(what, code, text) or f"{what}: {code} {text}"


def delete(queues: list[str]) -> Steps[None]:
    for name in queues:
        try:
            yield partial(_queue_delete, name)
        except pika_exceptions.ChannelClosedByBroker as exc:
            if exc.reply_code != 404:
                raise (_denied(exc) or BrokerUnavailable(f"cannot delete queue {name!r}: {exc.reply_text}")) from None


def stats(queue: str) -> Steps[QueueStats]:
    try:
        frame = yield lambda ch, done: ch.queue_declare(queue, passive=True, callback=done)
    except pika_exceptions.ChannelClosedByBroker as exc:
        if exc.reply_code == 404:
            raise NotFound(f"there is no queue {queue!r}") from None
        raise (_denied(exc) or BrokerUnavailable(f"cannot look at queue {queue!r}: {exc.reply_text}")) from None
    return QueueStats(int(frame.method.message_count), int(frame.method.consumer_count))
