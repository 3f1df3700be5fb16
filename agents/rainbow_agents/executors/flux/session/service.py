"""The session: connects to Flux again and again, and hands requests to the parts of the connection."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from .channel import Channel, Closed, Json
from .connection import Connection, flux_folder
from .events import InstanceEvents, JobEvents
from .jobs import JobTable
from .queries import Queries
from .recovery import Recovery
from .submission import Submission
from .validating import Validating

#: Seconds between two tries to connect, at first and at most.
_RECONNECT, _RECONNECT_MOST = 0.1, 2.0

_OPTIONS = {"tail": 4096, "validate": False, "uri": "", "down_after": 10.0}


class Link:
    """One connection with all its parts. Raises OSError where Flux cannot be reached."""

    def __init__(self, channel: Channel, owner: str, options: Json) -> None:
        self.connection = Connection(channel, options["uri"], options["down_after"])
        jobs = JobTable(owner)
        self._channel = channel
        self._submission = Submission(
            self.connection, jobs, Validating(self.connection.handle, wanted=not options["validate"])
        )
        self._queries = Queries(self.connection, owner)
        self.events = JobEvents(self.connection, jobs, options["tail"])
        self._instance = InstanceEvents(self.connection, self._submission.resources_changed, self._configured)
        recovery = Recovery(self.connection, owner, options["tail"])
        self._operations: dict[str, Callable[[Json], None]] = {
            "submit": self._submission.submit,
            "release": self._submission.release,
            "cancel": self._submission.cancel,
            "usage": self._queries.usage,
            "outlook": self._queries.outlook,
            "output": self._queries.output,
            "recover": recovery.recover,
        }

    def run(self) -> None:
        """Follow Flux and serve requests until the connection ends."""
        self.events.follow()
        self._instance.follow()
        self.connection.run(self._on_request)

    def end(self, reason: str | None) -> None:
        """Let go of Flux. Jobs and questions under way are answered with `reason`, unless the agent is gone (None)."""
        if reason is not None:
            self._submission.give_up(reason)
        self.connection.dispose(reason)

    def _configured(self, config: Json) -> None:
        self._submission.configured(config)
        self._queries.configured(config)

    def _on_request(self, *_args: Any) -> None:
        for request in self._channel.receive():
            if request["op"] == "close":
                raise Closed
            if not self.events.ready:
                decline(self._channel, request, "Flux is not there yet")
                continue
            if "ask" in request:
                self.connection.asked(request["ask"])
            self._operations[request["op"]](request)


class Session:
    """Runs until the agent is gone or closes it. `owner` marks our jobs; see `main` for `options`."""

    def __init__(self, reader: int, writer: int, owner: str, options: Json) -> None:
        self._channel = Channel(reader, writer)
        self._owner = owner
        self._options = options
        self._down = False
        self._delay = _RECONNECT

    def run(self) -> None:
        try:
            self._channel.send("flux", folder=flux_folder())
            while True:
                reason = self._serve()
                if not self._down:
                    self._down = True
                    self._channel.send("down", reason=reason)
                self._wait(self._delay)
                self._delay = min(_RECONNECT_MOST, self._delay * 2)
        except Closed:
            pass

    def _serve(self) -> str:
        """Connect and serve until the connection ends. Return why it did. Raises Closed."""
        try:
            link = Link(self._channel, self._owner, self._options)
        except OSError as exc:
            return f"Flux does not answer: {exc.strerror or exc}"
        reason = "the connection to Flux broke"
        try:
            link.run()
        except OSError as exc:
            reason = f"Flux does not answer: {exc}"
        if link.connection.closed:
            link.end(None)
            raise Closed
        reason = link.connection.reason or reason
        if link.events.ready:
            self._down, self._delay = False, _RECONNECT
        link.end(reason)
        self._channel.flush()
        return reason

    def _wait(self, seconds: float) -> None:
        """Between two connections every request is declined."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._channel.wait(left):
                for request in self._channel.receive():
                    decline(self._channel, request, "Flux is not there")


def decline(channel: Channel, request: Json, reason: str) -> None:
    """Answer a request that cannot be served now. Raises Closed when it asks for the end."""
    if request["op"] == "close":
        raise Closed
    for job in request["jobs"] if request["op"] == "submit" else ():
        channel.send("undecided", mark=job["mark"], detail=reason)
    if "ask" in request:
        channel.send("answer", ask=request["ask"], error=reason)


def main(reader: int, writer: int, owner: str, options: str) -> None:
    """Run a session until the other side is gone.

    Args:
        reader: File descriptor that requests come from.
        writer: File descriptor that messages go to.
        owner: Marks our jobs among those of others.
        options: JSON object: `tail` bytes of output that go with the end of a job, `validate` to leave every job to
            Flux's validator (see `validating`), `uri` of the instance, `down_after` seconds.
    """
    Session(reader, writer, owner, {**_OPTIONS, **json.loads(options)}).run()
