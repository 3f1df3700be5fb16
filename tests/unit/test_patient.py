"""What a worker cannot handle now goes back after a pause, and not while the broker takes no messages."""

from __future__ import annotations

import time
import uuid

from rainbow.brokers import ConnectOptions, connect
from rainbow.testing.brokers import LIMIT, Place, collect
from rainbow_workers.worker import DelayedRequeue


def test_nothing_goes_back_while_the_broker_takes_nothing() -> None:
    """Else an alarm of some minutes would use up what a message may be delivered, and put it among the dead."""
    broker = connect(ConnectOptions(f"memory://{uuid.uuid4()}"))
    place = Place("quorum")
    broker.declare(place.topology())
    broker.publish(place.messages(2)).check(LIMIT)
    blocked = [True]
    patient = DelayedRequeue(broker.consume(place.queue, prefetch=10), pause=0.1, blocked=lambda: blocked[0])
    first = collect(patient, 2)
    patient.requeue(first)
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        assert patient.take(10, 0.05) == []
    blocked[0] = False
    again = collect(patient, 2)
    assert [(d.body, d.headers["x-delivery-count"]) for d in again] == [(b"0", 1), (b"1", 1)]
    patient.ack(again)
    patient.cancel()
    broker.close()
