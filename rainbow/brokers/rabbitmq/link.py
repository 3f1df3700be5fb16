"""One AMQP connection that comes back by itself: login at one of several servers, reconnecting with jitter, blocked,
renewing the secret."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

from rainbow.backoff import Backoff
from rainbow.brokers.rabbitmq.endpoints import Parameters, Rounds, Target
from rainbow.brokers.rabbitmq.loop import IoThread
from rainbow.brokers.rabbitmq.wire import Connection
from rainbow.errors import BadCredentials, BrokerUnavailable, Denied, RainbowError

if TYPE_CHECKING:
    from rainbow.brokers import ConnectOptions

log = logging.getLogger(__name__)

#: How often a `password` callable is asked whether it has a new secret, in seconds: tokens of 20 s and more, which are
#: renewed after two thirds of their time, never run out.
RENEW_EVERY = 3.0


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
        self._rounds = Rounds(io, parameters, options.connect_timeout)
        self._target: Target | None = None
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
        self._known = False
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
        self._rounds.next(lambda target: self._reach(attempt, target))

    def _reach(self, attempt: int, target: Target | None) -> None:
        if attempt != self._attempt or self._ending:
            return
        self._target = target
        if target is None:
            self._missed(attempt, "")
            return
        try:
            self._secret = self._parameters.secret(target.endpoint)
            parameters = self._parameters.build(self._role, target, self._secret)
        except Denied as exc:
            self._refuse(BadCredentials(exc.message))
            return
        except Exception as exc:
            self._rounds.over()
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
        if self._known:
            self.reconnects += 1
        self._known = self._parameters.let_in = True
        self._rounds.over()
        self.up = True
        self.last_error = None
        self._warned = 0.0
        self._backoff.reset()
        log.info(
            "connected to the broker at %s (%s)",
            self._address,
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
        elif self._parameters.let_in and code in (403, 530):
            self._missed(attempt, self._parameters.refused(self._role, self._address, _plain(text)))
        elif code == 403 or (code == 530 and "refused" in text and "limit" not in text):
            # Login refused, or no right to the vhost (amqp 0-9-1 has no other code for that): not to be retried.
            user = self._target.endpoint.user if self._target is not None else "?"
            self._refuse(
                BadCredentials(
                    f"the broker at {self._address} refused user {user!r}: "
                    f"{_plain(text)}; check the user, its password or token, and its rights to the vhost"
                )
            )
        else:
            self._missed(attempt, _reason(error, code, text) + ("" if self.up or code else self._parameters.hint))

    def _give_up(self, attempt: int) -> None:
        """Nothing came of connecting in time: leave the half-open connection to itself and go on."""
        if attempt == self._attempt and not self.up and self._connection is not None:
            connection = self._connection
            self._missed(attempt, f"no login within {self._options.connect_timeout:g} s")
            _abandon(connection)

    @property
    def _address(self) -> str:
        return self._parameters.address if self._target is None else self._target.address

    def _missed(self, attempt: int, why: str) -> None:
        """The connection to the target is lost, or was never made: have another, at once where one is left to try."""
        if self.up:
            self._rounds.over(self._target)
            self._lost(attempt, BrokerUnavailable(f"broker at {self._address}: {why}"))
            return
        reasons = self._rounds.failed(self._target, why)
        if reasons is not None:
            self._lost(attempt, BrokerUnavailable(reasons))
            return
        self._io.cancel(self._watchdog)
        self._watchdog = None
        self._attempt += 1
        self._connection = None
        self._retry = self._io.later(0, self._connect)

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
            assert self._target is not None
            secret = self._parameters.secret(self._target.endpoint)
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
            self._missed(self._attempt, why)
            _abandon(connection)

    def crash(self, exc: Exception) -> None:
        """The event loop failed while it may have been in this connection: replace it."""
        if self._started and not self._ending and self._retry is None:
            connection = self._connection
            self._rounds.over(self._target)
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
