"""What every broker plugin must do, as tests to inherit.

    class TestMyBroker(BrokerContract):
        @pytest.fixture
        def options(self) -> ConnectOptions:
            return ConnectOptions("mine://127.0.0.1/a-fresh-place")

The fixture gives options for a place that is empty or at least free of queues whose names start with
``contract-``. A class attribute says so where a broker cannot do all of it.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, ClassVar

import pytest

from rainbow.brokers import ConnectOptions, connect
from rainbow.brokers.base import MSGPACK, REPLIES, Broker, Consumer, Delivery, Message, Receipt
from rainbow.errors import (
    BrokerUnavailable,
    InvalidInput,
    NotFound,
    PublishFailed,
    QueueFull,
    TooLarge,
    TopologyMismatch,
    Unroutable,
)
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


class BrokerContract:
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

    # -- publishing --------------------------------------------------------------------------------

    def test_what_is_confirmed_arrives_in_order(self, broker: Broker, place: Place) -> None:
        broker.declare(place.topology())
        receipt = broker.publish(place.messages(50))
        assert receipt.wait(LIMIT) == [None] * 50
        consumer = broker.consume(place.queue, prefetch=100)
        got = collect(consumer, 50)
        assert [d.body for d in got] == [b"%d" % i for i in range(50)]
        assert not any(d.redelivered for d in got)
        consumer.ack(got)
        consumer.cancel()
        holds(broker, place.queue, 0)

    def test_nothing_to_publish_is_done_at_once(self, broker: Broker) -> None:
        receipt = broker.publish([])
        assert receipt.done
        assert receipt.wait(0) == []

    def test_receipt_calls_back_once(self, broker: Broker, place: Place) -> None:
        broker.declare(place.topology())
        called: list[Receipt] = []
        event = threading.Event()
        receipt = broker.publish(place.messages(10))

        def note(r: Receipt) -> None:
            called.append(r)
            event.set()

        receipt.then(note)
        assert event.wait(LIMIT)
        assert called == [receipt]
        assert receipt.outcomes == [None] * 10

    def test_properties_and_headers_arrive(self, broker: Broker, place: Place) -> None:
        broker.declare(place.topology())
        headers = {
            "text": "grün",
            "number": 7,
            "negative": -3,
            "big": 1 << 40,
            "yes": True,
            "none": None,
            "list": ["a", 1, {"deep": "b"}],
            "table": {"x": {"y": "z"}},
        }
        message = place.message(
            b"\x00\xff\x80 binary",
            content_type=MSGPACK,
            message_id="m-1",
            correlation_id="c-1",
            reply_to="somewhere",
            priority=5,
            headers=headers,
        )
        broker.publish([message]).check(LIMIT)
        [got] = collect(broker.consume(place.queue, prefetch=1), 1)
        assert got.body == message.body
        assert got.content_type == MSGPACK
        assert (got.message_id, got.correlation_id, got.reply_to, got.priority) == ("m-1", "c-1", "somewhere", 5)
        assert got.headers == headers
        assert (got.queue, got.exchange, got.routing_key) == (place.queue, place.work, "key")
        assert got.user_id is None

    def test_absent_properties_stay_absent(self, broker: Broker, place: Place) -> None:
        broker.declare(place.topology())
        broker.publish([place.message(b"plain")]).check(LIMIT)
        [got] = collect(broker.consume(place.queue, prefetch=1), 1)
        assert (got.message_id, got.correlation_id, got.reply_to) == (None, None, None)
        assert got.headers == {}

    @pytest.mark.parametrize("size", [0, 1, 4095, 131_072, 1 << 20])
    def test_bodies_of_any_size(self, broker: Broker, place: Place, size: int) -> None:
        broker.declare(place.topology())
        body = bytes(i * 31 % 256 for i in range(min(size, 65536))) * (size // 65536 or 1)
        broker.publish([place.message(body[:size])]).check(LIMIT)
        [got] = collect(broker.consume(place.queue, prefetch=1), 1)
        assert got.body == body[:size]

    def test_only_the_oversize_message_is_refused(self, broker: Broker, place: Place, options: ConnectOptions) -> None:
        broker.declare(place.topology())
        large = place.message(b"x" * (options.max_message_bytes + 1))
        outcomes = broker.publish([place.message(b"a"), large, place.message(b"b")]).wait(LIMIT)
        assert outcomes[0] is outcomes[2] is None
        assert isinstance(outcomes[1], TooLarge)
        assert str(options.max_message_bytes) in str(outcomes[1])
        assert [d.body for d in collect(broker.consume(place.queue, prefetch=5), 2)] == [b"a", b"b"]

    def test_only_the_unroutable_message_is_returned(self, broker: Broker, place: Place) -> None:
        broker.declare(place.topology())
        stray = place.message(b"stray", routing_key="nowhere")
        outcomes = broker.publish([place.message(b"a"), stray, place.message(b"b"), stray]).wait(LIMIT)
        assert outcomes[0] is outcomes[2] is None
        assert isinstance(outcomes[1], Unroutable)
        assert isinstance(outcomes[3], Unroutable)
        assert "nowhere" in str(outcomes[1])

    def test_unroutable_is_fine_when_not_mandatory(self, broker: Broker, place: Place) -> None:
        broker.declare(place.topology())
        assert broker.publish([place.message(routing_key="nowhere", mandatory=False)]).wait(LIMIT) == [None]

    def test_unknown_exchange_is_unroutable_and_harms_nothing(self, broker: Broker, place: Place) -> None:
        broker.declare(place.topology())
        [outcome] = broker.publish([place.message(exchange="contract-no-such-exchange")]).wait(LIMIT)
        assert isinstance(outcome, Unroutable)
        assert broker.publish([place.message()]).wait(LIMIT) == [None]

    def test_queue_deleted_between_publishes_is_unroutable(self, broker: Broker, place: Place) -> None:
        broker.declare(place.topology())
        broker.publish([place.message()]).check(LIMIT)
        broker.delete([place.queue])
        [outcome] = broker.publish([place.message()]).wait(LIMIT)
        assert isinstance(outcome, Unroutable)

    def test_default_exchange_reaches_a_queue_by_name(self, broker: Broker, place: Place) -> None:
        broker.declare(place.topology())
        broker.publish([place.message(b"direct", exchange="", routing_key=place.queue)]).check(LIMIT)
        assert collect(broker.consume(place.queue, prefetch=1), 1)[0].body == b"direct"

    def test_topic_exchange(self, broker: Broker, place: Place) -> None:
        work = place.work + "-topic"
        second = Queue(place.queue + "2", ((work, "job.*.done"),), kind=self.kind)
        broker.declare(Topology((Exchange(work, "topic"),), (second,)))
        keys = ["job.blue.done", "job.done", "job.blue.failed", "job.a.b.done", "job.red.done"]
        outcomes = broker.publish([Message(work, k, k.encode()) for k in keys]).wait(LIMIT)
        assert [o is None for o in outcomes] == [True, False, False, False, True]
        got = collect(broker.consume(place.queue + "2", prefetch=5), 2)
        assert [d.body for d in got] == [b"job.blue.done", b"job.red.done"]
        broker.delete([place.queue + "2"])

    def test_one_message_into_two_queues(self, broker: Broker, place: Place) -> None:
        second = Queue(place.queue + "2", ((place.work, "key"),), kind=self.kind)
        broker.declare(place.topology() + Topology((), (second,)))
        broker.publish([place.message(b"both")]).check(LIMIT)
        for queue in (place.queue, second.name):
            assert collect(broker.consume(queue, prefetch=1), 1)[0].body == b"both"
        broker.delete([second.name])

    def test_full_queue_refuses_and_recovers(self, broker: Broker, place: Place) -> None:
        broker.declare(place.topology(max_length=5))
        until(
            # A broker may take a few more than the bound before it refuses.
            lambda: isinstance(broker.publish([place.message(b"fill")]).wait(LIMIT)[0], QueueFull),
            "the queue is full",
        )
        held = broker.stats(place.queue).messages
        assert 5 <= held < 100
        consumer = broker.consume(place.queue, prefetch=200)
        consumer.ack(collect(consumer, held))
        until(lambda: broker.publish([place.message(b"again")]).wait(LIMIT) == [None], "the queue takes messages again")

    def test_more_in_flight_than_the_bound(self, broker: Broker, place: Place, options: ConnectOptions) -> None:
        broker.declare(place.topology())
        count = options.max_in_flight + 500
        receipts = [broker.publish(place.messages(count)), broker.publish(place.messages(10))]
        for receipt in receipts:
            receipt.check(LIMIT)
        until(lambda: broker.stats(place.queue).messages == count + 10, "all of them are in the queue")

    # -- dead letters ------------------------------------------------------------------------------

    def test_rejected_goes_to_the_dead_letter_exchange(self, broker: Broker, place: Place) -> None:
        broker.declare(place.topology())
        broker.publish([place.message(b"no", message_id="m", priority=3, headers={"mine": "kept"})]).check(LIMIT)
        consumer = broker.consume(place.queue, prefetch=1)
        consumer.reject(collect(consumer, 1))
        [dead] = collect(broker.consume(place.graves, prefetch=1), 1)
        assert (dead.body, dead.message_id, dead.priority) == (b"no", "m", 3)
        assert dead.headers["mine"] == "kept"
        assert (dead.exchange, dead.routing_key) == (place.dead, "key")
        self.check_death(dead, place, "rejected")
        holds(broker, place.queue, 0)

    def check_death(self, dead: Delivery, place: Place, reason: str) -> None:
        [death] = dead.headers["x-death"]
        assert (death["queue"], death["reason"], death["count"]) == (place.queue, reason, 1)
        assert (death["exchange"], list(death["routing-keys"])) == (place.work, ["key"])
        assert isinstance(death["time"], datetime)
        assert abs(death["time"].timestamp() - time.time()) < 300

    def test_rejected_without_dead_letter_exchange_is_gone(self, broker: Broker, place: Place) -> None:
        broker.declare(place.topology(dead_letter=None))
        broker.publish(place.messages(2)).check(LIMIT)
        consumer = broker.consume(place.queue, prefetch=1)
        consumer.reject(collect(consumer, 1))
        assert [d.body for d in collect(consumer, 1)] == [b"1"]
        holds(broker, place.graves, 0)

    def test_rejected_by_a_process_that_declared_nothing(self, opener: Opener, place: Place) -> None:
        opener().declare(place.topology())
        agent = opener()
        agent.publish([place.message(b"no")]).check(LIMIT)
        consumer = agent.consume(place.queue, prefetch=1)
        consumer.reject(collect(consumer, 1))
        [dead] = collect(agent.consume(place.graves, prefetch=1), 1)
        self.check_death(dead, place, "rejected")

    def test_queue_time_to_live(self, broker: Broker, place: Place) -> None:
        broker.declare(place.topology(message_ttl=0.3))
        broker.publish(place.messages(3)).check(LIMIT)
        dead = collect(broker.consume(place.graves, prefetch=5), 3)
        assert sorted(d.body for d in dead) == [b"0", b"1", b"2"]
        for d in dead:
            assert d.routing_key == "key"
            self.check_death(d, place, "expired")
        holds(broker, place.queue, 0)

    def test_message_time_to_live(self, broker: Broker, place: Place) -> None:
        broker.declare(place.topology())
        broker.publish([place.message(b"short", expiration=0.3), place.message(b"long")]).check(LIMIT)
        [dead] = collect(broker.consume(place.graves, prefetch=5), 1)
        assert dead.body == b"short"
        self.check_death(dead, place, "expired")
        holds(broker, place.queue, 1)

    def test_held_messages_do_not_expire(self, broker: Broker, place: Place) -> None:
        broker.declare(place.topology(message_ttl=1.0))
        broker.publish([place.message(b"mine"), place.message(b"waits")]).check(LIMIT)
        consumer = broker.consume(place.queue, prefetch=1)
        [mine] = collect(consumer, 1)
        assert mine.body == b"mine"
        [dead] = collect(broker.consume(place.graves, prefetch=5), 1)
        assert dead.body == b"waits"
        consumer.ack([mine])
        assert consumer.take(1, 0.2) == []
        holds(broker, place.graves, 0)

    def test_dead_letter_can_be_rejected_again(self, broker: Broker, place: Place) -> None:
        """The history grows by one entry for each queue and reason."""
        third = f"{place.queue}3"
        topology = place.topology()
        graves = Queue(place.graves, ((place.dead, "#"),), dead_letter=place.work, kind=self.kind)
        broker.declare(
            Topology(
                topology.exchanges, (topology.queues[0], graves, Queue(third, ((place.work, "again"),), kind=self.kind))
            )
        )
        broker.publish([place.message(b"x")]).check(LIMIT)
        for queue, seen in (
            (place.queue, []),
            (place.graves, [place.queue]),
            (place.queue, [place.graves, place.queue]),
        ):
            consumer = broker.consume(queue, prefetch=1)
            [d] = collect(consumer, 1)
            assert [death["queue"] for death in d.headers.get("x-death", [])] == seen
            consumer.reject([d])
            consumer.cancel()
            seen.insert(0, queue)
        [d] = collect(broker.consume(place.graves, prefetch=1), 1)
        assert [(x["queue"], x["count"]) for x in d.headers["x-death"]] == [(place.queue, 2), (place.graves, 1)]
        broker.delete([third])

    # -- consuming ---------------------------------------------------------------------------------

    def test_requeued_comes_again_and_says_so(self, broker: Broker, place: Place) -> None:
        # Without a delivery limit a quorum queue puts what comes back behind the others.
        broker.declare(place.topology(delivery_limit=20))
        broker.publish(place.messages(4)).check(LIMIT)
        consumer = broker.consume(place.queue, prefetch=2)
        first = collect(consumer, 2)
        assert [(d.body, d.redelivered) for d in first] == [(b"0", False), (b"1", False)]
        consumer.requeue(first)
        again = collect(consumer, 2)
        if self.requeues_to_front:
            assert [(d.body, d.redelivered) for d in again] == [(b"0", True), (b"1", True)]
        consumer.ack(again)
        rest = collect(consumer, 2)
        consumer.ack(rest)
        assert sorted(d.body for d in again + rest) == [b"0", b"1", b"2", b"3"]
        assert {d.body for d in again + rest if d.redelivered} == {b"0", b"1"}

    def test_prefetch_is_a_bound(self, broker: Broker, place: Place) -> None:
        broker.declare(place.topology())
        broker.publish(place.messages(10)).check(LIMIT)
        consumer = broker.consume(place.queue, prefetch=3)
        held = collect(consumer, 3)
        assert consumer.take(10, 0.3) == []
        holds(broker, place.queue, 7)
        consumer.ack(held[1:2])
        assert [d.body for d in collect(consumer, 1)] == [b"3"]
        assert consumer.take(10, 0.3) == []

    def test_take_waits_no_longer_than_asked(self, broker: Broker, place: Place) -> None:
        broker.declare(place.topology())
        consumer = broker.consume(place.queue, prefetch=3)
        began = time.monotonic()
        assert consumer.take(1, 0.2) == []
        assert time.monotonic() - began >= 0.2
        assert consumer.take(1, 0) == []

    def test_take_never_gives_more_than_the_limit(self, broker: Broker, place: Place) -> None:
        broker.declare(place.topology())
        broker.publish(place.messages(10)).check(LIMIT)
        consumer = broker.consume(place.queue, prefetch=10)
        got: list[Delivery] = []
        while len(got) < 10:
            some = consumer.take(3, LIMIT)
            assert 1 <= len(some) <= 3
            got += some
        assert [d.body for d in got] == [b"%d" % i for i in range(10)]

    def test_acks_in_any_order_lose_nothing(self, broker: Broker, place: Place) -> None:
        broker.declare(place.topology())
        broker.publish(place.messages(1000)).check(LIMIT)
        consumer = broker.consume(place.queue, prefetch=64)
        seen: list[bytes] = []
        late: list[Delivery] = []
        while len(seen) < 1000:
            for n, d in enumerate(collect(consumer, 1) + consumer.take(20, 0.05)):
                seen.append(d.body)
                if n % 3 == 0 and len(late) < 30:
                    late.append(d)
                else:
                    consumer.ack([d])
            if len(late) >= 30 or len(seen) >= 950:
                consumer.ack(list(reversed(late)))
                late.clear()
        consumer.ack(late)
        assert sorted(map(int, seen)) == list(range(1000))
        assert consumer.take(1, 0.3) == []
        consumer.cancel()
        holds(broker, place.queue, 0)

    def test_an_unfinished_delivery_survives_its_neighbours(self, opener: Opener, place: Place) -> None:
        """S04: an ack never covers an older delivery that is still being worked on."""
        first = opener()
        first.declare(place.topology())
        first.publish(place.messages(10)).check(LIMIT)
        consumer = first.consume(place.queue, prefetch=10)
        got = collect(consumer, 10)
        consumer.ack(got[:2])
        consumer.ack(got[3:])
        first.close()
        second = opener()
        again = collect(second.consume(place.queue, prefetch=10), 1)
        assert [(d.body, d.redelivered) for d in again] == [(b"2", True)]
        holds(second, place.queue, 0)

    def test_two_consumers_share(self, opener: Opener, place: Place) -> None:
        one, two = opener(), opener()
        one.declare(place.topology())
        consumers = [one.consume(place.queue, prefetch=5), two.consume(place.queue, prefetch=5)]
        until(lambda: one.stats(place.queue).consumers == 2, "both consume")
        one.publish(place.messages(100)).check(LIMIT)
        seen: list[list[bytes]] = [[], []]
        end = time.monotonic() + LIMIT
        while sum(map(len, seen)) < 100 and time.monotonic() < end:
            for consumer, bodies in zip(consumers, seen, strict=True):
                taken = consumer.take(5, 0.1)
                bodies += [d.body for d in taken]
                consumer.ack(taken)
        assert sorted(map(int, seen[0] + seen[1])) == list(range(100))
        assert seen[0]
        assert seen[1]

    def test_cancel_gives_back_what_is_unsettled(self, broker: Broker, place: Place) -> None:
        broker.declare(place.topology())
        broker.publish(place.messages(6)).check(LIMIT)
        consumer = broker.consume(place.queue, prefetch=4)
        taken = collect(consumer, 2)
        consumer.ack(taken[:1])
        consumer.cancel()
        assert consumer.take(1, 0) == []
        consumer.ack(taken[1:])  # too late: a no-op
        consumer.cancel()
        got = collect(broker.consume(place.queue, prefetch=10), 5)
        assert sorted(d.body for d in got) == [b"1", b"2", b"3", b"4", b"5"]

    def test_what_one_consumer_took_is_not_settled_by_the_next(self, broker: Broker, place: Place) -> None:
        """A worker that lost its consumer may hold deliveries of it still: settling them touches nobody else's."""
        broker.declare(place.topology())
        broker.publish(place.messages(3)).check(LIMIT)
        old = broker.consume(place.queue, prefetch=3)
        stale = collect(old, 3)
        old.cancel()
        new = broker.consume(place.queue, prefetch=3)
        fresh = collect(new, 3)
        new.ack(stale)
        new.reject(stale)
        new.requeue(stale)
        new.ack(fresh[:1])
        time.sleep(0.3)
        new.cancel()
        last = broker.consume(place.queue, prefetch=10)
        assert sorted(d.body for d in collect(last, 2)) == sorted(d.body for d in fresh[1:])
        assert last.take(1, 0.3) == []

    def test_cancel_ends_a_waiting_take(self, broker: Broker, place: Place) -> None:
        broker.declare(place.topology())
        consumer = broker.consume(place.queue, prefetch=4)
        ended: list[list[Delivery]] = []
        thread = threading.Thread(target=lambda: ended.append(consumer.take(1, LIMIT)))
        thread.start()
        consumer.cancel()
        thread.join(LIMIT / 2)
        assert ended == [[]]

    def test_settling_twice_changes_nothing(self, broker: Broker, place: Place) -> None:
        broker.declare(place.topology())
        broker.publish(place.messages(3)).check(LIMIT)
        consumer = broker.consume(place.queue, prefetch=2)
        got = collect(consumer, 2)
        consumer.ack(got)
        consumer.ack(got)
        consumer.reject(got)
        consumer.requeue(got)
        assert [d.body for d in collect(consumer, 1)] == [b"2"]
        holds(broker, place.graves, 0)

    def test_queue_that_is_not_there_yet_is_waited_for(self, opener: Opener, place: Place) -> None:
        waiting = opener().consume(place.queue, prefetch=5)
        assert waiting.take(1, 0.3) == []
        other = opener()
        other.declare(place.topology())
        other.publish([place.message(b"at last")]).check(LIMIT)
        assert collect(waiting, 1)[0].body == b"at last"

    def test_queue_deleted_under_a_consumer_and_declared_again(self, opener: Opener, place: Place) -> None:
        """S02: the subscription comes back by itself."""
        scheduler, agent = opener(), opener()
        scheduler.declare(place.topology())
        consumer = agent.consume(place.queue, prefetch=5)
        scheduler.publish([place.message(b"before")]).check(LIMIT)
        held = collect(consumer, 1)
        scheduler.delete([place.queue])
        assert consumer.take(1, 0.5) == []
        scheduler.declare(place.topology())
        consumer.ack(held)  # of the old queue: must not settle anything in the new one
        scheduler.publish(place.messages(3)).check(LIMIT)
        got = collect(consumer, 3)
        assert [d.body for d in got] == [b"0", b"1", b"2"]
        consumer.ack(got)

    # -- answers -----------------------------------------------------------------------------------

    def test_ask_and_answer(self, opener: Opener, place: Place) -> None:
        client, server = opener(), opener()
        server.declare(place.topology())
        replies = client.consume(REPLIES, prefetch=10)
        questions = [place.message(b"%d" % i, reply_to=replies.address, correlation_id=f"c{i}") for i in range(5)]
        client.publish(questions).check(LIMIT)
        consumer = server.consume(place.queue, prefetch=10)
        for d in collect(consumer, 5):
            assert d.reply_to
            answer = Message("", d.reply_to, b"re:" + d.body, correlation_id=d.correlation_id)
            server.publish([answer]).check(LIMIT)
            consumer.ack([d])
        got = collect(replies, 5)
        replies.ack(got)
        assert [(d.correlation_id, d.body) for d in got] == [(f"c{i}", b"re:%d" % i) for i in range(5)]
        assert {d.queue for d in got} == {REPLIES}

    def test_answers_reach_only_who_asked(self, opener: Opener, place: Place) -> None:
        one, two, server = opener(), opener(), opener()
        server.declare(place.topology())
        for client in (one, two):
            client.consume(REPLIES, prefetch=10)
        first, second = one.consume(REPLIES, prefetch=5), two.consume(REPLIES, prefetch=5)
        two.publish([place.message(b"q", reply_to=second.address, correlation_id="2")]).check(LIMIT)
        [d] = collect(server.consume(place.queue, prefetch=1), 1)
        assert d.reply_to
        server.publish([Message("", d.reply_to, b"a", correlation_id="2")]).check(LIMIT)
        assert collect(second, 1)[0].correlation_id == "2"
        assert first.take(1, 0.2) == []

    def test_an_answer_to_nobody_harms_nobody(self, opener: Opener, place: Place) -> None:
        client, server = opener(), opener()
        server.declare(place.topology())
        replies = client.consume(REPLIES, prefetch=10)
        client.publish([place.message(b"q", reply_to=replies.address)]).check(LIMIT)
        [d] = collect(server.consume(place.queue, prefetch=1), 1)
        client.close()
        assert d.reply_to
        [outcome] = server.publish([Message("", d.reply_to, b"too late")]).wait(LIMIT)
        assert outcome is None or isinstance(outcome, Unroutable)
        if self.knows_lost_replies:
            assert isinstance(outcome, Unroutable)
        assert server.publish([place.message()]).wait(LIMIT) == [None]

    # -- declaring ---------------------------------------------------------------------------------

    def test_declare_is_idempotent_and_keeps_messages(self, opener: Opener, place: Place) -> None:
        for _ in range(3):
            broker = opener()
            broker.declare(place.topology(max_length=100, message_ttl=600))
            broker.publish([place.message()]).check(LIMIT)
        holds(broker, place.queue, 3)

    def test_each_difference_is_named(self, broker: Broker, place: Place) -> None:
        broker.declare(place.topology(message_ttl=600, max_length=100))
        other = Topology(
            (Exchange(place.work, "topic"),),
            (
                Queue(place.queue, dead_letter=place.dead, message_ttl=900, max_length=100, kind=self.kind),
                Queue(place.graves, message_ttl=5, kind=self.kind),
                Queue(place.queue + "2", kind=self.kind),
            ),
        )
        with pytest.raises(TopologyMismatch) as caught:
            broker.declare(other)
        text = str(caught.value)
        for word in (place.work, "direct", "topic", place.queue, "x-message-ttl", "600000", "900000", place.graves):
            assert word in text
        # The rest was declared all the same.
        holds(broker, place.queue + "2", 0)
        broker.delete([place.queue + "2"])

    def test_delete(self, broker: Broker, place: Place) -> None:
        broker.declare(place.topology())
        broker.publish([place.message()]).check(LIMIT)
        broker.delete([place.queue, place.graves, "contract-never-there"])
        broker.delete([place.queue])
        with pytest.raises(NotFound, match=place.queue):
            broker.stats(place.queue)
        broker.declare(place.topology())
        holds(broker, place.queue, 0)

    def test_stats(self, broker: Broker, place: Place) -> None:
        broker.declare(place.topology())
        stats = broker.stats(place.queue)
        assert (stats.messages, stats.consumers) == (0, 0)
        broker.publish(place.messages(7)).check(LIMIT)
        holds(broker, place.queue, 7)
        consumer = broker.consume(place.queue, prefetch=2)
        collect(consumer, 2)
        until(lambda: broker.stats(place.queue).consumers == 1, "one consumer")
        holds(broker, place.queue, 5)
        consumer.cancel()
        until(lambda: broker.stats(place.queue).consumers == 0, "no consumer")
        holds(broker, place.queue, 7)

    # -- threads, end ------------------------------------------------------------------------------

    def test_many_threads_at_once(self, broker: Broker, place: Place) -> None:
        """S09: publishing, taking and settling from many threads on one broker object."""
        broker.declare(place.topology())
        consumer = broker.consume(place.queue, prefetch=200)
        senders, each = 8, 60
        receipts: list[list[Receipt]] = [[] for _ in range(senders)]
        seen: list[list[bytes]] = [[] for _ in range(4)]
        stop = threading.Event()

        def send(n: int) -> None:
            for i in range(each):
                receipts[n].append(broker.publish([place.message(b"%d-%d" % (n, i))]))
                if i % 10 == 0:
                    receipts[n][-1].check(LIMIT)

        def receive(n: int) -> None:
            while not stop.is_set():
                taken = consumer.take(7, 0.05)
                seen[n] += [d.body for d in taken]
                for d in reversed(taken):
                    consumer.ack([d])

        threads = [threading.Thread(target=send, args=(n,)) for n in range(senders)]
        threads += [threading.Thread(target=receive, args=(n,)) for n in range(4)]
        for t in threads:
            t.start()
        for t in threads[:senders]:
            t.join()
        for receipt in (r for rs in receipts for r in rs):
            receipt.check(LIMIT)
        try:
            until(lambda: sum(map(len, seen)) >= senders * each, "everything arrived")
        finally:
            stop.set()
            for t in threads[senders:]:
                t.join()
        expected = sorted(b"%d-%d" % (n, i) for n in range(senders) for i in range(each))
        assert sorted(body for bodies in seen for body in bodies) == expected
        consumer.cancel()
        holds(broker, place.queue, 0)

    def test_close_flushes_what_was_published(self, opener: Opener, place: Place) -> None:
        broker = opener()
        broker.declare(place.topology())
        receipt = broker.publish(place.messages(500))
        broker.close()
        assert receipt.done
        assert receipt.outcomes == [None] * 500
        holds(opener(), place.queue, 500)

    def test_close_gives_back_and_acks_what_was_acked(self, opener: Opener, place: Place) -> None:
        broker = opener()
        broker.declare(place.topology())
        broker.publish(place.messages(4)).check(LIMIT)
        consumer = broker.consume(place.queue, prefetch=4)
        got = collect(consumer, 4)
        consumer.ack(got[:2])
        broker.close()
        again = collect(opener().consume(place.queue, prefetch=4), 2)
        assert [(d.body, d.redelivered) for d in again] == [(b"2", True), (b"3", True)]

    def test_close_twice_and_use_afterwards(self, opener: Opener, place: Place) -> None:
        broker = opener()
        broker.declare(place.topology())
        consumer = broker.consume(place.queue, prefetch=4)
        broker.close()
        broker.close()
        assert consumer.take(1, 0) == []
        assert not broker.status.connected
        assert all(isinstance(o, PublishFailed) for o in broker.publish([place.message()]).wait(LIMIT))
        for call in (
            lambda: broker.declare(place.topology()),
            lambda: broker.delete([place.queue]),
            lambda: broker.stats(place.queue),
            lambda: broker.consume(place.queue, prefetch=1),
        ):
            with pytest.raises(BrokerUnavailable):
                call()

    def test_status(self, broker: Broker, place: Place) -> None:
        until(lambda: broker.status.connected, "connected")
        assert broker.status.blocked is None
        assert broker.status.reconnects == 0

    def test_prefetch_must_be_possible(self, broker: Broker, place: Place) -> None:
        with pytest.raises(InvalidInput):
            broker.consume(place.queue, prefetch=0)
