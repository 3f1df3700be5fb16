"""What the workers publish: the one place that signs dead letters, so that an operator knows which ones are theirs."""

from __future__ import annotations

from collections.abc import Sequence

from rainbow import topology
from rainbow.brokers.base import Broker, Consumer, Message, QueueStats, Receipt, Status
from rainbow.security import signing
from rainbow.topology import Topology
from rainbow_workers.keys import ClusterKeys


class Outlet:
    """A broker that signs each dead letter published through it with the workers' key."""

    def __init__(self, broker: Broker, keys: ClusterKeys) -> None:
        self._broker = broker
        self._keys = keys

    def publish(self, messages: Sequence[Message]) -> Receipt:
        for message in messages:
            if message.exchange == topology.DEAD:
                headers = {k: v for k, v in (message.headers or {}).items() if k != signing.HEADER}
                text = signing.letter_text(headers, message.body)
                message.headers = {**headers, signing.HEADER: signing.sign(self._keys.letters, text)}
        return self._broker.publish(messages)

    def declare(self, topology: Topology) -> None:
        self._broker.declare(topology)

    def delete(self, queues: Sequence[str]) -> None:
        self._broker.delete(queues)

    def consume(self, queue: str, *, prefetch: int) -> Consumer:
        return self._broker.consume(queue, prefetch=prefetch)

    def stats(self, queue: str) -> QueueStats:
        return self._broker.stats(queue)

    def close(self) -> None:
        self._broker.close()

    @property
    def status(self) -> Status:
        return self._broker.status
