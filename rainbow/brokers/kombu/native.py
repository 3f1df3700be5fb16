"""AMQP through kombu (py-amqp): the broker itself does what virtual transports have to be helped with."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Sequence
from typing import Any

from amqp import exceptions as amqp_exceptions

from rainbow.brokers.ack_tracker import BURST, LINGER, Outstanding
from rainbow.brokers.base import REPLIES, Delivery, Message, QueueStats
from rainbow.brokers.nack_reasons import reason, unknown
from rainbow.brokers.topology_mismatch import WHAT_TO_DO, difference
from rainbow.brokers.x_death import dead_lettered
from rainbow.errors import (
    BrokerUnavailable,
    Denied,
    NotFound,
    PublishFailed,
    RainbowError,
    TopologyMismatch,
    Unroutable,
)
from rainbow.topology import Queue, Topology, queues_for

_RIGHTS = (amqp_exceptions.AccessRefused, amqp_exceptions.NotAllowed)


class AmqpSession:
    """A Session on one AMQP connection, with one channel at a time."""

    keeps_deliveries = False
    idle: float | None = None
    batch = 1

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._declared: dict[str, Queue] = {}
        self._channel: Any = None
        self._queue = ""
        self._returned: list[RainbowError] = []
        self._arrived: list[Delivery] = []
        self._consumer = ""
        self._outstanding = Outstanding()
        self._burst_at = float("-inf")

    def _open(self) -> Any:
        if self._channel is None or not self._channel.is_open:
            self._channel = self._connection.channel()
            self._outstanding.clear()
            self._channel.events["basic_return"].add(self._on_return)
        return self._channel

    def _on_return(self, exc: Any, exchange: str, routing_key: str, _message: Any) -> None:
        self._returned.append(Unroutable(f"no queue takes {routing_key!r} from exchange {exchange!r}"))

    # -- topology ------------------------------------------------------------------------------------

    def declare(self, topology: Topology) -> None:
        wrong: list[str] = []
        for exchange in topology.exchanges:
            try:
                self._open().exchange_declare(exchange.name, exchange.type, durable=True, auto_delete=False)
            except _RIGHTS as exc:
                raise Denied(f"the broker refuses: {exc.reply_text}") from exc
            except amqp_exceptions.PreconditionFailed as exc:
                wrong.append(difference(f"exchange {exchange.name!r}", exc.reply_code, exc.reply_text))
        for queue in topology.queues:
            try:
                self._open().queue_declare(queue.name, durable=True, auto_delete=False, arguments=queue.arguments())
                for name, key in queue.bindings:
                    self._open().queue_bind(queue.name, name, key)
            except _RIGHTS as exc:
                raise Denied(f"the broker refuses: {exc.reply_text}") from exc
            except (amqp_exceptions.PreconditionFailed, amqp_exceptions.NotFound) as exc:
                wrong.append(difference(f"queue {queue.name!r}", exc.reply_code, exc.reply_text))
        if wrong:
            raise TopologyMismatch(f"{'; '.join(wrong)}: {WHAT_TO_DO}")
        self._declared.update((queue.name, queue) for queue in topology.queues)

    def delete(self, queues: Sequence[str]) -> None:
        for queue in queues:
            with contextlib.suppress(amqp_exceptions.NotFound):
                self._open().queue_delete(queue)

    def stats(self, queue: str) -> QueueStats:
        try:
            found = self._open().queue_declare(queue, passive=True)
        except amqp_exceptions.NotFound as exc:
            raise NotFound(f"there is no queue {queue!r}") from exc
        return QueueStats(int(found.message_count), int(found.consumer_count))

    # -- publishing ----------------------------------------------------------------------------------

    def _nacked(self, m: Message) -> RainbowError:
        queues = queues_for(m.exchange, m.routing_key, self._declared.values())
        if not queues:
            return unknown(m)
        try:
            found: QueueStats | RainbowError = self.stats(queues[0])
        except RainbowError as exc:
            found = exc
        return reason(m, queues[0], found)

    def publish(self, messages: Sequence[Message]) -> list[RainbowError | None]:
        return [self._publish(m) for m in messages]

    def _publish(self, m: Message) -> RainbowError | None:
        properties: dict[str, Any] = {"delivery_mode": 2}
        for name in ("message_id", "correlation_id", "reply_to"):
            if (value := getattr(m, name)) is not None:
                properties[name] = value
        if m.expiration is not None:
            properties["expiration"] = str(max(0, int(m.expiration * 1000)))
        self._returned.clear()
        try:
            channel = self._open()
            prepared = channel.prepare_message(
                m.body,
                priority=m.priority,
                content_type=m.content_type,
                headers=m.headers or {},
                properties=properties,
            )
            if m.priority is None:
                prepared.properties.pop("priority", None)  # kombu's own default is 0
            # An answer to direct reply-to (of a client with the rabbitmq plugin) cannot be mandatory.
            direct = m.exchange == "" and m.routing_key.startswith(f"{REPLIES}.")
            channel.basic_publish_confirm(prepared, m.exchange, m.routing_key, mandatory=m.mandatory and not direct)
        except amqp_exceptions.MessageNacked:
            return self._nacked(m)
        except amqp_exceptions.NotFound:
            return Unroutable(f"there is no exchange {m.exchange!r}: declare the topology first")
        except _RIGHTS as exc:
            return Denied(f"no right to publish: {exc.reply_text}")
        except amqp_exceptions.PreconditionFailed as exc:
            return PublishFailed(f"the broker closed the channel: {exc.reply_text}")
        return self._returned.pop() if self._returned else None

    # -- consuming -----------------------------------------------------------------------------------

    def subscribe(self, queue: str, prefetch: int, *, private: bool) -> bool:
        channel = self._open()
        self._queue = REPLIES if private else queue
        try:
            if private:
                # Goes with this connection; answers come by its name through the default exchange.
                channel.queue_declare(queue, durable=False, exclusive=True, auto_delete=True)
            else:
                channel.basic_qos(0, prefetch, False)
            self._consumer = channel.basic_consume(
                queue, no_ack=private, callback=self._on_message, on_cancel=self._on_cancel
            )
        except amqp_exceptions.NotFound:
            return False
        return True

    def _on_cancel(self, _tag: str) -> None:
        raise BrokerUnavailable(f"the broker cancelled the consumer of {self._queue!r}")

    def _on_message(self, message: Any) -> None:
        self._outstanding.delivered(message.delivery_tag)
        p, info = message.properties, message.delivery_info
        body = message.body
        self._arrived.append(
            Delivery(
                queue=self._queue,
                body=body.encode() if isinstance(body, str) else bytes(body),
                content_type=p.get("content_type"),
                message_id=p.get("message_id"),
                correlation_id=p.get("correlation_id"),
                reply_to=p.get("reply_to"),
                priority=p.get("priority"),
                headers=p.get("application_headers") or {},
                exchange=info.get("exchange") or "",
                routing_key=info.get("routing_key") or "",
                user_id=p.get("user_id"),
                redelivered=bool(info.get("redelivered")),
                tag=message.delivery_tag,
            )
        )

    def poll(self, room: int, timeout: float) -> list[Delivery]:
        if not self._arrived:
            with contextlib.suppress(socket.timeout):
                self._connection.drain_events(timeout=timeout)
            # Whatever else has arrived already comes along.
            end = time.monotonic() + 0.005
            with contextlib.suppress(socket.timeout):
                while self._arrived and len(self._arrived) < room and time.monotonic() < end:
                    self._connection.drain_events(timeout=0.0005)
        arrived, self._arrived = self._arrived, []
        return arrived

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        self._outstanding.ack(d.tag for d in self._mine(deliveries))
        acks = self._outstanding.acks()
        for tag, multiple in acks:
            self._channel.basic_ack(tag, multiple=multiple)
        if len(acks) > BURST:
            self._burst_at = time.monotonic()

    def reject(self, deliveries: Sequence[Delivery]) -> None:
        sound, forged = dead_lettered(self._mine(deliveries), self._queue)
        for d in sound:
            if self._outstanding.remove(d.tag):
                self._channel.basic_reject(d.tag, requeue=False)
        if forged:
            self.ack(forged)

    def requeue(self, deliveries: Sequence[Delivery]) -> None:
        for d in self._mine(deliveries):
            if self._outstanding.remove(d.tag):
                self._channel.basic_reject(d.tag, requeue=True)

    def _mine(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        """Answers are not acknowledged."""
        return () if self._queue == REPLIES else deliveries

    def unsubscribe(self, held: Sequence[Delivery]) -> None:
        """Closing the channel gives back what is unsettled."""
        if self._channel is not None and self._channel.is_open:
            if time.monotonic() - self._burst_at < LINGER:
                time.sleep(LINGER)
            self._channel.close()

    # -- keeping up ----------------------------------------------------------------------------------

    def tick(self, held: Sequence[Delivery]) -> None:
        self._connection.heartbeat_check(rate=2)

    def sweep(self) -> None:
        """Nothing to do: the broker sees to time to live."""

    def close(self) -> None:
        self._connection.release()
