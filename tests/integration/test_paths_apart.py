"""Failure of one path harms no other: answers on a connection of their own, a refusal after a good login."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator

import pytest

from rainbow import topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.brokers.base import REPLIES, Broker, Message
from servers import Private, RabbitServer, wait_until


@pytest.fixture
def broker(private_amqp_url: str) -> Iterator[Broker]:
    made = connect(ConnectOptions(private_amqp_url, name="apart"))
    made.declare(topology.core())
    # A quorum queue that was declared a moment ago may refuse a message until it has a leader.
    first = Message(topology.SUBMIT, "submit", b"{}")
    wait_until(lambda: made.publish([first]).wait(30) == [None], 60, what="the queue takes messages")
    yield made
    made.close()


def _connections(server: RabbitServer, ending: str) -> list[str]:
    listed = server.ctl("list_connections", "pid", "client_properties", "--silent")
    return [line.split()[0] for line in listed.splitlines() if f'"apart.{ending}"' in line]


def test_answers_fail_alone(broker: Broker, private_rabbitmq: Private[RabbitServer]) -> None:
    """Whatever becomes of answers: each message beside them is confirmed, on the connection that was there before."""
    lost = Message("", f"{REPLIES}.g2dkAA5ub2RlQG5vd2hlcmUAAAAAAAAAAAAAAAA=.x", b"{}", mandatory=False)
    dispatch = Message(topology.SUBMIT, "submit", b"{}")
    reconnects = broker.status.reconnects
    for _ in range(3):
        for _ in range(20):
            assert broker.publish([dispatch, lost, dispatch]).wait(30) == [None, None, None]
        for pid in _connections(private_rabbitmq.server, "answer"):
            private_rabbitmq.server.ctl("close_connection", pid, "as when the node of one who asked is gone")
    assert broker.status.reconnects == reconnects
    assert len(_connections(private_rabbitmq.server, "publish")) == 1


def test_answers_come_again_once_their_connection_is_back(
    broker: Broker, private_amqp_url: str, private_rabbitmq: Private[RabbitServer]
) -> None:
    client = connect(ConnectOptions(private_amqp_url, name="client"))
    replies = client.consume(REPLIES, prefetch=10)
    requests = broker.consume(topology.SCHEDULER_QUEUE, prefetch=10)

    def answered() -> bool:
        client.publish([Message(topology.SUBMIT, "submit", b"?", reply_to=replies.address)]).check(30)
        for asked in requests.take(10, 2.0):
            broker.publish([Message("", asked.reply_to or "", b"!", mandatory=False)]).check(30)
            requests.ack([asked])
        return bool(replies.take(10, 2.0))

    wait_until(answered, 60, what="an answer comes")
    for pid in _connections(private_rabbitmq.server, "answer"):
        private_rabbitmq.server.ctl("close_connection", pid, "as when the node of one who asked is gone")
    wait_until(answered, 60, what="an answer comes again")
    client.close()


def test_a_refusal_after_a_good_login_is_tried_again(
    private_rabbitmq: Private[RabbitServer], private_amqp_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The user is gone for a while, as a limit or a restarted server shows it: named in the log, and tried again."""
    server = private_rabbitmq.server
    name = f"user-{uuid.uuid4().hex[:6]}"
    vhost = private_amqp_url.rpartition("/")[2]

    def let_in() -> None:
        server.ctl("add_user", name, "secret")
        server.ctl("set_permissions", "-p", vhost, name, ".*", ".*", ".*")

    let_in()
    url = f"amqp://{name}:secret@{server.host}:{server.port}/{vhost}"
    broker = connect(ConnectOptions(url, name="refused"))
    try:
        broker.declare(topology.core())
        server.ctl("delete_user", name)  # which closes its connections
        with caplog.at_level(logging.ERROR):
            wait_until(lambda: "lets us in no more" in caplog.text, 60, what="the refusal is named")
        let_in()
        wait_until(lambda: broker.status.connected, 90, what="it is back")
        broker.publish([Message(topology.SUBMIT, "submit", b"{}")]).check(30)
    finally:
        broker.close()
        server.ctl("delete_user", name)
