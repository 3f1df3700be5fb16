"""A broker with several addresses: URLs, hosts of one URL, addresses of one host name. They are tried in turn."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from faults.proxy import Proxy, proxied
from rainbow import topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.brokers.base import Broker, Message
from rainbow.client import Client
from rainbow.errors import BrokerUnavailable
from rainbow.settings import Settings
from servers import free_ports, wait_until

QUEUE = topology.Queue("addresses")


@pytest.fixture
def proxy(amqp_url: str) -> Iterator[Proxy]:
    parts = urlsplit(amqp_url)
    with proxied(parts.hostname or "", parts.port or 0) as made:
        yield made


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that answers no SYN: its queue of connections is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = []
        for _ in range(3):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
            waiting.append(one)
        yield listener.getsockname()[1]
        for one in waiting:
            one.close()


def urls(amqp_url: str, *ports: int) -> str:
    """`amqp_url` with several hosts."""
    parts = urlsplit(amqp_url)
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return f"amqp://{parts.username}:{parts.password}@{hosts}{parts.path}"


def works(broker: Broker) -> bool:
    broker.declare(topology.Topology(queues=(QUEUE,)))
    broker.publish([Message("", QUEUE.name, b"x")]).check(20)
    return True


@pytest.mark.parametrize("turn", range(4))  # the order is random
def test_ports_where_nothing_listens_are_passed_at_once(amqp_url: str, turn: int) -> None:
    good = urlsplit(amqp_url).port or 0
    begun = time.monotonic()
    broker = connect(ConnectOptions(urls(amqp_url, *free_ports(2), good), connect_timeout=10))
    try:
        wait_until(lambda: broker.status.connected, 10, every=0.01)
        assert time.monotonic() - begun < 3, "no pause between the addresses of a round"
        assert works(broker)
    finally:
        broker.close()


def test_a_lost_connection_goes_on_at_another_address(amqp_url: str, proxy: Proxy) -> None:
    parts = urlsplit(amqp_url)
    with proxied(parts.hostname or "", parts.port or 0) as other:
        broker = connect(ConnectOptions(urls(amqp_url, proxy.port, other.port), connect_timeout=10))
        try:
            wait_until(lambda: broker.status.connected, 60)
            first, second = (proxy, other) if proxy.connections else (other, proxy)
            first.refuse()
            wait_until(lambda: second.connections == 1 and broker.status.connected, 60)
            assert works(broker)
            second.refuse()
            first.heal()
            wait_until(lambda: first.connections == 1 and broker.status.connected, 60)
            assert works(broker)
        finally:
            broker.close()


def test_one_that_takes_connections_and_says_nothing_is_left(amqp_url: str, proxy: Proxy) -> None:
    """As a frozen server."""
    proxy.swallow()
    good = urlsplit(amqp_url).port or 0
    for _ in range(2):
        broker = connect(ConnectOptions(urls(amqp_url, proxy.port, good), connect_timeout=2))
        try:
            wait_until(lambda broker=broker: broker.status.connected, 60)  # type: ignore[misc]
            assert works(broker)
        finally:
            broker.close()


def test_a_silent_first_address_of_a_name_is_left(
    amqp_url: str, silent: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The name server is the only thing here that is not real: the same name has a silent and a good address."""
    good = urlsplit(amqp_url).port or 0
    real = socket.getaddrinfo
    with socket.socket() as listener:
        listener.bind(("127.0.0.2", good))
        listener.listen(0)
        fill = [socket.socket() for _ in range(3)]
        for one in fill:
            one.setblocking(False)
            one.connect_ex(("127.0.0.2", good))

        def two(host: Any, port: Any, *args: Any, **more: Any) -> Any:
            if host != "mq.example":
                return real(host, port, *args, **more)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in ("127.0.0.2", "127.0.0.1")]

        monkeypatch.setattr(socket, "getaddrinfo", two)
        begun = time.monotonic()
        broker = connect(ConnectOptions(amqp_url.replace("127.0.0.1", "mq.example"), connect_timeout=3))
        try:
            wait_until(lambda: broker.status.connected, 10, every=0.01)
            assert 1.0 < time.monotonic() - begun < 3, "the silent one had half of the time"
            assert works(broker)
        finally:
            broker.close()
            for one in fill:
                one.close()
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


def test_none_answers(amqp_url: str, silent: int, caplog: pytest.LogCaptureFixture) -> None:
    """One line that names all, in the log, for whoever asks, and for a client."""
    (closed,) = free_ports(1)
    url = urls(amqp_url, closed, silent)
    parts = urlsplit(amqp_url)
    url = f"{url},amqp://{parts.username}:{parts.password}@no-such-host.invalid{parts.path}"
    broker = connect(ConnectOptions(url, connect_timeout=2))
    try:
        wait_until(lambda: broker.status.problem, 60)
        problem = broker.status.problem or ""
    finally:
        broker.close()
    assert f"127.0.0.1:{closed}/" in problem
    assert "Connection refused" in problem
    assert f"127.0.0.1:{silent}/" in problem
    assert "host 'no-such-host.invalid' is not known" in problem
    assert problem.startswith("no broker of 3 answers: ")
    assert "\n" not in problem
    warned = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert warned
    assert all(w.startswith("no broker of 3 answers: ") for w in warned)
    assert not [r for r in caplog.records if r.exc_info]
    with (
        Client(settings=Settings.model_validate({"broker": {"url": url, "connect_timeout": 8}}), token="t") as client,
        pytest.raises(BrokerUnavailable) as caught,
    ):
        client.ping()
    for part in (str(closed), str(silent), "no-such-host.invalid"):
        assert part in caught.value.message
