"""The agent's threads: one that dies ends the agent, with the exit code of what killed it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from rainbow.errors import RainbowError

log = logging.getLogger(__name__)

#: The exit code of a thread that died of something nobody expected (EX_SOFTWARE of sysexits.h).
UNEXPECTED = 70


class Threads:
    """Threads that share one `stop`. `failure` is what the first that died of something died of."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.failure: BaseException | None = None
        self._threads: list[threading.Thread] = []

    def start(self, name: str, run: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                run()
            except BaseException as exc:  # a dead thread ends the process, whatever it died of
                self.fail(name, exc)

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def fail(self, name: str, exc: BaseException) -> None:
        """Something that cannot be mended happened: stop, and remember why."""
        if self.failure is None:
            self.failure = exc
        if isinstance(exc, RainbowError):
            log.error("%s", exc, extra={"action": "stop", "part": name, "code": exc.code})
        else:
            log.error("thread %s died", name, exc_info=exc, extra={"action": "stop", "part": name})
        self.stop.set()

    def join(self, timeout: float) -> list[str]:
        """Wait for all of them, `timeout` seconds in all. Gives the names of those still running."""
        end = time.monotonic() + timeout
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()))
        return [t.name for t in self._threads if t.is_alive() and t is not threading.current_thread()]

    @property
    def exit_code(self) -> int:
        if self.failure is None:
            return 0
        return self.failure.exit_code if isinstance(self.failure, RainbowError) else UNEXPECTED
