"""The Broker for kombu transports. On RabbitMQ, prefer ``amqp://`` (the rabbitmq plugin): it is many times faster.

On Redis a message is taken and noted as taken in one step, so a process may die at any time; what it held comes
back after `visibility_timeout` seconds (60, or ``?visibility_timeout=`` in the URL). A process that lives keeps
what it holds for as long as it takes. ``?prefix=`` is put before all keys.

Unlike RabbitMQ's: more urgent messages come first (four classes of priority), a delivery limit is not kept, and
time to live needs a process that has declared something (the scheduler) to be seen to on time.
"""

from __future__ import annotations

import re
import ssl
import threading
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from kombu.connection import Connection
from kombu.exceptions import OperationalError

from rainbow.brokers.base import REPLIES, Message, QueueStats, Receipt, Status, check_prefetch
from rainbow.brokers.kombu.consumer import KombuConsumer
from rainbow.brokers.kombu.manager import Manager
from rainbow.brokers.kombu.session import Session
from rainbow.brokers.kombu.virtual import PRIVATE
from rainbow.errors import BadCredentials, BrokerUnavailable, InvalidSettings, TooLarge
from rainbow.topology import Topology

if TYPE_CHECKING:
    from rainbow.brokers import ConnectOptions

#: Seconds after which what a dead consumer held comes back (Redis).
VISIBILITY_TIMEOUT = 60.0
#: Longest pause between looks at an empty queue, in seconds.
IDLE = 0.05
_PRIORITY_STEPS = [0, 3, 6, 9]


class _Opener:
    """Makes sessions from the options. Raises InvalidSettings at once for a URL that cannot work."""

    def __init__(self, options: ConnectOptions) -> None:
        self._options = options
        self.url, query = _split(options.url)
        self.scheme = urlsplit(self.url).scheme
        self.amqp = self.scheme in ("amqp", "amqps", "pyamqp")
        self.redis = self.scheme in ("redis", "rediss", "redis+socket", "valkey", "valkeys")
        if self.scheme == "redis+socket":
            # kombu takes the number of the database from the query here: the path is the socket's.
            self.url = f"{self.scheme}://{urlsplit(self.url).path}?virtual_host={query.pop('virtual_host', '0')}"
        self.prefix = query.pop("prefix", "")
        try:
            self.visibility = float(query.pop("visibility_timeout", VISIBILITY_TIMEOUT))
        except ValueError as exc:
            raise InvalidSettings("visibility_timeout in the broker URL is a number of seconds") from exc
        if query:
            raise InvalidSettings(f"unknown in the broker URL: {', '.join(sorted(query))}")
        if options.tls is not None and not self.url.startswith(("rediss:", "amqps:", "valkeys:")):
            raise InvalidSettings(f"TLS files are given, but the broker URL says {self.scheme}://")
        try:
            errors = self._connection().connection_errors + self._connection().channel_errors
        except (ImportError, KeyError) as exc:
            raise InvalidSettings(f"kombu cannot speak {self.scheme}://: {exc}") from exc
        self.errors: tuple[type[BaseException], ...] = (*errors, OperationalError, OSError)

    def _connection(self) -> Any:
        o = self._options
        options: dict[str, Any] = {}
        if self.amqp:
            options = {"confirm_publish": True, "client_properties": {"connection_name": o.name}}
        elif self.redis:
            options = {
                "global_keyprefix": self.prefix,
                "visibility_timeout": self.visibility,
                "priority_steps": _PRIORITY_STEPS,
                "socket_timeout": o.heartbeat,
                "socket_connect_timeout": o.connect_timeout,
                "socket_keepalive": True,
                "client_name": re.sub(r"[^!-~]", "-", o.name),  # CLIENT SETNAME takes no blanks
            }
        extra: dict[str, Any] = {}
        if o.user is not None:
            extra["userid"] = o.user
        if o.password is not None:
            extra["password"] = o.password()
        secure = self.scheme in ("rediss", "amqps", "valkeys")
        return Connection(  # type: ignore[no-untyped-call]
            self.url,
            connect_timeout=o.connect_timeout,
            heartbeat=o.heartbeat if self.amqp else 0,
            ssl=self._tls() if secure else False,
            transport_options=options,
            **extra,
        )

    def _tls(self) -> dict[str, Any]:
        files = self._options.tls
        names = ("ca_certs", "certfile", "keyfile")
        paths = (files.ca, files.cert, files.key) if files is not None else (None, None, None)
        given = {name: path for name, path in zip(names, paths, strict=True) if path is not None}
        if self.redis:
            out: dict[str, Any] = {f"ssl_{name}": path for name, path in given.items()}
            return {**out, "ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": True}
        host = urlsplit(self.url).hostname
        return {**given, "cert_reqs": ssl.CERT_REQUIRED, "server_hostname": host}

    def open(self, role: str) -> Session:
        connection = self._connection()
        try:
            connection.connect()
            if self.amqp:
                from rainbow.brokers.kombu.native import AmqpSession

                return AmqpSession(connection)
            from rainbow.brokers.kombu.queues import LocalQueues, RedisQueues
            from rainbow.brokers.kombu.virtual import VirtualSession

            channel = connection.channel()
            queues = RedisQueues(channel) if self.redis else LocalQueues(channel, self.url)
            return VirtualSession(queues, channel, connection, idle=IDLE)
        except Exception as exc:
            connection.release()
            if _refused(exc):
                host = urlsplit(self.url).hostname
                raise BadCredentials(
                    f"the broker at {host} refused user {connection.userid or 'default'!r}: "
                    "check the user and its password or token"
                ) from exc
            raise


def _refused(exc: BaseException) -> bool:
    """Whether the broker does not know us: looked for by name, as these classes are in packages we do not need."""
    seen: BaseException | None = exc
    while seen is not None:
        name, text = type(seen).__name__, str(seen)
        if name in ("AuthenticationError", "AccessRefused") or text.startswith(("WRONGPASS", "NOAUTH")):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _split(url: str) -> tuple[str, dict[str, str]]:
    """The URL for kombu (without our ``kombu+`` and options), and our options."""
    parts = urlsplit(url.removeprefix("kombu+"))
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    plain = urlunsplit(parts._replace(query="", fragment=""))
    if parts.scheme == "memory":
        plain = f"memory://{unquote(parts.netloc)}"
    return plain, query


class KombuBroker:
    """See `rainbow.brokers.base.Broker` for what the methods promise."""

    def __init__(self, options: ConnectOptions) -> None:
        self._options = options
        self._opener = _Opener(options)
        self._lock = threading.Lock()
        self._closed = False
        self._consumers: list[KombuConsumer] = []
        self._manager = Manager(self._opener, options.name, options.max_in_flight, options.publish_timeout)
        self._manager.start()

    def declare(self, topology: Topology) -> None:
        self._ask(lambda session: session.declare(topology))
        self._manager.sweep_from_now_on()

    def delete(self, queues: Sequence[str]) -> None:
        self._ask(lambda session: session.delete(queues))

    def publish(self, messages: Sequence[Message]) -> Receipt:
        if self._manager.refused is not None:
            raise self._manager.refused
        receipt = Receipt(len(messages))
        limit = self._options.max_message_bytes
        pieces: list[tuple[int, Sequence[Message]]] = []
        start = 0
        for index, m in enumerate(messages):
            if len(m.body) > limit:
                receipt.settle(
                    index, TooLarge(f"message {m.message_id or ''} has {len(m.body)} bytes: the limit is {limit} bytes")
                )
                if index > start:
                    pieces.append((start, messages[start:index]))
                start = index + 1
        if start < len(messages):
            pieces.append((start, messages[start:]))
        self._manager.publish(receipt, pieces)
        return receipt

    def consume(self, queue: str, *, prefetch: int) -> KombuConsumer:
        check_prefetch(prefetch)
        private = queue == REPLIES
        if private:
            queue = f"{PRIVATE}{uuid.uuid4().hex}"
        with self._lock:
            self._check()
            consumer = KombuConsumer(self._opener, self._options.name, queue, prefetch, private=private)
            self._consumers = [c for c in self._consumers if c.thread.is_alive()] + [consumer]
            consumer.start()
        if private:
            # An answer must find its queue: it has one when this returns.
            consumer.wait_subscribed(self._options.connect_timeout)
        return consumer

    def stats(self, queue: str) -> QueueStats:
        found = self._ask(lambda session: session.stats(queue))
        assert isinstance(found, QueueStats)
        return found

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            consumers = list(self._consumers)
        for consumer in consumers:
            consumer.end()
        self._manager.end()
        for worker in (*consumers, self._manager):
            if not worker.here:
                worker.thread.join(self._options.publish_timeout)

    @property
    def status(self) -> Status:
        workers = [self._manager, *(c for c in self._consumers if c.thread.is_alive())]
        return Status(
            connected=not self._closed and all(w.session is not None for w in workers),
            reconnects=sum(max(0, w.reconnects) for w in workers),
        )

    def _ask(self, question: Any) -> Any:
        self._check()
        return self._manager.ask(question, self._options.connect_timeout + self._options.publish_timeout)

    def _check(self) -> None:
        if self._manager.refused is not None:
            raise self._manager.refused
        if self._closed:
            raise BrokerUnavailable("the broker connection is closed")
