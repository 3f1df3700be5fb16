"""A RabbitMQ of our own that takes tokens as passwords, as `rainbow broker setup --oauth-config` sets it up."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
from pika.exceptions import ChannelClosedByBroker

from rainbow.security import oauth, scopes, tokens
from rainbow.security.tokens import KeyRing, Role
from servers import RabbitServer, start_rabbit

PLUGIN = "rabbitmq_auth_backend_oauth2"


@dataclass(frozen=True)
class Door:
    """A RabbitMQ that enforces the scopes of tokens signed with `ring`, and a vhost on it."""

    server: RabbitServer
    ring: KeyRing
    vhost: str

    @property
    def url(self) -> str:
        """With the account that has all rights: RabbitMQ's own, not a token."""
        return self.server.vhost_url(self.vhost)

    @property
    def open_url(self) -> str:
        """Without user and password: a token stands in for them."""
        return f"amqp://{self.server.host}:{self.server.port}/{self.vhost}"

    def token(self, role: Role, *clusters: str, sub: str | None = None, ttl: float = 600.0) -> str:
        names = clusters or ("*",)
        return tokens.issue(
            self.ring,
            sub=sub or f"{role}-of-test",
            role=role,
            clusters=names,
            ttl=ttl,
            scope=scopes.for_token(role, names, self.vhost),
        )


def start_with_tokens(folder: Path, ring: KeyRing) -> RabbitServer:
    """A private RabbitMQ set up with what `rainbow broker setup --oauth-config` writes."""
    advanced = oauth.render(ring)[oauth.ADVANCED]
    return start_rabbit(folder, plugins=PLUGIN, advanced=advanced)


# -- a hand-written client ----------------------------------------------------------------------------------

Act = Callable[[BlockingChannel], Any]


def consume(queue: str) -> Act:
    return lambda ch: ch.basic_consume(queue, lambda *_: None, auto_ack=False)


def get(queue: str) -> Act:
    return lambda ch: ch.basic_get(queue)


def publish(exchange: str, key: str) -> Act:
    def act(ch: BlockingChannel) -> None:
        ch.confirm_delivery()
        ch.basic_publish(exchange, key, b"hand-written", mandatory=bool(exchange))

    return act


def log_in(door: Door, token: str, user: str = "whoever") -> BlockingConnection:
    return BlockingConnection(
        pika.ConnectionParameters(
            door.server.host, door.server.port, door.vhost, pika.PlainCredentials(user, token), socket_timeout=10
        )
    )


def outcome(door: Door, token: str, act: Act) -> int:
    """0 when the broker let it happen, else the code with which it closed the channel."""
    with closing(log_in(door, token)) as connection:
        channel = connection.channel()
        try:
            act(channel)
        except ChannelClosedByBroker as exc:
            return int(exc.reply_code)
        return 0
