"""JSON lines between the session and the agent: requests in (`op`), outcomes, events and answers out (`type`)."""

from __future__ import annotations

import json
import os
import select
from typing import Any

Json = dict[str, Any]


class Closed(Exception):
    """The agent is gone, or asked the session to end."""


class Channel:
    """Two file descriptors. Messages are queued in order and written by `flush`."""

    def __init__(self, reader: int, writer: int) -> None:
        self.reader = reader
        self.writer = writer
        self._incoming = b""
        self._outgoing: list[str] = []
        os.set_blocking(reader, False)

    def queue(self, kind: str, **fields: Any) -> None:
        self._outgoing.append(json.dumps(dict(fields, type=kind)))

    def send(self, kind: str, **fields: Any) -> None:
        """Write at once, after what was queued before.

        Raises:
            Closed: The agent is gone.
        """
        self.queue(kind, **fields)
        self.flush()

    def flush(self) -> None:
        """Write what is queued. Raises Closed."""
        data = "".join(message + "\n" for message in self._outgoing).encode()
        self._outgoing.clear()
        while data:
            try:
                sent = os.write(self.writer, data)
            except BlockingIOError:
                select.select([], [self.writer], [])
                continue
            except OSError as exc:
                raise Closed from exc
            data = data[sent:]

    def discard(self) -> None:
        """Drop what is queued."""
        self._outgoing.clear()

    def receive(self) -> list[Json]:
        """Return the requests that have arrived.

        Raises:
            Closed: There will be no more.
        """
        while True:
            try:
                block = os.read(self.reader, 1 << 20)
            except BlockingIOError:
                break
            if not block:
                raise Closed
            self._incoming += block
        *lines, self._incoming = self._incoming.split(b"\n")
        return [json.loads(line) for line in lines if line]

    def wait(self, seconds: float) -> bool:
        """Wait for a request, `seconds` at most. Return whether one arrived."""
        return bool(select.select([self.reader], [], [], seconds)[0])
