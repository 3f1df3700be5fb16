"""Consuming: prefetch, acknowledgement, redelivery and sharing."""

from __future__ import annotations

import threading
import time

from rainbow.brokers.base import Broker, Delivery
from rainbow.testing.brokers.kit import LIMIT, BrokerFixtures, Opener, Place, collect, holds, until


class ConsumingContract(BrokerFixtures):
    """Consuming: prefetch, acknowledgement, redelivery and sharing."""

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

    def test_a_single_active_consumer_is_alone_and_leaves_nothing_behind(self, opener: Opener, place: Place) -> None:
        """While the active one holds messages, no other gets any.

        The next one gets what it held before anything that was published after the takeover.
        """
        first, second = opener(), opener()
        first.declare(place.topology(single_active=True, delivery_limit=20))
        active = first.consume(place.queue, prefetch=3)
        first.publish(place.messages(3)).check(LIMIT)
        held = collect(active, 3)
        active.ack(held[:1])
        standby = second.consume(place.queue, prefetch=10)
        first.publish([place.message(b"%d" % n) for n in (3, 4)]).check(LIMIT)
        assert standby.take(10, 1.0) == []
        first.close()
        got = collect(standby, 1)
        second.publish([place.message(b"last")]).check(LIMIT)
        got += collect(standby, 4)
        assert sorted(d.body for d in got[:4]) == [b"1", b"2", b"3", b"4"]
        assert got[4].body == b"last"
        standby.ack(got)

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
        """A worker may hold deliveries of a consumer that it lost: settling them does not touch others."""
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
