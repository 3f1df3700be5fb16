"""Moves messages from one queue to another as they are: published with confirms, and acknowledged once confirmed."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any

import pika
from pika import exceptions as pika_exceptions

from rainbow.errors import BrokerUnavailable, QueueFull

#: Messages that are published and not confirmed, at most.
WINDOW = 500
#: Seconds without a message after which a queue counts as empty; the caller then looks at its length.
IDLE = 0.5
#: Seconds for a confirm.
PATIENCE = 60.0
#: Where the time to live of a message is kept while it waits aside: there, it must not run out.
EXPIRATION = "rainbow-migration-expiration"


class Mover:
    """A connection of its own with two channels: one consumes, one publishes."""

    def __init__(self, parameters: pika.ConnectionParameters) -> None:
        self._connection = pika.BlockingConnection(parameters)
        self._publishing: Any = self._connection.channel()
        # The implementation below the blocking channel confirms without waiting for each message.
        self._publishing._impl.confirm_delivery(self._confirmed, callback=lambda _frame: None)
        self._tag = 0
        self._tags: dict[int, int] = {}
        self._settled: list[int] = []
        self._refused = 0

    def close(self) -> None:
        close_quietly(self._connection)

    def read(self, queue: str) -> frozenset[bytes]:
        """The digests of all messages in a queue, which stay there."""
        channel: Any = self._connection.channel()
        found = set()
        for _, properties, body in channel.consume(queue, inactivity_timeout=IDLE):
            if body is None:
                break
            found.add(digest(properties, body))
        channel.close()  # all of them go back
        return frozenset(found)

    def move(self, source: str, target: str, known: AbstractSet[bytes]) -> int:
        """Move until none comes for `IDLE` seconds; how many were moved. Redelivered ones that are `known` are dropped.

        Raises QueueFull when the target takes no more.
        """
        channel: Any = self._connection.channel()
        channel.basic_qos(prefetch_count=WINDOW)
        moved = 0
        # Before all others: no other client should get any of them.
        for method, properties, body in channel.consume(
            source, inactivity_timeout=IDLE, arguments={"x-priority": 1000}
        ):
            if method is not None:
                if method.redelivered and digest(properties, body) in known:
                    channel.basic_ack(method.delivery_tag)
                    continue
                self._publish(target, properties, body, method.delivery_tag)
                moved += 1
            if method is None or len(self._tags) >= WINDOW // 2:
                self._wait()
                for tag in self._settled:
                    channel.basic_ack(tag)
                self._settled.clear()
                if method is None:
                    break
        channel.cancel()
        channel.close()
        return moved

    def _publish(self, target: str, properties: Any, body: bytes, delivery: int) -> None:
        headers = dict(properties.headers or {})
        if properties.expiration is not None:
            headers[EXPIRATION] = properties.expiration
            properties.expiration = None
        elif EXPIRATION in headers:
            properties.expiration = headers.pop(EXPIRATION)
        properties.headers = headers or None
        self._tag += 1
        self._tags[self._tag] = delivery
        self._publishing._impl.basic_publish("", target, body, properties)

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        tags = [t for t in self._tags if t <= method.delivery_tag] if method.multiple else [method.delivery_tag]
        for tag in tags:
            delivery = self._tags.pop(tag)
            if isinstance(method, pika.spec.Basic.Ack):
                self._settled.append(delivery)
            else:
                self._refused += 1

    def _wait(self) -> None:
        """Until all that was published is confirmed."""
        end = time.monotonic() + PATIENCE
        while self._tags:
            try:
                self._connection.process_data_events(0.05)
            except pika_exceptions.AMQPError as exc:
                raise BrokerUnavailable(f"the broker stopped the move ({type(exc).__name__}): run it again") from exc
            if not self._publishing.is_open:
                raise BrokerUnavailable(
                    "the broker refused a message: the account that moves messages of users whom the broker verified "
                    "needs the tag `impersonator`; nothing is lost, run it again then"
                )
            if time.monotonic() > end:
                raise BrokerUnavailable(f"the broker confirms nothing within {PATIENCE:g} s: run it again")
        if self._refused:
            raise QueueFull(
                f"{self._refused} message(s) were refused: nothing is lost, set a larger limit and run it again"
            )


def close_quietly(connection: pika.BlockingConnection) -> None:
    """Close a connection that may be lost."""
    with suppress(pika_exceptions.AMQPError, OSError):
        if connection.is_open:
            connection.close()


def digest(properties: Any, body: bytes) -> bytes:
    """Of what is in a message; a time to live counts the same wherever it is kept."""
    headers = dict(properties.headers or {})
    expiration = headers.pop(EXPIRATION, properties.expiration)
    headers.pop("x-delivery-count", None)
    parts = (
        properties.message_id,
        properties.correlation_id,
        properties.reply_to,
        properties.content_type,
        properties.user_id,
        properties.timestamp,
        expiration,
        sorted((key, repr(value)) for key, value in headers.items()),
    )
    return hashlib.blake2b(repr(parts).encode() + body, digest_size=16).digest()
