"""Consuming answers by direct reply-to."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from rainbow.brokers.base import REPLIES, Delivery
from rainbow.brokers.rabbitmq.buffer import Buffer, delivery
from rainbow.brokers.rabbitmq.loop import IoThread
from rainbow.brokers.rabbitmq.publisher import Publisher
from rainbow.errors import RainbowError

log = logging.getLogger(__name__)


class ReplyConsumer:
    """Answers by direct reply-to: no queue, no acks, on the publishing channel (rabbitmq.com/docs/direct-reply-to).

    An answer to what was published before the channel was replaced is lost, as the broker says it may be.
    """

    def __init__(self, io: IoThread, publisher: Publisher, bound: int, gone: Callable[[ReplyConsumer], None]) -> None:
        self.address = REPLIES
        self._io = io
        self._publisher = publisher
        self._bound = bound
        self._gone = gone
        self._buffer = Buffer()

    def take(self, limit: int, timeout: float) -> list[Delivery]:
        return self._buffer.take(limit, timeout)

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Nothing to do: the broker keeps no answers."""

    def reject(self, deliveries: Sequence[Delivery]) -> None:
        """Nothing to do: the broker keeps no answers."""

    def requeue(self, deliveries: Sequence[Delivery]) -> None:
        """Nothing to do: the broker keeps no answers."""

    def cancel(self) -> None:
        self._buffer.close()
        self._io.call(self.end)

    def end(self) -> None:
        self._buffer.close()
        self._publisher.replies.remove(self)
        self._gone(self)

    def refuse(self, error: RainbowError) -> None:
        self._buffer.close(error)

    def wake(self) -> None:
        self._buffer.wake()

    def answer(self, method: Any, props: Any, body: bytes) -> None:
        if len(self._buffer) >= self._bound:
            self._buffer.drop_oldest()
            log.warning(
                "more than %d answers wait to be taken: dropped the oldest",
                self._bound,
                extra={"action": "broker.reply_dropped"},
            )
        self._buffer.put(delivery(REPLIES, method, props, body, 0))
