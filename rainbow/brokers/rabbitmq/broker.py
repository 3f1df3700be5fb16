"""The Broker for RabbitMQ: puts links, publisher and consumers together.

Two connections, both served by one I/O thread: RabbitMQ stops reading from a connection that publishes while it
is short of memory or disk (rabbitmq.com/docs/connection-blocked), and consumers must go on draining just then.
The second one is made when the first consumer is.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from rainbow.brokers.base import REPLIES, Consumer, Message, QueueStats, Receipt, Status, check_prefetch
from rainbow.brokers.rabbitmq import calls
from rainbow.brokers.rabbitmq.answers import Answers, is_answer
from rainbow.brokers.rabbitmq.consumer import QueueConsumer
from rainbow.brokers.rabbitmq.endpoints import Parameters
from rainbow.brokers.rabbitmq.link import Link
from rainbow.brokers.rabbitmq.loop import IoThread
from rainbow.brokers.rabbitmq.publisher import Publisher
from rainbow.brokers.rabbitmq.reply_consumer import ReplyConsumer
from rainbow.brokers.rabbitmq.wire import Connection
from rainbow.errors import BadCredentials, BrokerUnavailable, PublishFailed, RainbowError
from rainbow.topology import Topology

if TYPE_CHECKING:
    from rainbow.brokers import ConnectOptions

T = TypeVar("T")

#: Longest look at a queue that took no message, in seconds.
LOOK = 3.0
#: Longest wait for the broker's goodbye when closing, in seconds.
GOODBYE = 5.0


class _Waker:
    """Hooks a connection up so that takers of deliveries are woken once for each piece read from it."""

    def __init__(self, consumers: Callable[[], Sequence[QueueConsumer | ReplyConsumer]]) -> None:
        self._consumers = consumers

    def link_up(self, connection: Connection) -> None:
        connection.after_read.append(self._wake)

    def link_down(self, error: RainbowError) -> None:
        """Nothing to do: the connection is gone."""

    def _wake(self) -> None:
        for consumer in self._consumers():
            consumer.wake()


class RabbitMQBroker:
    """See `rainbow.brokers.base.Broker` for what the methods promise."""

    def __init__(self, options: ConnectOptions) -> None:
        parameters = Parameters(options)
        # pika logs each failed attempt as an error with a traceback; we say each in one line of our own.
        pika_log = logging.getLogger("pika")
        if pika_log.level == logging.NOTSET:
            pika_log.setLevel(logging.CRITICAL)
        self._options = options
        self._refused: BadCredentials | None = None
        self._closed = False
        self._lock = threading.Lock()
        self._consumers: list[QueueConsumer] = []
        self._reply_consumers: list[ReplyConsumer] = []
        self._calls: list[calls.Call[object]] = []
        self._end_links: Callable[[], None] | None = None
        self._io = IoThread(f"{options.name}-amqp")
        self._publisher = Publisher(
            self._io,
            max_in_flight=options.max_in_flight,
            max_message_bytes=options.max_message_bytes,
            publish_timeout=options.publish_timeout,
            address=parameters.address,
            look=lambda queue, then: calls.Call(self._io, self._out, lambda: calls.stats(queue)).begin(LOOK, then),
        )
        self._publisher.on_expired_secret = self._refresh
        self._out = Link(self._io, options, parameters, "publish", self._on_refused, self._publisher.set_blocked)
        self._in = Link(self._io, options, parameters, "consume", self._on_refused, lambda _reason: None)
        answering = Link(
            self._io, options, parameters, "answer", self._on_refused, lambda reason: self._answers.set_blocked(reason)
        )
        self._answers = Answers(self._io, answering)
        self._links = (self._out, self._in, answering)
        self._io.on_crash = self._on_crash
        self._io.start()
        self._io.call(self._start)

    def _start(self) -> None:
        self._out.join(_Waker(lambda: self._reply_consumers))
        self._out.join(self._publisher)
        self._in.join(_Waker(lambda: self._consumers))
        self._links[2].join(self._answers)
        self._out.start()

    # -- the contract --------------------------------------------------------------------------------

    def declare(self, topology: Topology) -> None:
        self._call(lambda: calls.declare(topology))
        self._publisher.nacks.declared.update((queue.name, queue) for queue in topology.queues)

    def delete(self, queues: Sequence[str]) -> None:
        self._call(lambda: calls.delete(list(queues)))

    def publish(self, messages: Sequence[Message]) -> Receipt:
        if self._refused is not None:
            raise self._refused
        answers = [m for m in messages if is_answer(m)]
        if not answers:
            return self._publisher.publish(messages)
        self._answers.send(answers)
        return self._with_answers(messages)

    def _with_answers(self, messages: Sequence[Message]) -> Receipt:
        """Publish all but the answers, which are on their way: nothing waits for those."""
        receipt = Receipt(len(messages))
        others: list[int] = []
        for at, m in enumerate(messages):
            if is_answer(m):
                receipt.settle(at, None)
            else:
                others.append(at)

        def settle(inner: Receipt) -> None:
            for at, outcome in zip(others, inner.outcomes, strict=True):
                receipt.settle(at, outcome)

        if others:
            self._publisher.publish([messages[at] for at in others]).then(settle)
        return receipt

    def consume(self, queue: str, *, prefetch: int) -> Consumer:
        self._check()
        check_prefetch(prefetch)
        if queue == REPLIES:
            replies = ReplyConsumer(
                self._io, self._publisher, max(prefetch, self._options.max_in_flight), self._replies_gone
            )
            self._io.call(lambda: self._add_replies(replies))
            return replies
        consumer = QueueConsumer(self._io, queue, prefetch, self._consumer_gone, self._refresh)
        self._io.call(lambda: self._add_consumer(consumer))
        return consumer

    def stats(self, queue: str) -> QueueStats:
        return self._call(lambda: calls.stats(queue))

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._refused is None and not self._io.here:
            self._flush()
        error = PublishFailed("the broker connection was closed before the message was confirmed")
        ended = threading.Event()
        self._io.call(lambda: self._end(error, ended))
        if not self._io.here:
            ended.wait(GOODBYE)
        self._io.stop(GOODBYE)

    def _flush(self) -> None:
        """Wait until all was sent, as long as there is a connection. Each message has a time limit of its own, so this
        ends."""
        while not self._publisher.wait_empty(GOODBYE):
            if not self._publisher.ready:
                return

    @property
    def status(self) -> Status:
        connected = self._publisher.ready and (self._in.up or not self._in.started)
        error = None if connected else self._out.last_error or self._in.last_error
        reconnects = self._out.reconnects + self._in.reconnects
        return Status(connected, self._publisher.blocked, reconnects, None if error is None else str(error))

    # -- more than the contract ----------------------------------------------------------------------

    def refresh_credentials(self) -> None:
        """Ask for the password now and give a new one to the broker on the open connections, without a gap.

        Happens by itself every few seconds when the options have a `password` callable.
        """
        self._check()
        self._io.call(self._refresh)

    # -- inside --------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._refused is not None:
            raise self._refused
        if self._closed:
            raise BrokerUnavailable("the broker connection is closed")

    def _call(self, steps: Callable[[], calls.Steps[T]]) -> T:
        self._check()
        call = calls.Call(self._io, self._out, steps)
        self._io.call(lambda: self._calls.append(call))  # type: ignore[arg-type]
        try:
            return call.run(self._options.connect_timeout + self._options.publish_timeout)
        finally:
            self._io.call(lambda: self._calls.remove(call))  # type: ignore[arg-type]

    def _add_consumer(self, consumer: QueueConsumer) -> None:
        self._consumers.append(consumer)
        self._in.join(consumer)
        self._in.start()

    def _consumer_gone(self, consumer: QueueConsumer) -> None:
        self._in.leave(consumer)
        if consumer in self._consumers:
            self._consumers.remove(consumer)
        if self._end_links is not None and not self._consumers:
            self._end_links()

    def _add_replies(self, replies: ReplyConsumer) -> None:
        self._reply_consumers.append(replies)
        self._publisher.replies.add(replies)

    def _replies_gone(self, replies: ReplyConsumer) -> None:
        if replies in self._reply_consumers:
            self._reply_consumers.remove(replies)

    def _refresh(self) -> None:
        for link in self._links:
            link.refresh()

    def _on_refused(self, error: BadCredentials) -> None:
        self._refused = self._refused or error
        self._publisher.stop(error)
        for replies in self._reply_consumers:
            replies.refuse(error)
        for consumer in self._consumers:
            consumer.link_down(error)

    def _on_crash(self, exc: Exception) -> None:
        for link in self._links:
            link.crash(exc)

    def _end(self, error: RainbowError, ended: threading.Event) -> None:
        self._publisher.stop(error)
        for call in list(self._calls):
            call.fail(BrokerUnavailable("the broker connection is closed"))
        for replies in list(self._reply_consumers):
            replies.end()
        self._end_links = partial(self._do_end_links, ended)
        for consumer in list(self._consumers):
            consumer.end()  # the last one ends the links
        if self._end_links is not None and not self._consumers:
            self._end_links()

    def _do_end_links(self, ended: threading.Event) -> None:
        self._end_links = None
        waiting = list(self._links)

        def done(link: Link) -> None:
            waiting.remove(link)
            if not waiting:
                ended.set()

        for link in self._links:
            link.end(partial(done, link))
