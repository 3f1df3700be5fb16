"""The thread that publishes, declares, deletes and inspects queues.

It works through what it is handed in order. When the connection is lost, what was handed over stays first in line.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rainbow.brokers.base import Message, Receipt
from rainbow.brokers.kombu.session import Session
from rainbow.brokers.kombu.threads import TICK, Opener, SessionThread, short
from rainbow.errors import (
    BrokerUnavailable,
    PublishFailed,
    RainbowError,
)

SWEEP = 0.5


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


class Manager(SessionThread):
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
            raise BrokerUnavailable(short(exc)) from exc
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
