"""A client that submits jobs all the while, for tests of what must not lose any."""

from __future__ import annotations

import threading
import time
import uuid

from rainbow.client import Client
from rainbow.errors import RainbowError
from servers import wait_until


class Load:
    """Submits jobs by `client`, ten at a time, each again until it is confirmed."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.confirmed: list[str] = []
        self.error: Exception | None = None

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(180)
        assert not self._thread.is_alive(), "the last jobs are not confirmed"
        if self.error is not None:
            raise self.error

    def more(self, count: int = 50, limit: float = 180.0) -> None:
        """Wait until so many more are confirmed."""
        wanted = len(self.confirmed) + count
        wait_until(lambda: len(self.confirmed) >= wanted or self.error, limit, what=f"{count} more jobs are confirmed")

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.1):
                jobs = [{"id": str(uuid.uuid4()), "command": ["true"], "hold": 600} for _ in range(10)]
                while True:
                    try:
                        self._client.submit_many(jobs, timeout=5.0)  # type: ignore[arg-type]
                        break
                    except RainbowError:
                        time.sleep(0.1)
                self.confirmed += [str(job["id"]) for job in jobs]
        except Exception as exc:
            self.error = exc
