"""The recorders' queue of earlier releases: emptied into the one of this release, then deleted.

Its arguments could not be changed, so the queue has another name now. Both are bound to the events from the moment the
new one is declared. What was in the former queue before is moved; what came later is in both. An event that is recorded
twice changes nothing.
"""

from __future__ import annotations

import logging
import threading

from rainbow import topology
from rainbow.brokers.base import Broker, Delivery, Message
from rainbow.errors import NotFound, RainbowError

log = logging.getLogger(__name__)

_BATCH = 500
_CONFIRM = 30.0


class FormerQueue(threading.Thread):
    """Moves the messages in the background. `empty` is True once the queue is gone: before, events in it may be older
    than those in the new one."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(name="rainbow-former-queue", daemon=True)
        self._broker = broker
        self._stopping = threading.Event()
        self.empty = False

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        while not self._stopping.is_set() and not self.empty:
            try:
                self.empty = self._move()
            except NotFound:
                self.empty = True
            except RainbowError as exc:
                log.warning("the former queue of events waits: %s", exc, extra={"action": "migrate", "code": exc.code})
            if not self.empty:
                self._stopping.wait(1.0)

    def _move(self) -> bool:
        """Move what is there now. True once the queue is deleted: it is empty, without other consumers."""
        wanted = self._broker.stats(topology.FORMER_RECORDER_QUEUE).messages
        moved = 0
        consumer = self._broker.consume(topology.FORMER_RECORDER_QUEUE, prefetch=_BATCH)
        try:
            while moved <= wanted and not self._stopping.is_set():
                deliveries = consumer.take(_BATCH, 0.5)
                if not deliveries:
                    break
                self._broker.publish([_moved(d) for d in deliveries]).check(_CONFIRM)
                consumer.ack(deliveries)
                moved += len(deliveries)
            others = self._broker.stats(topology.FORMER_RECORDER_QUEUE).consumers > 1
        finally:
            consumer.cancel()
        if others or self._stopping.is_set():
            return False  # a recorder of the earlier release holds some of it
        self._broker.delete([topology.FORMER_RECORDER_QUEUE])
        log.info("the former queue of events is gone, %d moved", moved, extra={"action": "migrate"})
        return True


def _moved(delivery: Delivery) -> Message:
    return Message(
        "",
        topology.RECORDER_QUEUE,
        delivery.body,
        content_type=delivery.content_type or "",
        message_id=delivery.message_id,
        headers=delivery.headers,
    )
