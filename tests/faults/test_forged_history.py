"""A message whose `x-death` its sender wrote: RabbitMQ 3.10 ends its dead-lettering over one, for all quorum queues of
the node (see `rainbow.brokers.x_death.is_forged`)."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from rainbow.brokers import ConnectOptions, connect
from rainbow.testing.brokers import LIMIT, Place, collect, holds
from servers import Private, RabbitServer

HONEST = {"queue": "q", "reason": "rejected", "count": 1}
FORGED: list[Any] = [
    ["a"],
    "a",
    {"queue": "q"},
    [{}],
    [[HONEST]],
    [HONEST, "a"],
    *([{**HONEST, name: value}] for name in HONEST for value in (None, True, ["x"], {"a": 1})),
    [{**HONEST, "count": "1"}],
    [{**HONEST, "queue": 7}],
]


@pytest.mark.parametrize("scheme", ["amqp", "kombu+amqp"])
def test_a_refused_message_does_not_end_the_dead_lettering_of_the_broker(
    scheme: str,
    private_amqp_url: str,
    private_rabbitmq: Private[RabbitServer],
    caplog: pytest.LogCaptureFixture,
) -> None:
    place = Place("quorum")
    broker = connect(ConnectOptions(private_amqp_url.replace("amqp", scheme, 1), name="forged"))
    try:
        broker.declare(place.topology())
        broker.publish([place.message(b"?", headers={"x-death": forged}) for forged in FORGED]).check(LIMIT)
        sound = place.message(b"!", headers={"x-death": [HONEST]})
        broker.publish([sound]).check(LIMIT)
        consumer = broker.consume(place.queue, prefetch=100)
        with caplog.at_level(logging.ERROR):
            consumer.reject(collect(consumer, len(FORGED) + 1))
            [dead] = collect(broker.consume(place.graves, prefetch=100), 1)
        assert dead.body == b"!"
        holds(broker, place.queue, 0)
        assert sum("x-death was not written by the broker" in message for message in caplog.messages) == len(FORGED)
    finally:
        broker.close()
    assert private_rabbitmq.server.takes_messages()
