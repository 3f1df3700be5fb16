"""What a thread does with its kombu connection: one session while the connection lasts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rainbow.brokers.base import Delivery, Message, QueueStats
from rainbow.errors import RainbowError
from rainbow.topology import Topology


class Session(Protocol):
    """Used by one thread only. Whatever kombu raises for a lost connection ends it; the thread makes a new one."""

    #: Whether what was delivered in an earlier session can still be settled in this one.
    keeps_deliveries: bool
    #: How many messages `publish` takes at once.
    batch: int
    #: Seconds between looks for messages; None when `poll` itself waits for them.
    idle: float | None

    def declare(self, topology: Topology) -> None: ...

    def delete(self, queues: Sequence[str]) -> None: ...

    def stats(self, queue: str) -> QueueStats: ...

    def publish(self, messages: Sequence[Message]) -> list[RainbowError | None]:
        """Send up to `batch` messages and wait until the broker has them; one outcome each."""

    def subscribe(self, queue: str, prefetch: int, *, private: bool) -> bool:
        """Begin to consume; False when there is no such queue yet."""

    def poll(self, room: int, timeout: float) -> list[Delivery]:
        """Up to `room` deliveries (a broker that pushes keeps to the prefetch instead)."""

    def ack(self, deliveries: Sequence[Delivery]) -> None: ...

    def reject(self, deliveries: Sequence[Delivery]) -> None: ...

    def requeue(self, deliveries: Sequence[Delivery]) -> None: ...

    def unsubscribe(self, held: Sequence[Delivery]) -> None:
        """Stop consuming and give `held` back."""

    def tick(self, held: Sequence[Delivery]) -> None:
        """Called every second or so: heartbeats, keeping `held` ours."""

    def sweep(self) -> None:
        """Called every half second in a process that declared: see to messages whose time is up."""

    def close(self) -> None: ...
