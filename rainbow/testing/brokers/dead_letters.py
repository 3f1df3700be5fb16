"""Dead-lettering: rejected and expired messages."""

from __future__ import annotations

import time
from datetime import datetime

from rainbow.brokers.base import Broker, Delivery
from rainbow.testing.brokers.kit import LIMIT, BrokerFixtures, Opener, Place, collect, holds
from rainbow.topology import Queue, Topology


class DeadLetterContract(BrokerFixtures):
    """Dead-lettering: rejected and expired messages."""

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
