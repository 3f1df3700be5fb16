"""Changes the arguments of queues that exist: their messages are moved aside, and back into the queue declared again.

The bindings of all queues that differ are removed, so that publishers are refused for a while; their messages go to
`rainbow.migration.QUEUE`; they are deleted. Then each is declared again, its messages go back, its bindings are made.
In this order no message overtakes another, and each confirmed message is in the new queue.

It may be cut off after any step, and is then run again: the queues that exist show how far it came. A message is
confirmed in its new place before it leaves the old one. One that is in both, because the run was cut off between the
two, is recognized by its content and dropped. While `rainbow.migration` exists, no worker declares queues (see
`calls.declare`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pika
from pika import exceptions as pika_exceptions

from rainbow.brokers.rabbitmq.calls import as_there, for_server
from rainbow.brokers.rabbitmq.endpoints import Parameters, Target
from rainbow.brokers.rabbitmq.mover import Mover, close_quietly
from rainbow.brokers.topology_mismatch import Difference, parse
from rainbow.errors import BrokerUnavailable, Conflict, Denied, TopologyMismatch
from rainbow.topology import MIGRATION, NO_DELIVERY_LIMIT, Queue

if TYPE_CHECKING:
    from rainbow.brokers import ConnectOptions

#: Seconds between deleting queues and declaring them again: RabbitMQ 3.10 loses the first messages of one that is
#: declared right after a queue with consumers was deleted. Also until what was routed to a queue has arrived there.
PAUSE = 2.0


class Migration:
    """Made for one run. Raises BrokerUnavailable when the broker cannot be reached."""

    def __init__(self, options: ConnectOptions, say: Callable[[str], None] = lambda _: None) -> None:
        self._connection_parameters = _reachable(options)
        self._connection = pika.BlockingConnection(self._connection_parameters)
        self._say = say
        self._channel: Any = self._connection.channel()

    def close(self) -> None:
        close_quietly(self._connection)

    # -- looking --------------------------------------------------------------------------------------

    def plan(self, queues: list[Queue]) -> dict[str, list[Difference]]:
        """What is different, by queue; an empty list where a run before was cut off and there is only moving to do.

        Raises TopologyMismatch for a difference that is none of arguments.
        """
        found: dict[str, list[Difference]] = {}
        for queue in queues:
            differences = self._differences(queue) if self._count(queue.name) is not None else []
            if differences or self._count(aside(queue)) is not None:
                found[queue.name] = differences
        return found

    def _differences(self, queue: Queue) -> list[Difference]:
        found: list[Difference] = []
        arguments = self._arguments(queue)
        while True:
            try:
                self._channel.queue_declare(queue.name, durable=True, arguments=arguments)
            except pika_exceptions.ChannelClosedByBroker as exc:
                self._channel = self._connection.channel()
                if exc.reply_code == 403:
                    raise Denied(f"the broker refuses: {exc.reply_text}") from None
                one = parse(f"queue {queue.name!r}", exc.reply_code, exc.reply_text)
                if one is None or one in found:
                    raise TopologyMismatch(f"queue {queue.name!r}: {exc.reply_code} {exc.reply_text}") from None
                found.append(one)
                if not one.tolerable:
                    return found  # the broker compares no further
                arguments = as_there(arguments, one)
            else:
                return found

    def _arguments(self, queue: Queue) -> dict[str, Any]:
        return for_server(queue.arguments(), self._connection._impl.server_properties)

    def _count(self, queue: str) -> tuple[int, int] | None:
        """Messages and consumers; None when there is no such queue."""
        try:
            method = self._channel.queue_declare(queue, passive=True).method
        except pika_exceptions.ChannelClosedByBroker as exc:
            self._channel = self._connection.channel()
            if exc.reply_code == 404:
                return None
            raise BrokerUnavailable(f"cannot look at queue {queue!r}: {exc.reply_text}") from None
        return int(method.message_count), int(method.consumer_count)

    # -- changing -------------------------------------------------------------------------------------

    def run(self, queues: list[Queue]) -> dict[str, int]:
        """Change what `plan` finds; how many messages were moved, by queue. Raises Conflict where it must not begin."""
        todo = self.plan(queues)
        affected = [queue for queue in queues if queue.name in todo]
        self._check(affected)
        moved: dict[str, int] = {}
        if affected:
            self._channel.queue_declare(MIGRATION, durable=True, arguments={"x-queue-type": "classic"})
            cut_off = {queue.name for queue in affected if self._count(aside(queue)) is not None}
            changed = [queue for queue in affected if todo[queue.name]]
            self._empty(changed, cut_off)
            for queue in affected:
                moved[queue.name] = self._fill(queue, again=queue.name in cut_off and not todo[queue.name])
        self._channel.queue_delete(MIGRATION)
        return moved

    def _check(self, queues: list[Queue]) -> None:
        """No consumer may hold messages of these queues, and each must have room for its own."""
        busy = []
        for queue in queues:
            messages, consumers = self._count(queue.name) or (0, 0)
            aside_messages, _ = self._count(aside(queue)) or (0, 0)
            if consumers:
                busy.append(f"{queue.name} has {consumers} consumer(s)")
            held = messages + aside_messages
            if queue.max_length is not None and held > queue.max_length:
                raise Conflict(
                    f"queue {queue.name!r} holds {held} messages, and is to hold {queue.max_length} at most: work them "
                    "off, or set a larger limit"
                )
        if busy:
            raise Conflict(
                f"{'; '.join(busy)}: stop rainbow-scheduler for rainbow.scheduler and other queues of the workers, and "
                "the agent of a cluster for its queues (its jobs go on), then run this again"
            )

    def _empty(self, queues: list[Queue], cut_off: set[str]) -> None:
        """Move the messages of all these aside, and delete them."""
        for queue in queues:
            waiting = Queue(aside(queue), kind=queue.kind, delivery_limit=NO_DELIVERY_LIMIT)
            self._channel.queue_declare(waiting.name, durable=True, arguments=self._arguments(waiting))
            for exchange, key in queue.bindings:
                self._channel.queue_unbind(queue.name, exchange, key)
        self._pause(queues)  # what was routed before arrives
        for queue in queues:
            self._say(f"{queue.name}: moving its messages aside")
            self._move(queue.name, aside(queue), again=queue.name in cut_off)
            self._channel.queue_delete(queue.name)
        self._pause(queues)

    def _pause(self, queues: list[Queue]) -> None:
        if queues:
            self._connection.sleep(PAUSE)

    def _fill(self, queue: Queue, *, again: bool) -> int:
        """Declare one, and move its messages back before anything else reaches it."""
        self._channel.queue_declare(queue.name, durable=True, arguments=self._arguments(queue))
        moved = self._move(aside(queue), queue.name, again=again)
        for exchange, key in queue.bindings:
            self._channel.queue_bind(queue.name, exchange, key)
        self._channel.queue_delete(aside(queue))  # last: while it is there, a run that was cut off is known
        self._say(f"{queue.name}: done, {moved} message(s)")
        return moved

    def _move(self, source: str, target: str, *, again: bool) -> int:
        """Move all; how many. No other client may consume: what others hold would be lost with the queue."""
        moved = 0
        while True:
            messages, consumers = self._settled(source)
            if consumers:
                raise Conflict(f"somebody consumes from {source!r}: stop it, then run this again")
            if not messages:
                return moved
            with self._mover() as mover:
                moved += mover.move(source, target, mover.read(target) if again else frozenset())

    def _settled(self, queue: str) -> tuple[int, int]:
        """Messages and consumers; the consumer of a connection that was just closed may be counted for a moment."""
        end = time.monotonic() + PAUSE
        while True:
            messages, consumers = self._count(queue) or (0, 0)
            if not consumers or time.monotonic() > end:
                return messages, consumers
            self._connection.sleep(0.05)

    @contextmanager
    def _mover(self) -> Iterator[Mover]:
        mover = Mover(self._connection_parameters)
        try:
            yield mover
        finally:
            mover.close()


def aside(queue: Queue) -> str:
    """The queue where messages of `queue` wait."""
    return f"{MIGRATION}.{queue.name}"


def _reachable(options: ConnectOptions) -> pika.ConnectionParameters:
    """Of the first endpoint that lets us in."""
    parameters = Parameters(options)
    problems = []
    for endpoint in parameters.endpoints:
        target = Target(endpoint, endpoint.host, options.connect_timeout)
        built = parameters.build("migrate", target, parameters.secret(endpoint))
        try:
            pika.BlockingConnection(built).close()
        except (pika_exceptions.AMQPError, OSError) as exc:
            problems.append(f"{endpoint.address}: {type(exc).__name__}")
        else:
            return built
    raise BrokerUnavailable(f"no broker lets us in: {'; '.join(problems)}")
