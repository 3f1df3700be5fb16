"""One connection to Flux: a handle, its reactor, and a probe with a deadline.

The probe notices a broker that is gone, shut down or frozen. A handle never recovers from that, so the session opens a
new connection. Exceptions must not leave a callback of the reactor: `guarded` ends the connection instead.
"""

from __future__ import annotations

import os
import pwd
import shutil
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flux.constants
from flux.conf_builtin import conf_builtin_get

import flux

from .channel import Channel, Closed, Json

#: Seconds between probes.
PROBE_EVERY = 1.0
#: Seconds within which Flux has to answer one request.
ANSWER_WITHIN = 10.0
#: Seconds that outcomes wait for others, so that they share one write.
GATHER = 0.002

Callback = Callable[..., None]


class Connection:
    """Opens a handle. `down_after`: seconds without an answer to the probe after which Flux counts as down.

    Raises:
        OSError: Flux cannot be reached, does not answer, or belongs to another user.
    """

    def __init__(self, channel: Channel, uri: str, down_after: float) -> None:
        self.channel = channel
        self.closed = False
        self.reason: str | None = None
        self._down_after = down_after
        self._probed: float | None = None
        self._gathering = False
        self._asked: set[int] = set()
        self._timers: dict[int, Any] = {}
        self._watchers: list[Any] = []
        self._streams: list[Any] = []
        self._passing: list[Any] = []
        handle = flux.Flux(resolve(uri)) if uri else flux.Flux()
        # The first request has a deadline: the plain calls below would wait forever for a frozen broker.
        handle.rpc("job-manager.stats-get", {}, nodeid=0).wait_for(down_after)
        self.handle = handle
        self._check_owner()
        uuid = handle.attr_get("broker.uuid")
        self.incarnation = uuid.decode() if isinstance(uuid, bytes) else str(uuid)

    def _check_owner(self) -> None:
        owner = int(self.handle.attr_get("security.owner"))
        if owner != os.getuid():
            raise PermissionError(
                f"this Flux instance belongs to {user_name(owner)} and the agent runs as {user_name(os.getuid())}: "
                f"only the owner may follow all jobs, so run the agent as {user_name(owner)}"
            )

    # -- the reactor -------------------------------------------------------------------------------------------

    def run(self, on_request: Callback) -> None:
        """Run the reactor until the connection ends. `on_request` is called when requests have arrived."""
        requests = self.handle.fd_watcher_create(
            self.channel.reader, self.guarded(on_request), flux.constants.FLUX_POLLIN
        )
        probe = self.handle.timer_watcher_create(PROBE_EVERY, self.guarded(self._probe), PROBE_EVERY)
        self._watchers = [requests, probe]
        for watcher in self._watchers:
            watcher.start()
        self.handle.reactor_run()

    def guarded(self, callback: Callback) -> Callback:
        """Return `callback` such that nothing is raised out of it."""

        def call(*args: Any, **kwargs: Any) -> None:
            try:
                callback(*args, **kwargs)
            except Closed:
                self.close()
            except Exception as exc:
                traceback.print_exc(file=sys.stderr)
                self.stop(f"the conversation with Flux broke: {type(exc).__name__}: {exc}")

        return call

    def stop(self, reason: str) -> None:
        """End the reactor, to connect again."""
        self.reason = self.reason or reason
        self.handle.reactor_stop()

    def close(self) -> None:
        """End the reactor for good."""
        self.closed = True
        self.handle.reactor_stop()

    def dispose(self, reason: str | None) -> None:
        """Let go of the handle. With a `reason`, every open question is answered with it."""
        for watcher in self._watchers:
            watcher.stop()
        if reason is not None:
            for ask in self._asked:
                self.channel.queue("answer", ask=ask, error=reason)
        self._asked.clear()
        for future in self._streams:
            future.stop()

    def _probe(self, *_args: Any) -> None:
        now = time.monotonic()
        if self._probed is None:
            self._probed = now
            self.rpc("job-manager.stats-get", {}, self._probe_answered, nodeid=0, timeout=-1.0)
        elif now - self._probed > self._down_after:
            self.stop(f"Flux has not answered for {self._down_after:g} s")

    def _probe_answered(self, future: Any) -> None:
        try:
            future.get()
            self._probed = None
        except OSError as exc:
            self.stop(f"Flux is gone: {exc}")

    # -- calls -------------------------------------------------------------------------------------------------

    def rpc(
        self, topic: str, payload: Json, then: Callback, *args: Any, timeout: float = ANSWER_WITHIN, **options: Any
    ) -> None:
        """Call a service. `then` gets the future and `args`, also when the call failed or took over `timeout` s."""
        self.handle.rpc(topic, payload, **options).then(self.guarded(then), *args, timeout=timeout)

    def stream(self, topic: str, payload: Json, then: Callback, *, passing: bool = False, **options: Any) -> Any:
        """Call a service that answers many times. A `passing` stream is cancelled by its caller."""
        future = self.handle.rpc(topic, payload, flags=flux.constants.FLUX_RPC_STREAMING, **options)
        future.then(self.guarded(then))
        if passing:
            self._passing = [*self._passing[-8:], future]  # a stream must outlive its cancellation
        else:
            self._streams.append(future)
        return future

    def later(self, seconds: float, then: Callable[[], None]) -> None:
        timers = self._timers

        def due(_handle: Any, watcher: Any, *_args: Any) -> None:
            timers.pop(id(watcher), None)
            then()

        watcher = self.handle.timer_watcher_create(seconds, self.guarded(due))
        timers[id(watcher)] = watcher
        watcher.start()

    # -- messages to the agent -----------------------------------------------------------------------------------

    def emit(self, kind: str, **fields: Any) -> None:
        """Send the outcome of a job together with those of the next moment: each write wakes the agent."""
        self.channel.queue(kind, **fields)
        if not self._gathering:
            self._gathering = True
            self.later(GATHER, self._flush)

    def _flush(self) -> None:
        self._gathering = False
        self.channel.flush()

    def asked(self, ask: int) -> None:
        self._asked.add(ask)

    def answer(self, ask: int, **fields: Any) -> None:
        """Answer a question once, with `result` or `error`."""
        if ask in self._asked:
            self._asked.remove(ask)
            self.channel.send("answer", ask=ask, **fields)


def resolve(uri: str) -> str:
    """Return the local URI for `uri`: ``file:PATH`` of a file that holds it, or any kind that ``flux uri`` resolves.

    Raises:
        OSError: It names no running instance.
    """
    if uri.startswith("file:"):
        uri = Path(uri[len("file:") :]).read_text().strip()
    if uri.startswith(("local://", "ssh://")):
        return uri
    from flux.uri import FluxURIResolver

    try:
        return str(FluxURIResolver().resolve(uri).local)
    except (ValueError, OSError) as exc:
        raise OSError(f"Flux instance {uri!r} cannot be resolved: {exc}") from exc


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def flux_folder() -> str | None:
    """Return the folder of the program ``flux`` that belongs to these bindings; None when there is none."""
    beside = Path(conf_builtin_get("libexecdir")).parent.parent / "bin" / "flux"
    if beside.exists():
        return str(beside.parent)
    found = shutil.which("flux")
    return os.path.dirname(os.path.abspath(found)) if found else None
