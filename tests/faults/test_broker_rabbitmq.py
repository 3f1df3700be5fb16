"""Faults between us and RabbitMQ, and of RabbitMQ itself. Sxx: the numbered faults of the scenario list."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faults.proxy import Proxy, proxied
from rainbow.brokers import ConnectOptions, connect
from rainbow.brokers.base import Broker, Delivery
from rainbow.brokers.rabbitmq import confirm_watch
from rainbow.errors import BadCredentials, BrokerBlocked, PublishFailed, QueueFull, TooLarge
from rainbow.testing.brokers import LIMIT, Place, collect, holds
from servers import Private, RabbitServer, wait_until

pytestmark = pytest.mark.timeout(240)

Make = Callable[..., Broker]


@pytest.fixture
def proxy(rabbit_server: RabbitServer) -> Iterator[Proxy]:
    with proxied(rabbit_server.host, rabbit_server.port) as proxy:
        yield proxy


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Broker] = []

    def make(url: str, **options: object) -> Broker:
        made.append(connect(ConnectOptions(url, **options)))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for broker in made:
        broker.close()


@pytest.fixture
def proxy_url(rabbit_server: RabbitServer, amqp_vhost: str, proxy: Proxy) -> str:
    return rabbit_server.vhost_url(amqp_vhost, proxy.port)


@pytest.fixture
def place() -> Place:
    return Place("quorum")


def bodies(broker: Broker, queue: str) -> list[bytes]:
    """Everything in a queue, acked."""
    consumer = broker.consume(queue, prefetch=1000)
    got: list[Delivery] = []
    while more := consumer.take(1000, 1.0):
        got += more
        consumer.ack(more)
    consumer.cancel()
    return [d.body for d in got]


# -- the link ---------------------------------------------------------------------------------------------


def test_published_into_a_dead_link_never_counts_as_sent(
    make: Make, amqp_url: str, proxy_url: str, proxy: Proxy, place: Place
) -> None:
    """S12: an idle connection was dropped silently; success only after a confirm."""
    witness = make(amqp_url)
    witness.declare(place.topology())
    broker = make(proxy_url, publish_timeout=3.0, heartbeat=30.0)
    broker.publish([place.message(b"first")]).check(LIMIT)
    proxy.swallow()
    began = time.monotonic()
    [outcome] = broker.publish([place.message(b"lost")]).wait(LIMIT)
    assert isinstance(outcome, PublishFailed)
    assert time.monotonic() - began < 15
    proxy.heal()
    broker.publish([place.message(b"second")]).check(LIMIT)
    assert bodies(witness, place.queue) == [b"first", b"second"]


def test_confirms_that_stay_away_are_in_the_log(
    make: Make,
    amqp_url: str,
    proxy_url: str,
    proxy: Proxy,
    place: Place,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once, with how many and for which queue; and once when they come again."""
    caplog.set_level(logging.INFO, "rainbow")
    monkeypatch.setattr(confirm_watch, "UNCONFIRMED", 1.0)
    broker = make(proxy_url, heartbeat=60.0)
    broker.declare(place.topology())
    proxy.stall()
    receipt = broker.publish([place.message(b"a"), place.message(b"b")])

    def said(action: str) -> list[str]:
        return [r.getMessage() for r in caplog.records if getattr(r, "action", "") == action]

    wait_until(lambda: said("broker.unconfirmed"), 60)
    time.sleep(1.5)  # it is not repeated
    proxy.heal()
    receipt.check(LIMIT)
    wait_until(lambda: said("broker.confirming"), 60)
    (warned,) = said("broker.unconfirmed")
    assert "has not confirmed 2 message(s) for 1 s" in warned
    assert place.message(b"").routing_key in warned


@pytest.mark.parametrize("seed", range(3))
def test_confirmed_means_there_whenever_the_link_is_cut(
    make: Make, amqp_url: str, proxy_url: str, proxy: Proxy, place: Place, seed: int
) -> None:
    """S14: in flight when the connection dies: success or a retryable error in time, and success is true."""
    witness = make(amqp_url)
    witness.declare(place.topology())
    broker = make(proxy_url, publish_timeout=20.0)
    rng = random.Random(seed)
    stop = threading.Event()

    def trouble() -> None:
        while not stop.wait(rng.uniform(0.02, 0.3)):
            proxy.cut()

    thread = threading.Thread(target=trouble)
    thread.start()
    sure: set[bytes] = set()
    sent = 0
    try:
        for batch in range(20):
            messages = [place.message(b"%d-%d" % (batch, i)) for i in range(50)]
            outcomes = broker.publish(messages).wait(LIMIT)
            sent += len(messages)
            for m, outcome in zip(messages, outcomes, strict=True):
                assert outcome is None or isinstance(outcome, PublishFailed)
                if outcome is None:
                    sure.add(m.body)
    finally:
        stop.set()
        thread.join()
    broker.publish([place.message(b"last")]).check(LIMIT)
    there = bodies(witness, place.queue)
    assert sure <= set(there)
    assert there[-1] == b"last"
    assert sent == 1000


def test_old_deliveries_settle_nothing_after_a_reconnect(
    make: Make, proxy_url: str, proxy: Proxy, place: Place
) -> None:
    broker = make(proxy_url)
    broker.declare(place.topology())
    consumer = broker.consume(place.queue, prefetch=3)
    broker.publish(place.messages(4)).check(LIMIT)
    old = collect(consumer, 3)
    proxy.cut()
    again = collect(consumer, 3)
    assert [(d.body, d.redelivered) for d in again] == [(b"0", True), (b"1", True), (b"2", True)]
    consumer.ack(old)
    consumer.reject(old)
    consumer.requeue(old)
    consumer.ack(again[:1])
    assert [d.body for d in collect(consumer, 1)] == [b"3"]  # so this ack has arrived, and no other
    proxy.cut()
    third = collect(consumer, 3)
    assert sorted(d.body for d in third) == [b"1", b"2", b"3"]
    consumer.ack(third)
    consumer.cancel()
    holds(broker, place.graves, 0)
    holds(broker, place.queue, 0)
    assert broker.status.reconnects >= 2


def test_consumer_comes_back_from_a_half_open_link(
    make: Make, amqp_url: str, proxy_url: str, proxy: Proxy, place: Place
) -> None:
    """S54: nothing is heard any more, but no end of the connection either: the heartbeat finds out."""
    witness = make(amqp_url)
    witness.declare(place.topology())
    consumer = make(proxy_url, heartbeat=1.0).consume(place.queue, prefetch=10)
    witness.publish([place.message(b"before")]).check(LIMIT)
    assert collect(consumer, 1)[0].body == b"before"
    proxy.swallow()
    witness.publish([place.message(b"during")]).check(LIMIT)
    connections = proxy.accepted
    wait_until(lambda: proxy.accepted > connections, 60, what="it connects again")
    proxy.heal()
    assert {d.body for d in collect(consumer, 2)} == {b"before", b"during"}


def test_a_broker_that_answers_nothing_does_not_hang_anybody(
    make: Make, proxy_url: str, proxy: Proxy, place: Place
) -> None:
    proxy.swallow(only_answers=True)
    broker = make(proxy_url, connect_timeout=1.0, publish_timeout=2.0)
    [outcome] = broker.publish([place.message()]).wait(LIMIT)
    assert isinstance(outcome, PublishFailed)
    assert not broker.status.connected
    assert proxy.accepted >= 1
    proxy.heal()
    broker.declare(place.topology())
    broker.publish([place.message()]).check(LIMIT)


def test_messages_wait_for_a_short_outage(make: Make, proxy_url: str, proxy: Proxy, place: Place) -> None:
    broker = make(proxy_url)
    broker.declare(place.topology())
    proxy.refuse()
    wait_until(lambda: not broker.status.connected, what="the loss is noticed")
    receipt = broker.publish(place.messages(20))
    tries = proxy.accepted
    wait_until(lambda: proxy.accepted >= tries + 2, what="it keeps trying")
    assert not receipt.done
    proxy.heal()
    receipt.check(LIMIT)
    assert bodies(broker, place.queue) == [b"%d" % i for i in range(20)]


def test_slow_link(make: Make, proxy_url: str, proxy: Proxy, place: Place) -> None:
    broker = make(proxy_url)
    broker.declare(place.topology())
    proxy.slow(0.05)
    broker.publish([place.message(b"x" * 300_000) for _ in range(5)]).check(LIMIT)
    consumer = broker.consume(place.queue, prefetch=2)
    for _ in range(5):
        [d] = collect(consumer, 1)
        assert len(d.body) == 300_000
        consumer.ack([d])


def test_work_longer_than_the_heartbeat(make: Make, proxy_url: str, proxy: Proxy, place: Place) -> None:
    """S07: heartbeats are served while a handler blocks; nothing is redelivered."""
    broker = make(proxy_url, heartbeat=1.0)
    broker.declare(place.topology())
    broker.publish(place.messages(2)).check(LIMIT)
    consumer = broker.consume(place.queue, prefetch=2)
    [d] = collect(consumer, 1)
    connections = proxy.accepted
    time.sleep(6)  # the handler: several times what RabbitMQ waits for a heartbeat of 1 s
    consumer.ack([d])
    rest = collect(consumer, 1)
    assert [(r.body, r.redelivered) for r in rest] == [(b"1", False)]
    consumer.ack(rest)
    consumer.cancel()
    holds(broker, place.queue, 0)
    assert proxy.accepted == connections
    assert broker.status.reconnects == 0


# -- credentials ------------------------------------------------------------------------------------------


def test_wrong_password_stops_at_once(
    make: Make,
    rabbit_server: RabbitServer,
    amqp_vhost: str,
    proxy: Proxy,
    place: Place,
    caplog: pytest.LogCaptureFixture,
) -> None:
    secret = "geheim-4711"
    user = rabbit_server.parts.username or "guest"
    caplog.set_level(logging.DEBUG)
    broker = make(f"amqp://{user}:{secret}@127.0.0.1:{proxy.port}/{amqp_vhost}")
    with pytest.raises(BadCredentials) as caught:
        broker.declare(place.topology())
    assert user in str(caught.value)
    for call in (
        lambda: broker.publish([place.message()]),
        lambda: broker.consume(place.queue, prefetch=1),
        lambda: broker.stats(place.queue),
        lambda: broker.delete([place.queue]),
    ):
        with pytest.raises(BadCredentials):
            call()
    assert proxy.accepted == 1
    assert secret not in caplog.text
    assert secret not in str(caught.value)
    assert secret not in repr(broker)


def test_credentials_that_are_refused_after_a_login_are_tried_again(
    make: Make, rabbit_server: RabbitServer, amqp_vhost: str, proxy: Proxy, place: Place
) -> None:
    """A limit, a restart, or rights that are being changed: what let us in once may do so again."""
    good = rabbit_server.parts.password or "guest"
    password = {"now": good}
    broker = make(
        rabbit_server.vhost_url(amqp_vhost, proxy.port),
        user=rabbit_server.parts.username or "guest",
        password=lambda: password["now"],
    )
    broker.declare(place.topology())
    consumer = broker.consume(place.queue, prefetch=1)
    assert consumer.take(1, 0.1) == []
    password["now"] = "revoked"
    proxy.cut()
    wait_until(lambda: "lets us in no more" in (broker.status.problem or ""), what="the refusal is named")
    assert consumer.take(1, 0.1) == []
    password["now"] = good
    wait_until(lambda: broker.status.connected, what="it is let in again")
    broker.publish([place.message(b"after")]).check(LIMIT)
    wait_until(lambda: [d.body for d in consumer.take(1, 1.0)] == [b"after"], what="it consumes again")


def test_a_lost_connection_during_login_is_not_a_bad_password(
    make: Make, proxy_url: str, proxy: Proxy, place: Place
) -> None:
    proxy.stall()
    broker = make(proxy_url)
    wait_until(lambda: proxy.bytes_up > 0, what="it talks")
    proxy.refuse()
    tries = proxy.accepted
    wait_until(lambda: proxy.accepted >= tries + 2, what="it keeps trying")
    proxy.heal()
    broker.declare(place.topology())


# -- the broker's doing -----------------------------------------------------------------------------------


def test_channel_errors_harm_only_who_caused_them(make: Make, amqp_url: str, place: Place) -> None:
    """S14, S18: a channel closed by the broker; what was confirmed is there, the rest is told to try again."""
    broker = make(amqp_url)
    broker.declare(place.topology())
    sure: list[bytes] = []
    for round_ in range(10):
        good = [place.message(b"%d-%d" % (round_, i)) for i in range(20)]
        bad = place.message(b"bad", exchange="contract-no-such-exchange")
        *outcomes, last = broker.publish([*good, bad]).wait(LIMIT)
        sure += [m.body for m, o in zip(good, outcomes, strict=True) if o is None]
        assert all(o is None or type(o) is PublishFailed for o in outcomes)
        assert last is not None
        assert last.code == "unroutable"
    broker.publish([place.message(b"end")]).check(LIMIT)
    there = bodies(broker, place.queue)
    assert set(sure) <= set(there)
    assert there[-1] == b"end"


def test_alarm_refuses_publishers_and_lets_consumers_drain(
    make: Make, private_rabbitmq: Private[RabbitServer], private_amqp_url: str, place: Place
) -> None:
    """S16: fail fast while blocked, consumers go on, back within 10 s of the release."""
    server = private_rabbitmq.server
    broker = make(private_amqp_url)
    broker.declare(place.topology())
    broker.publish(place.messages(50)).check(LIMIT)
    consumer = broker.consume(place.queue, prefetch=5)
    server.ctl("set_vm_memory_high_watermark", "0.0000001")
    try:
        pending = broker.publish([place.message(b"pending")])
        wait_until(lambda: broker.status.blocked is not None, what="blocked")
        began = time.monotonic()
        [outcome] = broker.publish([place.message(b"refused")]).wait(LIMIT)
        assert isinstance(outcome, BrokerBlocked)
        assert time.monotonic() - began < 5
        # Until its own time is up, what was sent before is not given up.
        assert not pending.done
        for _ in range(10):
            consumer.ack(collect(consumer, 5))
    finally:
        server.ctl("set_vm_memory_high_watermark", "0.6")
    began = time.monotonic()
    wait_until(lambda: broker.status.blocked is None, what="released")
    broker.publish([place.message(b"after")]).check(LIMIT)
    assert time.monotonic() - began < 10
    pending.check(LIMIT)
    assert sorted(d.body for d in collect(consumer, 2)) == [b"after", b"pending"]


def test_closing_while_the_broker_takes_nothing_leaves_no_socket(
    make: Make, private_rabbitmq: Private[RabbitServer], private_amqp_url: str, place: Place
) -> None:
    """S16: a broker that blocks a connection does not read its goodbye either."""
    server = private_rabbitmq.server

    def sockets() -> int:
        """To this server, from any process; it is this test's own."""
        rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
        return sum(1 for row in rows if row[2] == f"0100007F:{server.port:04X}" and row[9] != "0")

    before = sockets()
    broker = make(private_amqp_url, publish_timeout=2.0)
    broker.declare(place.topology())
    server.ctl("set_vm_memory_high_watermark", "0.0000001")
    try:
        broker.publish([place.message(b"pending")])
        wait_until(lambda: broker.status.blocked is not None, what="blocked")
        assert sockets() > before
        broker.close()
        assert sockets() == before
    finally:
        server.ctl("set_vm_memory_high_watermark", "0.6")


def test_brokers_own_size_limit(
    make: Make, private_rabbitmq: Private[RabbitServer], private_amqp_url: str, place: Place
) -> None:
    """S18: a limit below ours: the broker closes the channel, and the message is told from its neighbours."""
    server = private_rabbitmq.server
    server.eval("application:set_env(rabbit, max_message_size, 100000).")
    server.eval("persistent_term:put(max_message_size, 100000).")
    try:
        broker = make(private_amqp_url)
        broker.declare(place.topology())
        large = place.message(b"x" * 150_000)
        outcomes = broker.publish([large, place.message(b"small")]).wait(LIMIT)
        assert isinstance(outcomes[0], TooLarge)
        assert "100000" in str(outcomes[0])
        assert outcomes[1] is None or type(outcomes[1]) is PublishFailed
        broker.publish([place.message(b"small")]).check(LIMIT)
    finally:
        server.eval("application:set_env(rabbit, max_message_size, 134217728).")
        server.eval("persistent_term:put(max_message_size, 134217728).")


def test_ack_time_limit_of_the_broker(
    make: Make, private_rabbitmq: Private[RabbitServer], private_amqp_url: str, place: Place
) -> None:
    """S01, S02: the broker ends a consumer that held a delivery for too long; it comes back, and so do they."""
    server = private_rabbitmq.server
    server.eval("application:set_env(rabbit, consumer_timeout, 1000).")
    server.eval("application:set_env(rabbit, channel_tick_interval, 1000).")
    try:
        broker = make(private_amqp_url)
        broker.declare(place.topology())
        consumer = broker.consume(place.queue, prefetch=1)
        broker.publish(place.messages(1)).check(LIMIT)
        [old] = collect(consumer, 1)
        [again] = collect(consumer, 1)
        assert (again.body, again.redelivered) == (b"0", True)
        consumer.ack([old])
        consumer.ack([again])
        broker.publish([place.message(b"next")]).check(LIMIT)
        assert collect(consumer, 1)[0].body == b"next"
    finally:
        server.eval("application:set_env(rabbit, consumer_timeout, 1800000).")
        server.eval("application:set_env(rabbit, channel_tick_interval, 60000).")


def test_frozen_broker(
    make: Make, private_rabbitmq: Private[RabbitServer], private_amqp_url: str, place: Place
) -> None:
    broker = make(private_amqp_url, publish_timeout=2.0, heartbeat=1.0)
    broker.declare(place.topology())
    consumer = broker.consume(place.queue, prefetch=10)
    broker.publish([place.message(b"before")]).check(LIMIT)
    consumer.ack(collect(consumer, 1))
    private_rabbitmq.freeze()
    try:
        began = time.monotonic()
        [outcome] = broker.publish([place.message(b"frozen")]).wait(LIMIT)
        assert isinstance(outcome, PublishFailed)
        assert time.monotonic() - began < 20
        wait_until(lambda: not broker.status.connected, what="the heartbeat finds out")
    finally:
        private_rabbitmq.thaw()
    wait_until(lambda: broker.publish([place.message(b"after")]).wait(LIMIT) == [None], what="it takes messages again")
    end = time.monotonic() + LIMIT
    seen: set[bytes] = set()
    while b"after" not in seen and time.monotonic() < end:
        taken = consumer.take(10, 1.0)
        consumer.ack(taken)
        seen |= {d.body for d in taken}
    assert b"after" in seen


def test_killed_and_restarted_broker(
    make: Make, private_rabbitmq: Private[RabbitServer], private_amqp_url: str, place: Place
) -> None:
    """S54: alive and not deaf after each restart: a canary arrives, and what was confirmed was kept."""
    broker = make(private_amqp_url)
    broker.declare(place.topology())
    consumer = broker.consume(place.queue, prefetch=10)
    for round_ in range(2):
        broker.publish([place.message(b"kept-%d" % round_)]).check(LIMIT)
        held = collect(consumer, 1)
        private_rabbitmq.restart()
        wait_until(lambda: broker.status.connected, what="reconnected")
        [again] = collect(consumer, 1)
        assert again.body == held[0].body == b"kept-%d" % round_
        consumer.ack([again])
        wait_until(lambda: broker.publish([place.message(b"canary")]).wait(LIMIT) == [None], what="it publishes")
        canary = collect(consumer, 1)
        assert canary[0].body == b"canary"
        consumer.ack(canary)
    consumer.cancel()
    holds(broker, place.queue, 0)


def _vhost(url: str) -> str:
    return url.rpartition("/")[2].partition("?")[0]


def test_a_queue_without_a_leader_is_not_called_full(
    make: Make, private_rabbitmq: Private[RabbitServer], private_amqp_url: str, place: Place
) -> None:
    """A nack has its true reason, and the channel that RabbitMQ goes on refusing is replaced."""
    server = private_rabbitmq.server
    broker = make(private_amqp_url)
    broker.declare(place.topology())
    leader = f"{{'{_vhost(private_amqp_url)}_{place.queue}', node()}}"
    server.eval(f"ra:stop_server(quorum_queues, {leader}).")
    [outcome] = broker.publish([place.message(b"x")]).wait(LIMIT)
    assert type(outcome) is PublishFailed
    assert "leader" in str(outcome)
    server.eval(f"ra:restart_server(quorum_queues, {leader}).")
    wait_until(lambda: broker.publish([place.message(b"y")]).wait(LIMIT) == [None])
    assert set(bodies(broker, place.queue)) == {b"y"}


def test_a_policy_bounds_the_bytes_of_a_queue(
    make: Make, private_rabbitmq: Private[RabbitServer], private_amqp_url: str, place: Place
) -> None:
    """As `docs/how-to/operate-rabbitmq-and-redis.md` shows it."""
    server = private_rabbitmq.server
    broker = make(private_amqp_url)
    broker.declare(place.topology())
    named = ("-p", _vhost(private_amqp_url), "--apply-to", "queues", "bytes", f"^{place.queue}$")
    server.ctl("set_policy", *named, '{"max-length-bytes": 100000}')
    large = place.message(b"x" * 60_000)
    wait_until(lambda: isinstance(broker.publish([large]).wait(LIMIT)[0], QueueFull))
    assert len(bodies(broker, place.queue)) >= 2
    broker.publish([large]).check(LIMIT)
