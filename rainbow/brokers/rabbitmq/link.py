"""One AMQP connection that comes back by itself: login, reconnecting with jitter, blocked, renewing the secret."""

from __future__ import annotations

import logging
import re
import ssl
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote
from weakref import WeakSet

import pika

from rainbow.backoff import Backoff
from rainbow.brokers.rabbitmq.loop import IoThread
from rainbow.brokers.rabbitmq.wire import Connection
from rainbow.errors import BadCredentials, BrokerUnavailable, Denied, InvalidSettings, RainbowError
from rainbow.urls import split

if TYPE_CHECKING:
    from rainbow.brokers import ConnectOptions

log = logging.getLogger(__name__)

#: How often a `password` callable is asked whether it has a new secret, in seconds: tokens of 20 s and more, which are
#: renewed after two thirds of their time, never run out.
RENEW_EVERY = 3.0


class Parameters:
    """Connection parameters from the options, with the user and password of the moment.

    Raises InvalidSettings at once for a URL or TLS files that cannot work.
    """

    def __init__(self, options: ConnectOptions) -> None:
        parts = split(options.url, "broker")
        port = parts.port
        if parts.scheme not in ("amqp", "amqps") or not parts.hostname:
            raise InvalidSettings("a RabbitMQ URL looks like amqp://USER@HOST:PORT/VHOST or amqps://…")
        if parts.query or parts.fragment:
            raise InvalidSettings("a RabbitMQ URL takes no options after '?': they are settings of their own")
        tls = parts.scheme == "amqps"
        if options.tls is not None and not tls:
            raise InvalidSettings("TLS files are given, but the broker URL says amqp://: use amqps://")
        self.host = parts.hostname
        self.port = port or (5671 if tls else 5672)
        self.vhost = unquote(parts.path[1:]) or "/"
        self.user = options.user or unquote(parts.username or "guest")
        self._fixed = unquote(parts.password or "guest")
        self._options = options
        self._context = _tls_context(options) if tls else None

    @property
    def address(self) -> str:
        """For logs and errors."""
        return f"{self.host}:{self.port}{'' if self.vhost.startswith('/') else '/'}{self.vhost}"

    def secret(self) -> str:
        return self._options.password() if self._options.password is not None else self._fixed

    def build(self, role: str, secret: str) -> pika.ConnectionParameters:
        o = self._options
        return pika.ConnectionParameters(
            host=self.host,
            port=self.port,
            virtual_host=self.vhost,
            credentials=pika.PlainCredentials(self.user, secret),
            ssl_options=None if self._context is None else pika.SSLOptions(self._context, self.host),
            heartbeat=max(1, round(o.heartbeat)),
            connection_attempts=1,
            socket_timeout=o.connect_timeout,
            stack_timeout=o.connect_timeout,
            client_properties={"connection_name": f"{o.name}.{role}", "product": "rainbow"},
        )


def _tls_context(options: ConnectOptions) -> ssl.SSLContext:
    files = options.tls
    try:
        context = ssl.create_default_context(cafile=files.ca if files else None)
        if files is not None and files.cert is not None:
            context.load_cert_chain(files.cert, files.key)
    except (OSError, ssl.SSLError) as exc:
        raise InvalidSettings(f"a TLS file of the broker cannot be used: {exc}") from exc
    return context


class LinkUser(Protocol):
    """What uses a link: told, in the I/O thread, when there is a connection and when it is gone."""

    def link_up(self, connection: Connection) -> None: ...

    def link_down(self, error: RainbowError) -> None: ...


class Link:
    """One connection, kept up. All methods but the properties are called in the I/O thread."""

    def __init__(
        self,
        io: IoThread,
        options: ConnectOptions,
        parameters: Parameters,
        role: str,
        on_refused: Callable[[BadCredentials], None],
        on_blocked: Callable[[str | None], None],
    ) -> None:
        self._io = io
        self._options = options
        self._parameters = parameters
        self._role = role
        self._on_refused = on_refused
        self._on_blocked = on_blocked
        self._users: list[LinkUser] = []
        self._backoff = Backoff(first=0.2, most=15.0)
        self._connection: Connection | None = None
        self._made: WeakSet[Connection] = WeakSet()
        io.at_end.append(self._cut)
        self._attempt = 0
        self._started = False
        self._ending = False
        self._ended: Callable[[], None] | None = None
        self._watchdog: Any = None
        self._retry: Any = None
        self._renewal: Any = None
        self._secret: str | None = None
        self._warned = 0.0
        self.up = False
        self.reconnects = 0
        self.last_error: RainbowError | None = None

    @property
    def started(self) -> bool:
        return self._started

    # -- users -------------------------------------------------------------------------------------

    def join(self, user: LinkUser) -> None:
        self._users.append(user)
        if self.up and self._connection is not None:
            user.link_up(self._connection)

    def leave(self, user: LinkUser) -> None:
        if user in self._users:
            self._users.remove(user)

    # -- connecting --------------------------------------------------------------------------------

    def start(self) -> None:
        if not self._started:
            self._started = True
            self._connect()

    def _connect(self) -> None:
        self._retry = None
        if self._ending:
            return
        self._attempt += 1
        attempt = self._attempt
        try:
            self._secret = self._parameters.secret()
            parameters = self._parameters.build(self._role, self._secret)
        except Denied as exc:
            self._refuse(BadCredentials(exc.message))
            return
        except Exception as exc:
            self._lost(attempt, BrokerUnavailable(f"no password for the broker: {type(exc).__name__}"))
            return
        # pika has time limits of its own for each step; this one holds whatever the broker does or does not answer.
        self._watchdog = self._io.later(self._options.connect_timeout + 2, lambda: self._give_up(attempt))
        connection = Connection(
            parameters,
            on_open_callback=lambda c: self._opened(attempt, c),
            on_open_error_callback=lambda c, exc: self._failed(attempt, c, exc),
            on_close_callback=lambda c, exc: self._failed(attempt, c, exc),
            custom_ioloop=self._io.loop,
        )
        connection.add_on_connection_blocked_callback(lambda _c, frame: self._blocked(attempt, frame.method.reason))
        connection.add_on_connection_unblocked_callback(lambda _c, _frame: self._blocked(attempt, None))
        self._connection = connection
        self._made.add(connection)

    def _opened(self, attempt: int, connection: Connection) -> None:
        if attempt != self._attempt or self._ending:
            _abandon(connection)
            return
        self._io.cancel(self._watchdog)
        self._watchdog = None
        if attempt > 1:
            self.reconnects += 1
        self.up = True
        self.last_error = None
        self._warned = 0.0
        self._backoff.reset()
        log.info(
            "connected to the broker at %s (%s)",
            self._parameters.address,
            self._role,
            extra={"action": "broker.connected", "role": self._role, "reconnects": self.reconnects},
        )
        if self._options.password is not None and self._renewal is None:
            self._renewal = self._io.later(RENEW_EVERY, self._renew)
        for user in list(self._users):
            user.link_up(connection)

    def _failed(self, attempt: int, connection: Connection, error: BaseException) -> None:
        if attempt != self._attempt:
            return
        code, text = connection.refusal or (0, "")
        if self._ending:
            self._finish()
        elif code == 403 or (code == 530 and "refused" in text):
            # Login refused, or no right to the vhost (amqp 0-9-1 has no other code for that): not to be retried.
            self._refuse(
                BadCredentials(
                    f"the broker at {self._parameters.address} refused user {self._parameters.user!r}: "
                    f"{_plain(text)}; check the user, its password or token, and its rights to the vhost"
                )
            )
        else:
            self._lost(
                attempt, BrokerUnavailable(f"broker at {self._parameters.address}: {_reason(error, code, text)}")
            )

    def _give_up(self, attempt: int) -> None:
        """Nothing came of connecting in time: leave the half-open connection to itself and start over."""
        if attempt == self._attempt and not self.up and self._connection is not None:
            connection = self._connection
            limit = self._options.connect_timeout
            self._lost(attempt, BrokerUnavailable(f"broker at {self._parameters.address}: no login within {limit:g} s"))
            _abandon(connection)

    def _lost(self, attempt: int, error: RainbowError) -> None:
        self._io.cancel(self._watchdog)
        self._watchdog = None
        self._attempt += 1  # what the old connection still says is not listened to
        was_up, self.up = self.up, False
        self._connection = None
        self.last_error = error
        self._on_blocked(None)
        for user in list(self._users):
            user.link_down(error)
        delay = self._backoff.next()
        now = time.monotonic()
        if was_up or now - self._warned >= 60:
            self._warned = now
            log.warning(
                "%s (%s); trying again until it works",
                error,
                self._role,
                extra={"action": "broker.lost", "role": self._role, "attempt": attempt},
            )
        self._retry = self._io.later(delay, self._connect)

    def _refuse(self, error: BadCredentials) -> None:
        self._io.cancel(self._watchdog)
        self._attempt += 1
        self.up = False
        self._connection = None
        self._ending = True
        self.last_error = error
        log.error("%s", error, extra={"action": "broker.refused", "role": self._role})
        for user in list(self._users):
            user.link_down(error)
        self._on_refused(error)
        if self._ended is not None:
            self._finish()

    def _blocked(self, attempt: int, reason: str | None) -> None:
        if attempt == self._attempt:
            log.warning(
                "the broker takes no messages: %s" if reason is not None else "the broker takes messages again%s",
                reason or "",
                extra={"action": "broker.blocked" if reason is not None else "broker.unblocked", "role": self._role},
            )
            self._on_blocked(reason)

    # -- keeping up --------------------------------------------------------------------------------

    def _renew(self) -> None:
        self._renewal = None
        if self._ending:
            return
        self.refresh()
        self._renewal = self._io.later(RENEW_EVERY, self._renew)

    def refresh(self) -> None:
        """Give the broker the secret of now, if it is another one (``connection.update-secret``)."""
        if not self.up or self._connection is None or not self._connection.is_open:
            return
        try:
            secret = self._parameters.secret()
        except Exception as exc:
            log.warning(
                "no new password for the broker: %s",
                type(exc).__name__,
                extra={"action": "broker.secret_failed", "role": self._role},
            )
            return
        if secret == self._secret:
            return
        self._secret = secret
        self._connection.update_secret(
            secret,
            "renewed",
            lambda _frame: log.info(
                "renewed the secret of the broker connection",
                extra={"action": "broker.secret_renewed", "role": self._role},
            ),
        )

    def drop(self, why: str) -> None:
        """Give the connection up and make a new one."""
        connection = self._connection
        if self.up and connection is not None:
            self._lost(self._attempt, BrokerUnavailable(f"broker at {self._parameters.address}: {why}"))
            _abandon(connection)

    def crash(self, exc: Exception) -> None:
        """The event loop failed while it may have been in this connection: replace it."""
        if self._started and not self._ending and self._retry is None:
            connection = self._connection
            self._lost(self._attempt, BrokerUnavailable(f"error in the broker connection: {type(exc).__name__}"))
            if connection is not None:
                _abandon(connection)

    # -- ending ------------------------------------------------------------------------------------

    def end(self, ended: Callable[[], None]) -> None:
        """Close for good; `ended()` is called when that is done."""
        self._ended = ended
        for handle in (self._retry, self._renewal):
            self._io.cancel(handle)
        if self._ending or self._connection is None or self._connection.is_closed:
            self._ending = True
            self._finish()
            return
        self._ending = True
        if self._connection.is_closing:
            return
        try:
            self._connection.close(200, "goodbye")
        except Exception as exc:  # pika raises in states it cannot close from
            log.debug("closing the connection: %r", exc)
            self._finish()

    def _cut(self) -> None:
        """Leave no socket behind: not of the connection now, nor of one given up that the broker has not answered."""
        for connection in list(self._made):
            connection.cut()

    def _finish(self) -> None:
        self._io.cancel(self._watchdog)
        self.up = False
        self._connection = None
        ended, self._ended = self._ended, None
        if ended is not None:
            ended()


def _abandon(connection: Connection) -> None:
    """Close a connection nobody waits for, in whatever state it is."""
    try:
        if connection.is_open:
            connection.close(200, "replaced")
        elif not connection.is_closed and not connection.is_closing:
            connection.close(320, "given up")
    except Exception as exc:
        log.debug("abandoning a connection: %r", exc)


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _reason(error: BaseException, code: int, text: str) -> str:
    """One plain line out of pika's nested errors."""
    if code:
        return f"closed by the broker: {code} {_plain(text)}"
    seen: list[BaseException] = [error]
    while True:
        last = seen[-1]
        inner = getattr(last, "exceptions", None) or getattr(last, "exception", None) or last.args
        nested = inner[-1] if isinstance(inner, tuple) and inner else inner
        if not isinstance(nested, BaseException) or nested in seen:
            break
        seen.append(nested)
    if isinstance(last, OSError) and last.strerror:
        return last.strerror
    return _plain(str(last)) or type(last).__name__
