"""The threads that own kombu connections: one that publishes and manages, one for each consumer.

Each works through what it is handed, in order, and makes a new session when its connection is lost: what was
handed over stays first in line, so nothing that was asked is forgotten.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rainbow.backoff import Backoff
from rainbow.brokers.base import CANCELLED_PAUSE, Delivery, Message, Receipt
from rainbow.brokers.kombu.session import Session
from rainbow.errors import (
    BadCredentials,
    BrokerUnavailable,
    NotFound,
    PublishFailed,
    RainbowError,
    Unavailable,
)

log = logging.getLogger(__name__)

TICK = 1.0
SWEEP = 0.5


class Opener(Protocol):
    """Makes a session. Raises BadCredentials, or whatever kombu raises when there is no connection."""

    #: What kombu raises for a lost connection.
    errors: tuple[type[BaseException], ...]

    def open(self, role: str) -> Session: ...


class _Worker:
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
                _short(exc),
                extra={"action": "broker.lost", "role": self._role},
            )
        self.down = _short(exc)
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


def _short(exc: BaseException) -> str:
    return " ".join(str(exc).split())[:200] or type(exc).__name__


@dataclass(slots=True, eq=False)
class _Publish:
    receipt: Receipt
    start: int
    messages: Sequence[Message]
    deadline: float
    next: int = 0


@dataclass(slots=True, eq=False)
class Ask:
    """A question to the managing thread, and its answer."""

    question: Callable[[Session], Any]
    done: threading.Event = field(default_factory=threading.Event)
    result: Any = None
    error: BaseException | None = None


class Manager(_Worker):
    """Publishes, declares, deletes, looks at queues; sweeps queues once this process has declared some."""

    def __init__(self, opener: Opener, name: str, max_in_flight: int, publish_timeout: float) -> None:
        super().__init__(opener, name, "publish")
        self._work: deque[_Publish | Ask] = deque()
        self._in_flight = 0
        self._max_in_flight = max_in_flight
        self._timeout = publish_timeout
        self._sweep_at: float | None = None
        self._sending = 0

    # -- any thread

    def publish(self, receipt: Receipt, pieces: Sequence[tuple[int, Sequence[Message]]]) -> None:
        """Queue messages; blocks while too many are in flight."""
        deadline = time.monotonic() + self._timeout
        for start, messages in pieces:
            at = 0
            while at < len(messages):
                with self._wake:
                    while self._in_flight >= self._max_in_flight and not self._over() and not self.here:
                        self._wake.wait(1.0)
                    if self.refused is not None:
                        raise self.refused
                    if self._over():
                        receipt.settle_all(PublishFailed("the broker connection is closed"))
                        return
                    count = min(len(messages) - at, max(1, self._max_in_flight - self._in_flight))
                    self._in_flight += count
                    self._work.append(_Publish(receipt, start + at, messages[at : at + count], deadline))
                    self._wake.notify_all()
                at += count

    def ask(self, question: Callable[[Session], Any], timeout: float) -> Any:
        ask = Ask(question)
        with self._wake:
            if self._over():
                raise self.refused or BrokerUnavailable("the broker connection is closed")
            self._work.append(ask)
            self._wake.notify_all()
        if not ask.done.wait(timeout):
            with self._wake:
                if ask in self._work:
                    self._work.remove(ask)
            raise BrokerUnavailable(f"the broker did not answer within {timeout:g} s: {self.down or 'no reason known'}")
        if ask.error is not None:
            raise ask.error
        return ask.result

    def sweep_from_now_on(self) -> None:
        if self._sweep_at is None:
            self._sweep_at = 0.0

    def _over(self) -> bool:
        return self._ending or not self.thread.is_alive()

    # -- its thread

    def _finished(self) -> bool:
        return self._ending and not self._work

    def _turn(self, session: Session) -> None:
        with self._wake:
            if not self._work and not self._ending:
                self._wake.wait(TICK if self._sweep_at is None else SWEEP)
        self._drop_late("not sent in time")
        while self._work:
            item = self._work[0]
            if isinstance(item, Ask):
                self._answer(session, item)
            else:
                self._send(session, item)
            with self._wake:
                if self._work and self._work[0] is item:
                    self._work.popleft()
            self._keep_up(session)
        self._keep_up(session)

    def _keep_up(self, session: Session) -> None:
        self._maybe_tick(session, ())
        now = time.monotonic()
        if self._sweep_at is not None and now >= self._sweep_at:
            session.sweep()
            self._sweep_at = time.monotonic() + SWEEP

    def _answer(self, session: Session, ask: Ask) -> None:
        try:
            ask.result = ask.question(session)
        except self._opener.errors as exc:
            raise BrokerUnavailable(_short(exc)) from exc
        except RainbowError as exc:
            ask.error = exc
        ask.done.set()

    def _send(self, session: Session, item: _Publish) -> None:
        while item.next < len(item.messages):
            chunk = item.messages[item.next : item.next + session.batch]
            self._sending = len(chunk)
            outcomes = session.publish(chunk)
            self._sending = 0
            for outcome in outcomes:
                self._settle(item, outcome)

    def _settle(self, item: _Publish, outcome: RainbowError | None) -> None:
        item.receipt.settle(item.start + item.next, outcome)
        item.next += 1
        with self._wake:
            self._in_flight -= 1
            if item.next == len(item.messages) or not self._in_flight % 100:
                self._wake.notify_all()

    def _session_gone(self) -> None:
        """What was on its way may or may not have arrived: its sender is told."""
        item = self._work[0] if self._work else None
        if isinstance(item, _Publish):
            while self._sending:
                self._sending -= 1
                self._settle(item, PublishFailed(f"not confirmed before the connection was lost: {self.down}"))
        self._drop_late(f"no connection: {self.down}")
        if self._ending:
            self._drop_all(PublishFailed(f"not sent before closing: {self.down}"))

    def _drop_late(self, why: str) -> None:
        now = time.monotonic()
        while self._work:
            item = self._work[0]
            if not isinstance(item, _Publish) or item.deadline > now:
                return
            while item.next < len(item.messages):
                self._settle(item, PublishFailed(f"not sent within {self._timeout:g} s: {why}"))
            with self._wake:
                self._work.popleft()

    def _drop_all(self, error: RainbowError) -> None:
        while self._work:
            item = self._work.popleft()
            if isinstance(item, Ask):
                item.error = self.refused or BrokerUnavailable(str(error))
                item.done.set()
            else:
                while item.next < len(item.messages):
                    self._settle(item, error)
        with self._wake:
            self._wake.notify_all()

    def _ended(self) -> None:
        self._drop_all(PublishFailed(f"the broker connection is closed: {self.refused or self.down or 'by its owner'}"))


class KombuConsumer(_Worker):
    """A Consumer in a thread of its own."""

    def __init__(self, opener: Opener, name: str, queue: str, prefetch: int, *, private: bool) -> None:
        super().__init__(opener, name, "consume")
        self.address = queue
        self._queue = queue
        self._prefetch = prefetch
        self._private = private
        self._buffer: deque[Delivery] = deque()
        self._held: dict[int, Delivery] = {}
        self._open: set[int] = set()
        self._left = False
        self._keeps = False
        self._settled: deque[tuple[str, list[Delivery]]] = deque()
        self._subscribed = False
        self._look_at = 0.0
        self._look = Backoff(first=0.1, most=5.0)
        self._pause = 0.0
        self._check_at = 0.0

    # -- its user's threads

    def take(self, limit: int, timeout: float) -> list[Delivery]:
        if self._ending and self.refused is None:
            time.sleep(min(timeout, CANCELLED_PAUSE))
            return []
        with self._wake:
            self._wake.wait_for(lambda: self._buffer or self._ending or self.refused, timeout)
            if self.refused is not None:
                raise self.refused
            if self._ending:
                return []
            return [self._buffer.popleft() for _ in range(min(limit, len(self._buffer)))]

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        self._settle("ack", deliveries)

    def reject(self, deliveries: Sequence[Delivery]) -> None:
        self._settle("reject", deliveries)

    def requeue(self, deliveries: Sequence[Delivery]) -> None:
        self._settle("requeue", deliveries)

    def _settle(self, how: str, deliveries: Sequence[Delivery]) -> None:
        with self._wake:
            # Each leaves `_open` now, and `_held` when the broker knows: settled twice, the first counts.
            mine = [d for d in deliveries if id(d) in self._open and self._held.get(id(d)) is d]
            self._open.difference_update(id(d) for d in mine)
            if mine and not self._ending:
                self._settled.append((how, mine))
                self._wake.notify_all()

    def wait_subscribed(self, timeout: float) -> bool:
        with self._wake:
            return self._wake.wait_for(lambda: self._subscribed or self._ending, timeout)

    def cancel(self) -> None:
        self.end()
        if not self.here:
            self.thread.join(10.0)

    # -- its thread

    def _finished(self) -> bool:
        return self._left

    def _turn(self, session: Session) -> None:
        self._send_settled(session)
        if self._ending:
            session.unsubscribe(list(self._held.values()))
            self._left = True
            return
        if not self._subscribed:
            self._subscribe(session)
        self._maybe_tick(session, list(self._held.values()))
        room = self._prefetch - len(self._held)
        if not self._subscribed or room <= 0:
            self._wait(0.2)
            return
        if session.idle is not None:
            self._check_queue(session)
        arrived = session.poll(room, 0.02 if self._held else 0.2)
        if arrived:
            self._pause = 0.0
            with self._wake:
                for d in arrived:
                    self._held[id(d)] = d
                    self._open.add(id(d))
                    self._buffer.append(d)
                self._wake.notify_all()
        elif session.idle is not None:
            self._pause = min(session.idle, max(0.002, self._pause * 1.5))
            self._wait(self._pause)

    def _wait(self, seconds: float) -> None:
        with self._wake:
            if not self._settled and not self._ending:
                self._wake.wait(seconds)

    def _subscribe(self, session: Session) -> None:
        now = time.monotonic()
        if now < self._look_at:
            return
        self._subscribed = session.subscribe(self._queue, self._prefetch, private=self._private)
        if self._subscribed:
            self._look.reset()
            with self._wake:
                self._wake.notify_all()
        else:
            self._look_at = now + self._look.next()

    def _check_queue(self, session: Session) -> None:
        """A virtual queue can go without a word: look now and then whether it is still there."""
        now = time.monotonic()
        if now >= self._check_at and not self._private:
            self._check_at = now + 0.5
            try:
                session.stats(self._queue)
            except NotFound:
                self._subscribed = False
                self._look_at = now + self._look.next()

    def _send_settled(self, session: Session) -> None:
        while self._settled:
            how, deliveries = self._settled[0]
            getattr(session, how)(deliveries)
            with self._wake:
                self._settled.popleft()
                for d in deliveries:
                    self._held.pop(id(d), None)

    def _session_gone(self) -> None:
        self._subscribed = False
        with self._wake:
            self._left = self._ending
            if self._keeps:
                return
            # The broker has taken back what belonged to the channel.
            self._forget()

    def _forget(self) -> None:
        self._buffer.clear()
        self._held.clear()
        self._open.clear()
        self._settled.clear()

    def _opened(self, session: Session) -> None:
        super()._opened(session)
        self._keeps = session.keeps_deliveries

    def _ended(self) -> None:
        with self._wake:
            self._ending = True
            self._forget()
            self._wake.notify_all()
