"""Replies, declarations, threads and the end of a connection."""

from __future__ import annotations

import threading

import pytest

from rainbow.brokers.base import REPLIES, Broker, Message, Receipt
from rainbow.errors import (
    BrokerUnavailable,
    InvalidInput,
    NotFound,
    PublishFailed,
    TopologyMismatch,
    Unroutable,
)
from rainbow.testing.brokers.kit import LIMIT, BrokerFixtures, Opener, Place, collect, holds, until
from rainbow.topology import Exchange, Queue, Topology


class LifecycleContract(BrokerFixtures):
    """Replies, declarations, threads and the end of a connection."""

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
