"""What the tests of the broker contract share: names, polls and the fixtures."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from rainbow.brokers import ConnectOptions, connect
from rainbow.brokers.base import Broker, Consumer, Delivery, Message
from rainbow.topology import Exchange, Queue, QueueKind, Topology

#: Seconds; only guards against hangs.
LIMIT = 60.0

Opener = Callable[[], Broker]


def until(check: Callable[[], object], what: str, limit: float = LIMIT) -> None:
    """Poll until `check()` is true."""
    end = time.monotonic() + limit
    while not check():
        assert time.monotonic() < end, f"still not so after {limit:g} s: {what}"
        time.sleep(0.02)


def collect(consumer: Consumer, count: int, limit: float = LIMIT) -> list[Delivery]:
    """`count` deliveries, however many takes they need."""
    end = time.monotonic() + limit
    got: list[Delivery] = []
    while len(got) < count:
        assert time.monotonic() < end, f"only {len(got)} of {count} messages arrived within {limit:g} s"
        got += consumer.take(count - len(got), 1.0)
    return got


def holds(broker: Broker, queue: str, messages: int) -> None:
    """Wait until that many messages are ready: a broker may count what was just settled a moment later."""
    until(lambda: broker.stats(queue).messages == messages, f"{queue} holds {messages} message(s)")


class Place:
    """Names of one test: exchanges `work` (direct) and `dead` (topic), queues `queue` and `graves`."""

    def __init__(self, kind: QueueKind) -> None:
        name = f"contract-{uuid.uuid4().hex[:12]}"
        self.work, self.dead, self.queue, self.graves = f"{name}.work", f"{name}.dead", f"{name}.queue", f"{name}.dead"
        self.kind = kind

    def topology(self, **queue: Any) -> Topology:
        """`queue` is bound to `work` by "key" and dead-letters into `graves`, unless told otherwise."""
        fields: dict[str, Any] = {"bindings": ((self.work, "key"),), "dead_letter": self.dead, "kind": self.kind}
        fields.update(queue)
        return Topology(
            exchanges=(Exchange(self.work, "direct"), Exchange(self.dead, "topic")),
            queues=(
                Queue(self.queue, **fields),
                Queue(self.graves, bindings=((self.dead, "#"),), kind=self.kind),
            ),
        )

    def message(self, body: bytes = b"{}", **fields: Any) -> Message:
        return Message(**{"exchange": self.work, "routing_key": "key", "body": body, **fields})

    def messages(self, count: int) -> list[Message]:
        return [self.message(b"%d" % i) for i in range(count)]


class BrokerFixtures:
    """Inherit it, and give the fixture `options`."""

    kind: ClassVar[QueueKind] = "quorum"
    #: Whether a requeued message comes before those that were never delivered.
    requeues_to_front: ClassVar[bool] = True
    #: Whether an answer to an address that is gone is known to have gone nowhere.
    knows_lost_replies: ClassVar[bool] = True

    @pytest.fixture
    def options(self) -> ConnectOptions:
        raise NotImplementedError("give the options of a broker to test")

    @pytest.fixture
    def opener(self, options: ConnectOptions) -> Iterator[Opener]:
        """Makes brokers connected to the same place, all closed at the end."""
        made: list[Broker] = []

        def make() -> Broker:
            made.append(connect(options))
            return made[-1]

        yield make
        for broker in made:
            broker.close()

    @pytest.fixture
    def place(self, opener: Opener) -> Iterator[Place]:
        place = Place(self.kind)
        yield place
        broker = opener()
        broker.delete([place.queue, place.graves])

    @pytest.fixture
    def broker(self, opener: Opener) -> Broker:
        return opener()
