"""Messages that the broker did not take, until it is known why (`rainbow.brokers.nack_reasons`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from rainbow import topology
from rainbow.brokers.base import Message, QueueStats
from rainbow.brokers.nack_reasons import reason, unknown
from rainbow.errors import RainbowError

#: Looks at a queue, in the I/O thread, and calls back there: its numbers, or why they are not known.
Look = Callable[[str, Callable[["QueueStats | BaseException"], None]], None]


class Nacked(Protocol):
    """A message that is in flight."""

    message: Message


N = TypeVar("N", bound=Nacked)


class Nacks(Generic[N]):
    """Messages that were nacked, until their queues were looked at. All methods run in the I/O thread."""

    def __init__(self, look: Look, finish: Callable[[list[tuple[N, RainbowError]]], None]) -> None:
        """`finish` is called with messages and their errors."""
        #: What was declared, by name.
        self.declared: dict[str, topology.Queue] = {}
        self._look = look
        self._finish = finish
        self._waiting: dict[str, list[N]] = {}

    def add(self, nacked: N) -> None:
        message = nacked.message
        queues = topology.queues_for(message.exchange, message.routing_key, self.declared.values())
        if not queues:
            self._finish([(nacked, unknown(message))])
            return
        # Of several queues any may have refused it: the first is looked at.
        queue = queues[0]
        waiting = self._waiting.setdefault(queue, [])
        waiting.append(nacked)
        if len(waiting) == 1:
            self._look(queue, lambda found: self._found(queue, found))

    def end(self, error: RainbowError) -> None:
        """Give all of them `error`."""
        waiting, self._waiting = self._waiting, {}
        self._finish([(nacked, error) for listed in waiting.values() for nacked in listed])

    def _found(self, queue: str, found: QueueStats | BaseException) -> None:
        listed = self._waiting.pop(queue, [])
        self._finish([(nacked, reason(nacked.message, queue, found)) for nacked in listed])
