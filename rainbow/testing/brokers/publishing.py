"""Publishing: confirms, properties, routing and full queues."""

from __future__ import annotations

import threading

import pytest

from rainbow.brokers import ConnectOptions
from rainbow.brokers.base import MSGPACK, Broker, Message, Receipt
from rainbow.errors import (
    QueueFull,
    TooLarge,
    Unroutable,
)
from rainbow.testing.brokers.kit import LIMIT, BrokerFixtures, Place, collect, holds, until
from rainbow.topology import Exchange, Queue, Topology


class PublishingContract(BrokerFixtures):
    """Publishing: confirms, properties, routing and full queues."""

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
