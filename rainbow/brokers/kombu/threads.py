"""A thread that owns a kombu connection and makes a new session when the connection is lost."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Protocol

from rainbow.backoff import Backoff
from rainbow.brokers.base import Delivery
from rainbow.brokers.kombu.session import Session
from rainbow.errors import (
    BadCredentials,
    Unavailable,
)

log = logging.getLogger(__name__)

TICK = 1.0


class Opener(Protocol):
    """Makes a session. Raises BadCredentials, or whatever kombu raises when there is no connection."""

    #: What kombu raises for a lost connection.
    errors: tuple[type[BaseException], ...]

    def open(self, role: str) -> Session: ...


class SessionThread:
    """A thread with a session. Subclasses say what one turn of work is."""

    def __init__(self, opener: Opener, name: str, role: str) -> None:
        self._opener = opener
        self._role = role
        self._wake = threading.Condition()
        self._ending = False
        self._stop = threading.Event()
        self._backoff = Backoff(first=0.1, most=10.0)
        self._tick_at = 0.0
        self.session: Session | None = None
        self.refused: BadCredentials | None = None
        self.reconnects = -1
        self.down: str | None = None
        self.thread = threading.Thread(target=self._run, name=f"{name}-{role}", daemon=True)

    def start(self) -> None:
        self.thread.start()

    @property
    def here(self) -> bool:
        return threading.get_ident() == self.thread.ident

    def end(self) -> None:
        """Finish what was handed over, then end the thread."""
        with self._wake:
            self._ending = True
            self._wake.notify_all()

    def _run(self) -> None:
        errors: tuple[type[BaseException], ...] = (*self._opener.errors, Unavailable)
        try:
            while not self._finished():
                try:
                    if self.session is None:
                        self.session = self._opener.open(self._role)
                        self._opened(self.session)
                    self._turn(self.session)
                    self._backoff.reset()
                except BadCredentials as exc:
                    self.refused = exc
                    log.error("%s", exc, extra={"action": "broker.refused", "role": self._role})  # noqa: TRY400
                    return
                except errors as exc:
                    self._lost(exc)
        except Exception:
            log.exception("a broker thread failed", extra={"action": "broker.thread_failed", "role": self._role})
            self.down = "a thread of the broker plugin failed"
        finally:
            self._close_session()
            self._ended()

    def _opened(self, session: Session) -> None:
        self.reconnects += 1
        self.down = None
        self._tick_at = 0.0

    def _lost(self, exc: BaseException) -> None:
        if self.session is not None or self.down is None:
            log.warning(
                "lost the broker (%s): %s; trying again until it works",
                self._role,
                short(exc),
                extra={"action": "broker.lost", "role": self._role},
            )
        self.down = short(exc)
        self._close_session()
        self._session_gone()
        self._stop.wait(self._backoff.next())

    def _close_session(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            try:
                session.close()
            except Exception as exc:  # it is being thrown away
                log.debug("closing a session: %r", exc)

    def _maybe_tick(self, session: Session, held: Sequence[Delivery]) -> None:
        now = time.monotonic()
        if now >= self._tick_at:
            self._tick_at = now + TICK
            session.tick(held)

    # -- for subclasses

    def _finished(self) -> bool:
        raise NotImplementedError

    def _turn(self, session: Session) -> None:
        raise NotImplementedError

    def _session_gone(self) -> None:
        """A session was lost."""

    def _ended(self) -> None:
        """The thread ends."""


def short(exc: BaseException) -> str:
    """The message of an error on one line of at most 200 characters."""
    return " ".join(str(exc).split())[:200] or type(exc).__name__
