"""Deliveries on their way from the I/O thread to the threads that take them."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any

from rainbow.brokers.base import CANCELLED_PAUSE, Delivery
from rainbow.errors import RainbowError


class Buffer:
    """In the order of their arrival."""

    def __init__(self) -> None:
        self._items: deque[Delivery] = deque()
        self._arrived = threading.Condition()
        self._waiting = 0
        self._closed = False
        self._error: RainbowError | None = None

    def __len__(self) -> int:
        return len(self._items)

    def put(self, delivery: Delivery) -> None:
        """From the I/O thread. Wakes no taker: see `wake`."""
        self._items.append(delivery)

    def drop_oldest(self) -> None:
        self._items.popleft()

    def wake(self) -> None:
        if self._waiting and self._items:
            with self._arrived:
                self._arrived.notify_all()

    def clear(self) -> None:
        self._items.clear()

    def close(self, error: RainbowError | None = None) -> None:
        with self._arrived:
            self._closed = True
            self._error = self._error or error
            self._items.clear()
            self._arrived.notify_all()

    def take(self, limit: int, timeout: float) -> list[Delivery]:
        items = self._items
        if self._closed and self._error is None:
            time.sleep(min(timeout, CANCELLED_PAUSE))
            return []
        if not items:
            end = time.monotonic() + timeout
            with self._arrived:
                self._waiting += 1
                try:
                    while not items and not self._closed:
                        left = end - time.monotonic()
                        if left <= 0 or not self._arrived.wait(left):
                            break
                finally:
                    self._waiting -= 1
        if self._closed:
            if self._error is not None:
                raise self._error
            return []
        taken: list[Delivery] = []
        while len(taken) < limit:
            try:
                taken.append(items.popleft())
            except IndexError:  # another taker, or the channel is gone
                break
        return taken


def delivery(queue: str, method: Any, props: Any, body: bytes, epoch: int) -> Delivery:
    """From what pika read."""
    return Delivery(
        queue,
        body,
        props.content_type,
        props.message_id,
        props.correlation_id,
        props.reply_to,
        props.priority,
        props.headers or {},
        method.exchange,
        method.routing_key,
        props.user_id,
        method.redelivered,
        method.delivery_tag,
        epoch,
    )
