"""The contract of a broker plugin: what a message is, and the six methods that move it.

A plugin is only what differs between brokers. Codecs, retries of work, metrics and loops wrap it.
Threads: every method may be called from any thread; a plugin keeps its connection to one thread of its own
and reconnects by itself, for as long as it takes (with jitter), unless the broker refuses the credentials:
then every call raises BadCredentials.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rainbow.errors import InvalidInput, RainbowError, TimedOut
from rainbow.topology import Topology

#: The queue name that means "answers to what I publish": RabbitMQ's direct reply-to, or a private queue.
REPLIES = "amq.rabbitmq.reply-to"

JSON = "application/json"
MSGPACK = "application/x-msgpack"


@dataclass(slots=True)
class Message:
    """A message to publish: persistent, mandatory unless told otherwise. `expiration` is in seconds."""

    exchange: str
    routing_key: str
    body: bytes
    content_type: str = JSON
    message_id: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    priority: int | None = None
    expiration: float | None = None
    headers: dict[str, Any] | None = None
    mandatory: bool = True


@dataclass(slots=True, eq=False)
class Delivery:
    """A message taken from a queue. `tag` and `epoch` belong to the plugin: a tag never crosses channels."""

    queue: str
    body: bytes
    content_type: str | None = None
    message_id: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    priority: int | None = None
    headers: dict[str, Any] = field(default_factory=dict)
    exchange: str = ""
    routing_key: str = ""
    user_id: str | None = None
    redelivered: bool = False
    tag: Any = None
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Ready messages and consumers of one queue."""

    messages: int
    consumers: int


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a connection.

    `blocked` is the broker's reason while it takes no messages. `problem` is the reason why the last attempt to
    connect failed, while there is no connection.
    """

    connected: bool
    blocked: str | None = None
    reconnects: int = 0
    problem: str | None = None


class Receipt:
    """What became of published messages: one outcome each, None for "the broker has it" (confirmed and routed).

    Outcomes are PublishFailed or its subclasses, which may be retried; TooLarge, InvalidInput (it cannot be sent)
    and Denied (no right to publish there), where trying again cannot help. A receipt always completes: with errors
    when the connection is lost or the plugin's publish time limit runs out; such a message may or may not have
    arrived.
    """

    __slots__ = ("_callback", "_event", "_lock", "_open", "outcomes")

    def __init__(self, count: int) -> None:
        self.outcomes: list[RainbowError | None] = [None] * count
        self._open = set(range(count))
        self._lock = threading.Lock()
        self._event = threading.Event()
        self._callback: Callable[[Receipt], None] | None = None
        if count == 0:
            self._event.set()

    def settle(self, index: int, outcome: RainbowError | None) -> None:
        """Used by plugins: set the outcome of one message, once; later calls for it change nothing."""
        with self._lock:
            if index not in self._open:
                return
            self._open.discard(index)
            self.outcomes[index] = outcome
            done = not self._open
            callback = self._callback if done else None
            if done:
                self._event.set()
        if callback is not None:
            callback(self)

    def settle_all(self, outcome: RainbowError | None) -> None:
        """Used by plugins: set the outcome of all messages that have none yet."""
        for index in list(self._open):
            self.settle(index, outcome)

    @property
    def done(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout: float | None = None) -> list[RainbowError | None]:
        """The outcomes, once all are known. Raises TimedOut after `timeout` seconds."""
        if not self._event.wait(timeout):
            raise TimedOut(f"the broker did not confirm {len(self._open)} message(s) within {timeout:g} s")
        return self.outcomes

    def check(self, timeout: float | None = None) -> None:
        """Wait, and raise the first failure if there is one."""
        for outcome in self.wait(timeout):
            if outcome is not None:
                raise outcome

    def then(self, callback: Callable[[Receipt], None]) -> None:
        """Call `callback(receipt)` once when all outcomes are known: at once if they are, else in the plugin's thread.

        It must be short and must not wait for the broker.
        """
        with self._lock:
            if self._open:
                self._callback = callback
                return
        callback(self)


#: Seconds a `take` from a cancelled consumer lasts at most: a loop that has not noticed must not spin.
CANCELLED_PAUSE = 0.05


def check_prefetch(prefetch: int) -> None:
    """Used by plugins. Raises InvalidInput for a `prefetch` that AMQP has no room for."""
    if not 1 <= prefetch <= 65535:
        raise InvalidInput(f"prefetch is 1 to 65535, not {prefetch}")


class Consumer(Protocol):
    """A subscription to one queue. It survives reconnects, `basic.cancel`, and its queue deleted and declared again.

    What was taken and not settled goes back to the queue when the channel is lost; settling it afterwards is a no-op.
    """

    #: What to put into `reply_to` when the queue is REPLIES; else the queue's name.
    address: str

    def take(self, limit: int, timeout: float) -> list[Delivery]:
        """Up to `limit` deliveries, as soon as there is one; [] after `timeout` seconds or once cancelled."""

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Done with: the broker may forget them. Any order; each once."""

    def reject(self, deliveries: Sequence[Delivery]) -> None:
        """Refused (nack without requeue): they go to the queue's dead-letter exchange, if it has one."""

    def requeue(self, deliveries: Sequence[Delivery]) -> None:
        """Not now: back to the queue, as early in it as the broker can."""

    def cancel(self) -> None:
        """Stop consuming; what is taken and not settled goes back to the queue."""


class Broker(Protocol):
    """A message broker. Six methods; see the module for threads and reconnecting."""

    def declare(self, topology: Topology) -> None:
        """Make sure all of it exists. Idempotent. Raises TopologyMismatch naming each difference and what to do."""

    def delete(self, queues: Sequence[str]) -> None:
        """Delete queues with what is in them. A queue that is not there is fine."""

    def publish(self, messages: Sequence[Message]) -> Receipt:
        """Send messages in order, without waiting: the receipt has the outcomes.

        Bounded: blocks while too much is in flight.
        """

    def consume(self, queue: str, *, prefetch: int) -> Consumer:
        """Subscribe; at most `prefetch` deliveries are held unsettled. A queue that is not there yet is waited for."""

    def stats(self, queue: str) -> QueueStats:
        """Messages ready and consumers. Raises NotFound."""

    def close(self) -> None:
        """Flush what was published, give back what is unsettled, disconnect. Idempotent."""

    @property
    def status(self) -> Status:
        """How the connection is now."""
