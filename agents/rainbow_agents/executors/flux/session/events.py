"""Follows jobs, resources and configuration through the streams of Flux.

All jobs come through one stream, ``job-manager.events-journal``. Starts and ends of ours are sent to the agent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .channel import Json
from .connection import Connection
from .jobs import JobTable, Part
from .output import tail_of

#: Events of a job that are followed. `submit` must be among them, or its end mark cannot be told from an empty reply.
FOLLOWED = ("submit", "start", "finish", "exception", "clean")
#: `recovery` needs to know which jobs are still held, too; while following, that would be one message more per job.
RECOVERED = (*FOLLOWED, "urgency")


class JobEvents:
    """Sends `started` and `ended` of our jobs. `tail`: bytes of output that go with an end."""

    def __init__(self, connection: Connection, jobs: JobTable, tail: int) -> None:
        self.ready = False
        self._connection = connection
        self._jobs = jobs
        self._tail = tail

    def follow(self) -> None:
        journal(self._connection, FOLLOWED, self._on_journal)

    def _on_journal(self, future: Any) -> None:
        try:
            reply = future.get()
            future.reset()
        except OSError as exc:
            self._connection.stop(f"Flux's journal ended: {exc}")
            return
        if reply["id"] == -1:  # the jobs that were active before have all been listed
            self.ready = True
            self._connection.channel.send("up", incarnation=self._connection.incarnation)
            return
        part = self._jobs.apply(reply)
        if part is None or not self.ready:
            return
        for event in reply["events"]:
            if event["name"] == "start":
                self._started(part)
            elif event["name"] == "clean":
                fetch_tail(self._connection, part, self._tail, lambda: self._ended(part))

    def _started(self, part: Part) -> None:
        parts = self._jobs.parts(part.mark)
        if not any(other.reported for other in parts):
            part.reported = True
            self._connection.emit("started", mark=part.mark, names=[p.name for p in parts], at=part.started)

    def _ended(self, part: Part) -> None:
        """Report a job once all its parts are over. Where not all parts are known, `recovery` reports the end."""
        parts = self._jobs.parts(part.mark)
        if len(parts) == part.count and all(p.ended is not None for p in parts):
            self._connection.emit("ended", mark=part.mark, parts=[p.facts() for p in parts])
            self._jobs.remove(part.mark)


class InstanceEvents:
    """Reports changes of resources, and calls `on_config` with the configuration whenever it changes."""

    def __init__(self, connection: Connection, on_resources: Callable[[], None], on_config: Callable[[Json], None]):
        self._connection = connection
        self._on_resources = on_resources
        self._on_config = on_config
        self._known = False

    def follow(self) -> None:
        self._on_config(self._connection.handle.conf_get() or {})
        self._connection.stream("resource.journal", {}, self._resources, nodeid=0)
        self._connection.stream("config.get", {}, self._config)

    def _resources(self, future: Any) -> None:
        try:
            reply = future.get()
            future.reset()
        except OSError:
            return  # a Flux without that stream: changes show in the next report
        events = reply.get("events") or ()
        if not events:  # the end mark of what was before
            self._known = True
        elif self._known:
            self._on_resources()
            graph = any(event["name"].startswith("resource-") for event in events)
            self._connection.channel.send("changed", graph=graph)

    def _config(self, future: Any) -> None:
        try:
            config = future.get()
            future.reset()
        except OSError:
            return  # a Flux that answers once only (see `validating`)
        self._on_config(config or {})


def journal(
    connection: Connection, events: tuple[str, ...], then: Callable[..., None], *, passing: bool = False
) -> Any:
    """Open the stream of all jobs' events: those of active jobs, a reply with id -1, then new ones as they happen."""
    payload = {"full": False, "allow": dict.fromkeys(events, 1)}
    return connection.stream("job-manager.events-journal", payload, then, passing=passing, nodeid=0)


def fetch_tail(connection: Connection, part: Part, tail: int, then: Callable[[], None]) -> None:
    """Fetch the end of the output of a part that has started, and go on however that ends."""
    if part.started is None:
        then()
        return

    def arrived(future: Any) -> None:
        try:
            part.output = tail_of(future.get()["guest.output"], tail)
        except (OSError, KeyError, TypeError, ValueError):
            part.output = None  # there is none
        then()

    payload = {"id": part.number, "keys": ["guest.output"], "flags": 0}
    connection.rpc("job-info.lookup", payload, arrived)
