"""Faults of Redis, and of processes that hold messages, under the kombu plugin."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator

import pytest

from faults.proxy import proxied
from rainbow.brokers import ConnectOptions, connect
from rainbow.brokers.base import Broker
from rainbow.errors import BadCredentials, BrokerUnavailable, PublishFailed
from rainbow.testing.brokers import LIMIT, Place, collect
from servers import Private, RedisServer, wait_until

pytest.importorskip("kombu")

Make = Callable[..., Broker]


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
def place() -> Place:
    return Place("quorum")


@pytest.fixture
def private_url(private_redis: Private[RedisServer], place: Place) -> str:
    return f"{private_redis.server.url}?prefix={place.queue}:"


def test_messages_and_topology_survive_a_kill(
    make: Make, private_redis: Private[RedisServer], private_url: str, place: Place
) -> None:
    broker = make(private_url)
    broker.declare(place.topology())
    consumer = broker.consume(place.queue, prefetch=2)
    broker.publish(place.messages(5)).check(LIMIT)
    held = collect(consumer, 2)
    time.sleep(1.2)  # appendfsync everysec: what Redis promises to keep
    private_redis.restart()
    # What was held stays held: Redis noted it, and the ack finds it.
    consumer.ack(held)
    rest = collect(consumer, 2)
    assert [d.body for d in rest] == [b"2", b"3"]
    consumer.reject(rest)
    assert collect(consumer, 1)[0].body == b"4"
    wait_until(lambda: broker.stats(place.graves).messages == 2, what="both rejects are kept")
    wait_until(lambda: broker.publish([place.message(b"after")]).wait(LIMIT) == [None], what="it publishes again")


def test_publishing_without_a_server_fails_in_time(
    make: Make, private_redis: Private[RedisServer], private_url: str, place: Place
) -> None:
    broker = make(private_url, publish_timeout=1.0, connect_timeout=1.0)
    broker.declare(place.topology())
    private_redis.kill()
    began = time.monotonic()
    outcomes = broker.publish(place.messages(3)).wait(LIMIT)
    assert all(isinstance(o, PublishFailed) for o in outcomes)
    with pytest.raises(BrokerUnavailable):
        broker.stats(place.queue)
    assert time.monotonic() - began < 30
    private_redis.start()
    wait_until(lambda: broker.publish([place.message()]).wait(LIMIT) == [None], what="it publishes again")


def test_frozen_server(make: Make, private_redis: Private[RedisServer], private_url: str, place: Place) -> None:
    broker = make(private_url, publish_timeout=2.0, connect_timeout=1.0, heartbeat=1.0)
    broker.declare(place.topology())
    private_redis.freeze()
    try:
        [outcome] = broker.publish([place.message(b"frozen")]).wait(LIMIT)
        assert isinstance(outcome, PublishFailed)
    finally:
        private_redis.thaw()
    wait_until(lambda: broker.publish([place.message()]).wait(LIMIT) == [None], what="it publishes again")


def test_cut_link(make: Make, redis_server: RedisServer, redis_prefix: str, place: Place) -> None:
    with proxied(redis_server.host, redis_server.port) as proxy:
        # What Redis handed out to a reader that was cut off comes back when its time is up.
        broker = make(f"redis://127.0.0.1:{proxy.port}/0?prefix={redis_prefix}&visibility_timeout=5")
        broker.declare(place.topology())
        consumer = broker.consume(place.queue, prefetch=10)
        sure = set()
        for batch in range(10):
            messages = [place.message(b"%d-%d" % (batch, i)) for i in range(20)]
            receipt = broker.publish(messages)
            proxy.cut()
            sure |= {m.body for m, o in zip(messages, receipt.wait(LIMIT), strict=True) if o is None}
        seen: set[bytes] = set()
        end = time.monotonic() + LIMIT
        while not sure <= seen and time.monotonic() < end:
            taken = consumer.take(10, 0.5)
            seen |= {d.body for d in taken}
            consumer.ack(taken)
        assert sure <= seen
        assert sure


_HOLDER = """
    import sys, time
    from rainbow.brokers import ConnectOptions, connect
    consumer = connect(ConnectOptions(sys.argv[1])).consume(sys.argv[2], prefetch=5)
    while not (taken := consumer.take(1, 1.0)):
        pass
    print(taken[0].body.decode(), flush=True)
    time.sleep(600)
"""


def test_what_a_killed_process_held_comes_back(make: Make, redis_url: str, redis_prefix: str, place: Place) -> None:
    """I1: the message is noted as taken in the step that takes it, so a kill at any time loses nothing."""
    url = f"{redis_url}?prefix={redis_prefix}&visibility_timeout=4"
    broker = make(url)
    broker.declare(place.topology())
    broker.publish(place.messages(3)).check(LIMIT)
    holder = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(_HOLDER), url, place.queue], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == "0"
        wait_until(lambda: broker.stats(place.queue).messages == 0, what="it holds all three")
        os.kill(holder.pid, signal.SIGKILL)
    finally:
        holder.kill()
        holder.communicate()
    consumer = broker.consume(place.queue, prefetch=5)
    got = collect(consumer, 3)
    assert sorted((d.body, d.redelivered) for d in got) == [(b"0", True), (b"1", True), (b"2", True)]


def test_a_living_consumer_keeps_what_it_holds(make: Make, redis_url: str, redis_prefix: str, place: Place) -> None:
    """S08: longer than the visibility timeout, with another consumer ready to take it."""
    url = f"{redis_url}?prefix={redis_prefix}&visibility_timeout=3"
    broker = make(url)
    broker.declare(place.topology())
    consumer = broker.consume(place.queue, prefetch=1)
    broker.publish([place.message(b"long")]).check(LIMIT)
    [held] = collect(consumer, 1)
    other = make(url).consume(place.queue, prefetch=5)
    end = time.monotonic() + 10
    while time.monotonic() < end:
        assert other.take(1, 1.0) == []
    consumer.ack([held])
    consumer.cancel()
    assert other.take(1, 0.5) == []


def test_wrong_password_stops_at_once(make: Make, private_redis: Private[RedisServer], place: Place) -> None:
    redis = pytest.importorskip("redis")
    with redis.Redis.from_url(private_redis.server.url) as client:
        client.config_set("requirepass", "right")
        try:
            for url in (
                f"redis://:wrong@127.0.0.1:{private_redis.server.port}/0",
                f"redis://127.0.0.1:{private_redis.server.port}/0",
            ):
                broker = make(url)
                with pytest.raises(BadCredentials) as caught:
                    broker.declare(place.topology())
                assert "wrong" not in str(caught.value)
                with pytest.raises(BadCredentials):
                    broker.publish([place.message()])
            make(f"redis://:right@127.0.0.1:{private_redis.server.port}/0").declare(place.topology())
        finally:
            client.config_set("requirepass", "")
