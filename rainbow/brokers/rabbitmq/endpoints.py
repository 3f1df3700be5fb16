"""Where the broker may be: the URLs of `broker.url`, every address of their host names, and whose turn it is.

A round tries each address once, the URLs in random order, so that many clients spread over the servers. Host names
are looked up anew for each round, in a thread of its own: the I/O thread never waits for a name server.
"""

from __future__ import annotations

import ipaddress
import logging
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote

import pika

from rainbow.brokers.rabbitmq.loop import IoThread
from rainbow.errors import InvalidSettings
from rainbow.urls import addresses, split

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from rainbow.brokers import ConnectOptions

#: Seconds a TCP connection to one of several addresses may take at least.
LEAST_PATIENCE = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Endpoint:
    """One URL: a host, and how to log in there. `tls` is None without TLS."""

    host: str
    port: int
    vhost: str
    user: str
    password: str
    tls: ssl.SSLContext | None

    @property
    def address(self) -> str:
        """For logs and errors."""
        return f"{_bracketed(self.host)}:{self.port}{'' if self.vhost.startswith('/') else '/'}{self.vhost}"


@dataclass(frozen=True, slots=True)
class Target:
    """One address of an endpoint's host. Several at once share the time for a TCP connection."""

    endpoint: Endpoint
    ip: str
    patience: float

    @property
    def address(self) -> str:
        shown = self.endpoint.address
        return shown if self.ip == self.endpoint.host else f"{shown} ({self.ip})"


_NO_CERTIFICATE = "no client certificate was given: set broker.tls.cert and broker.tls.key if the broker asks for one"


class Parameters:
    """Connection parameters from the options, with the user and password of the moment.

    Raises InvalidSettings at once for a URL or TLS files that cannot work.

    Attributes:
        hint: What may be wrong when a broker ends a login without a reason; empty if nothing is known.
    """

    def __init__(self, options: ConnectOptions) -> None:
        self._options = options
        #: Whether the broker ever let us in, on any connection: then a refusal is retried.
        self.let_in = False
        self._said = float("-inf")
        parts = [split(url, "broker") for url in addresses(options.url, "broker")]
        encrypted = [p.scheme == "amqps" for p in parts]
        if options.tls is not None and not all(encrypted):
            raise InvalidSettings("TLS files are given, but the broker URL says amqp://: use amqps://")
        context = _tls_context(options) if any(encrypted) else None
        # With TLS 1.3 a client without a certificate may see its connection closed without a reason.
        bare = context is not None and (options.tls is None or options.tls.cert is None)
        self.hint = f" ({_NO_CERTIFICATE})" if bare else ""
        self.endpoints = [self._endpoint(p, context) for p in parts]
        if len({e.vhost for e in self.endpoints}) > 1:
            raise InvalidSettings("the broker URLs name several virtual hosts: they must be one cluster's, and agree")

    def _endpoint(self, parts: SplitResult, context: ssl.SSLContext | None) -> Endpoint:
        if parts.scheme not in ("amqp", "amqps") or not parts.hostname:
            raise InvalidSettings("a RabbitMQ URL looks like amqp://USER@HOST:PORT/VHOST or amqps://…")
        if parts.query or parts.fragment:
            raise InvalidSettings("a RabbitMQ URL takes no options after '?': they are settings of their own")
        tls = context if parts.scheme == "amqps" else None
        return Endpoint(
            host=parts.hostname,
            port=parts.port or (5671 if tls else 5672),
            vhost=unquote(parts.path[1:]) or "/",
            user=self._options.user or unquote(parts.username or "guest"),
            password=unquote(parts.password or "guest"),
            tls=tls,
        )

    @property
    def address(self) -> str:
        """All of them, for logs and errors."""
        return ", ".join(e.address for e in self.endpoints)

    def refused(self, role: str, address: str, reason: str) -> str:
        """Report, once a minute, that the broker refuses what it let in before; returns why, for the next try.

        A limit, a server that restarts, or rights that are being changed: it may come back.
        """
        why = f"lets us in no more: {reason}"
        now = time.monotonic()
        if now - self._said >= 60:
            self._said = now
            log.error(
                "the broker at %s %s; trying again", address, why, extra={"action": "broker.refused", "role": role}
            )
        return why

    def secret(self, endpoint: Endpoint) -> str:
        return self._options.password() if self._options.password is not None else endpoint.password

    def build(self, role: str, target: Target, secret: str) -> pika.ConnectionParameters:
        o, endpoint = self._options, target.endpoint
        return pika.ConnectionParameters(
            host=target.ip,
            port=endpoint.port,
            virtual_host=endpoint.vhost,
            credentials=pika.PlainCredentials(endpoint.user, secret),
            ssl_options=None if endpoint.tls is None else pika.SSLOptions(endpoint.tls, endpoint.host),
            heartbeat=max(1, round(o.heartbeat)),
            connection_attempts=1,
            socket_timeout=target.patience,
            stack_timeout=o.connect_timeout,
            client_properties={"connection_name": f"{o.name}.{role}", "product": "rainbow"},
        )


class Rounds:
    """Gives the targets of one round after the other. Called in the I/O thread."""

    def __init__(self, io: IoThread, parameters: Parameters, connect_timeout: float) -> None:
        self._io = io
        self._parameters = parameters
        self._timeout = connect_timeout
        self._left: list[Target] = []
        self._failed: dict[str, str] = {}
        #: What was lost last, and is tried last.
        self._avoid: tuple[Endpoint, str] | None = None

    def next(self, then: Callable[[Target | None], None]) -> None:
        """Call `then` with the next target of the round, or of a new one; with None when no host name is known."""
        if self._left:
            then(self._left.pop(0))
            return
        self._failed.clear()
        endpoints = random.sample(self._parameters.endpoints, len(self._parameters.endpoints))
        if all(_literal(e.host) for e in endpoints):
            self._begin([(e, e.host) for e in endpoints], {}, then)
            return

        def look_up() -> None:
            found, unknown = _resolve(endpoints)
            self._io.call(lambda: self._begin(found, unknown, then))

        threading.Thread(target=look_up, name="broker-dns", daemon=True).start()

    def _begin(
        self,
        found: Sequence[tuple[Endpoint, str]],
        unknown: dict[str, str],
        then: Callable[[Target | None], None],
    ) -> None:
        self._failed.update(unknown)
        patience = self._timeout if len(found) < 2 else max(LEAST_PATIENCE, self._timeout / len(found))
        ordered = sorted(found, key=lambda place: place == self._avoid)
        self._left = [Target(endpoint, ip, min(patience, self._timeout)) for endpoint, ip in ordered]
        then(self._left.pop(0) if self._left else None)

    def failed(self, target: Target | None, why: str) -> str | None:
        """Note why `target` failed. The reasons of all once the round is over, as one line; None before."""
        if target is not None:
            self._failed[target.address] = why
        if self._left:
            return None
        if len(self._failed) == 1:
            return "broker at {}: {}".format(*next(iter(self._failed.items())))
        listed = "; ".join(f"{address}: {reason}" for address, reason in self._failed.items())
        return f"no broker of {len(self._failed)} answers: {listed}"

    def over(self, lost: Target | None = None) -> None:
        """Begin a new round with the next target; `lost` has the last turn in it."""
        self._left.clear()
        self._avoid = None if lost is None else (lost.endpoint, lost.ip)


def _resolve(endpoints: Sequence[Endpoint]) -> tuple[list[tuple[Endpoint, str]], dict[str, str]]:
    """Every address of the hosts, in the resolver's order, and why the others have none."""
    found: dict[tuple[Endpoint, str], None] = {}
    unknown: dict[str, str] = {}
    for endpoint in endpoints:
        try:
            listed = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            unknown[endpoint.address] = f"host {endpoint.host!r} is not known"
        else:
            found |= {(endpoint, str(entry[4][0])): None for entry in listed}
    return list(found), unknown


def _literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _tls_context(options: ConnectOptions) -> ssl.SSLContext:
    files = options.tls
    try:
        context = ssl.create_default_context(cafile=files.ca if files else None)
        if files is not None and files.cert is not None:
            context.load_cert_chain(files.cert, files.key)
    except (OSError, ssl.SSLError) as exc:
        raise InvalidSettings(f"a TLS file of the broker cannot be used: {exc}") from exc
    return context
