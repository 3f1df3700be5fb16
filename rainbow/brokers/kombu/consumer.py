"""A consumer in a thread and a session of its own."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from rainbow.backoff import Backoff
from rainbow.brokers.base import CANCELLED_PAUSE, Delivery
from rainbow.brokers.kombu.session import Session
from rainbow.brokers.kombu.threads import Opener, SessionThread
from rainbow.errors import (
    NotFound,
)

#: After so many seconds without a message, a consumer that has to poll does it so many times less often.
_QUIET_AFTER, _QUIETER = 10.0, 5


class KombuConsumer(SessionThread):
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
        self._arrived_at = time.monotonic()
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
            self._pause, self._arrived_at = 0.0, time.monotonic()
            with self._wake:
                for d in arrived:
                    self._held[id(d)] = d
                    self._open.add(id(d))
                    self._buffer.append(d)
                self._wake.notify_all()
        elif session.idle is not None:
            quiet = time.monotonic() - self._arrived_at > _QUIET_AFTER
            self._pause = min(session.idle * (_QUIETER if quiet else 1), max(0.002, self._pause * 1.5))
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
        """Check from time to time that the queue exists: a virtual queue is deleted without notice."""
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
