"""Answers on a publishing channel (rabbitmq.com/docs/direct-reply-to): one consumer, shared by all who wait."""

from __future__ import annotations

from typing import Any, Protocol

from rainbow.brokers.base import REPLIES


class ReplySink(Protocol):
    """Gets every answer (as `ReplyConsumer`), in the I/O thread, and knows its own by correlation id."""

    def answer(self, method: Any, props: Any, body: bytes) -> None: ...


class ReplySinks:
    """All methods run in the I/O thread."""

    def __init__(self) -> None:
        self._sinks: list[ReplySink] = []
        self._channel: Any = None
        self._consuming = False

    def __bool__(self) -> bool:
        return bool(self._sinks)

    def add(self, sink: ReplySink) -> None:
        self._sinks.append(sink)
        self._consume()

    def remove(self, sink: ReplySink) -> None:
        if sink in self._sinks:
            self._sinks.remove(sink)

    def opened(self, channel: Any) -> None:
        """The channel on which questions are published from now on; None: there is none."""
        self._channel, self._consuming = channel, False
        self._consume()

    def _consume(self) -> None:
        if self._sinks and self._channel is not None and not self._consuming:
            self._consuming = True
            self._channel.basic_consume(REPLIES, self._on_answer, auto_ack=True)

    def _on_answer(self, _channel: Any, method: Any, props: Any, body: bytes) -> None:
        for sink in self._sinks:
            sink.answer(method, props, body)


__all__ = ["ReplySink", "ReplySinks"]
