"""Several queues consumed as one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rainbow.brokers.base import Broker, Consumer, Delivery

#: Seconds between two looks at the queues while all are empty.
_PAUSE = 0.05


class Lanes:
    """A consumer of several queues. Each delivery is settled with the consumer that it came from."""

    def __init__(self, broker: Broker, queues: Sequence[str], prefetch: int) -> None:
        self.address = ""
        self._consumers = {queue: broker.consume(queue, prefetch=prefetch) for queue in queues}

    def take(self, limit: int, timeout: float) -> list[Delivery]:
        deadline = time.monotonic() + timeout
        while True:
            out: list[Delivery] = []
            for consumer in self._consumers.values():
                if len(out) < limit:
                    out += consumer.take(limit - len(out), 0.0)
            left = deadline - time.monotonic()
            if out or left <= 0:
                return out
            time.sleep(min(_PAUSE, left))

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        self._settle(deliveries, lambda consumer: consumer.ack)

    def reject(self, deliveries: Sequence[Delivery]) -> None:
        self._settle(deliveries, lambda consumer: consumer.reject)

    def requeue(self, deliveries: Sequence[Delivery]) -> None:
        self._settle(deliveries, lambda consumer: consumer.requeue)

    def cancel(self) -> None:
        for consumer in self._consumers.values():
            consumer.cancel()

    def _settle(
        self, deliveries: Sequence[Delivery], how: Callable[[Consumer], Callable[[Sequence[Delivery]], None]]
    ) -> None:
        for queue, consumer in self._consumers.items():
            mine = [d for d in deliveries if d.queue == queue]
            if mine:
                how(consumer)(mine)
