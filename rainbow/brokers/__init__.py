"""Broker plugins (entry points `rainbow.brokers`), chosen by URL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from rainbow import plugins
from rainbow.brokers.base import Broker
from rainbow.errors import InvalidSettings
from rainbow.urls import redact, split

_SCHEMES = {
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
    """A broker for ``options.url``: ``amqp(s)://`` (RabbitMQ through pika), ``redis(s)://`` or ``kombu+SCHEME://``
    (whatever kombu speaks), ``memory://NAME`` (inside this process), or ``PLUGIN+SCHEME://`` for others.

    Returns at once; the connection is made in the background. Raises InvalidSettings, UnknownPlugin.
    """
    scheme = split(options.url, "broker").scheme
    name = _SCHEMES.get(scheme) or scheme.partition("+")[0]
    if not name:
        raise InvalidSettings(f"broker URL {redact(options.url)!r} has no scheme: use amqp://USER@HOST/VHOST")
    return cast(Broker, plugins.load("rainbow.brokers", name)(options))


__all__ = ["Broker", "ConnectOptions", "Tls", "connect", "redact"]
