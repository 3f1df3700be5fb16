"""Broker plugins (entry points `rainbow.brokers`), chosen by URL."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

from rainbow import plugins
from rainbow.brokers.base import Broker
from rainbow.errors import InvalidSettings, TopologyMismatch
from rainbow.paths import check_socket
from rainbow.topology import Topology
from rainbow.urls import addresses, redact, split, usual

log = logging.getLogger(__name__)

_SCHEMES = {
    "http": "https",
    "https": "https",
    "amqp": "rabbitmq",
    "amqps": "rabbitmq",
    "memory": "memory",
    "redis": "kombu",
    "rediss": "kombu",
}


@dataclass(frozen=True, slots=True)
class Tls:
    """CA file, client certificate and key (paths). The host name is always checked."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """What a broker plugin is made with. Times in seconds.

    `name` is shown in the broker's list of connections. `password` is asked for at each connect and before
    it runs out, so that a renewed token is used without a gap; None takes user and password from the URL.
    """

    url: str
    name: str = "rainbow"
    user: str | None = None
    password: Callable[[], str] | None = None
    tls: Tls | None = None
    heartbeat: float = 15.0
    connect_timeout: float = 10.0
    publish_timeout: float = 30.0
    max_in_flight: int = 2000
    max_message_bytes: int = 1 << 20


def connect(options: ConnectOptions) -> Broker:
    """Connect to the broker at ``options.url``.

    Schemes: ``amqp(s)://`` (RabbitMQ through pika), ``redis(s)://``, ``valkey(s)://`` or ``kombu+SCHEME://`` (kombu),
    ``memory://NAME`` (inside this process), ``https://`` (through `rainbow web`, for submitters), ``PLUGIN+SCHEME://``
    for others. RabbitMQ may have several addresses: URLs separated by commas, or hosts within one. They are tried in
    turn. Returns at once; the connection is made in the background.

    Raises:
        InvalidSettings: A URL without a scheme, or several addresses for another broker.
        UnknownPlugin: No plugin serves the scheme.
    """
    options = replace(options, url=usual(options.url))
    check_socket(options.url)
    schemes = [split(url, "broker").scheme for url in addresses(options.url, "broker")]
    names = {_SCHEMES.get(scheme) or scheme.partition("+")[0] for scheme in schemes}
    if {"sentinel", "redis+sentinel", "rediss+sentinel"} & set(schemes):
        raise InvalidSettings("Redis Sentinel serves the store (store.url), not the broker: use amqp:// or redis://")
    name = names.pop()
    if names or (len(schemes) > 1 and name != "rabbitmq"):
        raise InvalidSettings("only RabbitMQ (amqp:// and amqps://) may have several broker URLs")
    if not name:
        raise InvalidSettings(f"broker URL {redact(options.url)!r} has no scheme: use amqp://USER@HOST/VHOST")
    return cast(Broker, plugins.load("rainbow.brokers", name)(options))


def declare(broker: Broker, topology: Topology) -> None:
    """Declare `topology`, and work with queues that have other limits than wanted: that is logged.

    Raises TopologyMismatch for other differences.
    """
    try:
        broker.declare(topology)
    except TopologyMismatch as exc:
        if not exc.tolerable:
            raise
        log.warning("%s", exc, extra={"action": "broker.limits-differ"})


__all__ = ["Broker", "ConnectOptions", "Tls", "connect", "declare", "redact"]
