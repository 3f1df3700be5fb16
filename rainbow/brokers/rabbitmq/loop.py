"""The I/O thread: it alone touches pika; other threads hand it work, many pieces per wake-up."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from pika.adapters.select_connection import IOLoop

log = logging.getLogger(__name__)

Work = Callable[[], None]


class IoThread:
    """A pika event loop in a daemon thread."""

    def __init__(self, name: str) -> None:
        self.loop = IOLoop()
        self._inbox: deque[Work] = deque()
        self._woken = False
        self._stopped = threading.Event()
        self._last = threading.RLock()
        #: Called in the I/O thread when something in it failed that nobody foresaw.
        self.on_crash: Callable[[Exception], None] | None = None
        #: Cuts a connection that is still there when the thread ends; called in it.
        self.at_end: list[Work] = []
        self._after: list[Work] = []
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def here(self) -> bool:
        """Whether the caller runs in the I/O thread."""
        return threading.get_ident() == self._thread.ident

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def call(self, work: Work) -> None:
        """Run `work` in the I/O thread, soon, in the order of the calls. One wake-up serves all calls until it runs.

        Once the thread has ended, it runs in the caller's: nothing handed over is ever forgotten.
        """
        self._inbox.append(work)
        if self._stopped.is_set():
            with self._last:
                self._drain()
        elif not self._woken:
            # Appended before the flag is read, and `_drain` clears the flag before it empties the inbox: whoever
            # finds the flag set is served by a drain that has not emptied it yet.
            self._woken = True
            self.loop.add_callback_threadsafe(self._drain)

    def later(self, delay: float, work: Work) -> Any:
        """Run `work` in the I/O thread after `delay` seconds (called in it); a handle for `cancel`."""
        return self.loop.call_later(delay, work)

    def cancel(self, handle: Any) -> None:
        if handle is not None:
            self.loop.remove_timeout(handle)

    def at_end_of_turn(self, work: Work) -> None:
        """Run `work` once after all calls handed over so far (called in the I/O thread from one of them)."""
        if work not in self._after:
            self._after.append(work)

    def _drain(self) -> None:
        self._woken = False
        inbox = self._inbox
        while inbox:
            _do(inbox.popleft())
        after, self._after = self._after, []
        for work in after:
            _do(work)

    def _run(self) -> None:
        while True:
            try:
                self.loop.start()
                break
            except Exception as exc:
                # pika lets an error in a callback end the loop; connections are replaced, the thread lives on.
                log.exception("the broker's I/O loop failed", extra={"action": "broker.io_crash"})
                if self.on_crash is not None:
                    self.on_crash(exc)
        with self._last:
            self._stopped.set()
            self._drain()
        self.loop.close()

    def _end(self) -> None:
        for work in self.at_end:
            _do(work)
        # pika closes the socket of a cut connection in the loop's next turn.
        self.loop.add_callback_threadsafe(self.loop.stop)

    def stop(self, timeout: float) -> bool:
        """End the loop and wait for its thread; True when it ended in time. Idempotent."""
        if not self._stopped.is_set():
            self.loop.add_callback_threadsafe(self._end)
        return self.here or self._stopped.wait(timeout)


def _do(work: Work) -> None:
    """Whatever it raises, the next piece of work has its turn."""
    try:
        work()
    except Exception:
        log.exception("work in the broker's I/O thread failed", extra={"action": "broker.io_error"})
