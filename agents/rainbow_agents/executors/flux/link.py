"""The agent's end of the conversation with a session: messages, questions, and a session kept running."""

from __future__ import annotations

import itertools
import json
import os
import queue
import threading
from collections.abc import Callable
from typing import Any

from rainbow_agents.executors.base import (
    Crashed,
    Down,
    ExecutorDown,
    Listener,
    Refused,
    SubmissionKey,
    Submitted,
    Undecided,
    Up,
)
from rainbow_agents.executors.flux.results import event_of

#: Seconds between the end of a session and the start of the next.
_RESTART = 1.0


class Pipe:
    """Two file descriptors to a running session, and how to end it."""

    def __init__(self, reader: int, writer: int, end: Callable[[], None]) -> None:
        self.reader = reader
        self.writer = writer
        self.end = end


class SessionLink:
    """`start_session` starts a session (OSError where it cannot); `on_flux` gets the folder of the program ``flux``.

    One thread reads; any thread may send.
    """

    def __init__(
        self,
        name: str,
        listener: Listener,
        start_session: Callable[[], Pipe],
        on_flux: Callable[[str | None], None],
        answer_within: float,
    ) -> None:
        self._listener = listener
        self._start_session = start_session
        self._on_flux = on_flux
        self._answer_within = answer_within
        self._lock = threading.Lock()
        self._asks = itertools.count(1)
        self._answers: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._pending: dict[SubmissionKey, None] = {}
        self._pipe: Pipe | None = None
        self._down = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def send(self, op: str, **fields: Any) -> bool:
        """Send a request. Return whether the session will get it."""
        data = (json.dumps(dict(fields, op=op)) + "\n").encode()
        with self._lock:
            pipe = self._pipe
            if pipe is None:
                return False
            try:
                while data:
                    data = data[os.write(pipe.writer, data) :]
            except OSError:
                return False
        return True

    def submit(self, jobs: dict[SubmissionKey, dict[str, Any]]) -> None:
        """Submit jobs: each gets an outcome, also when the session ends before it has one."""
        with self._lock:
            self._pending.update(dict.fromkeys(jobs))
        if not self.send("submit", jobs=list(jobs.values())):
            self._give_up("Flux is not there")

    def ask(self, op: str, *, within: float | None = None, **fields: Any) -> dict[str, Any]:
        """Ask, and wait for the answer. Raises ExecutorDown."""
        limit = self._answer_within if within is None else within
        ask = next(self._asks)
        box: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._answers[ask] = box
        try:
            if not self.send(op, ask=ask, **fields):
                raise ExecutorDown("Flux is not there")
            answer = box.get(timeout=limit)
        except queue.Empty:
            raise ExecutorDown(f"Flux did not answer within {limit:g} s") from None
        finally:
            self._answers.pop(ask, None)
        if "error" in answer:
            raise ExecutorDown(answer["error"])
        result: dict[str, Any] = answer["result"] or {}
        return result

    def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        self.send("close")
        self._thread.join(10.0)

    # -- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closed.is_set():
                reason = self._converse()
                if self._closed.is_set():
                    return
                self._give_up(reason)
                if not self._down:
                    self._down = True
                    self._listener(Down(reason))
                self._closed.wait(_RESTART)
        except BaseException as exc:
            self._listener(Crashed(exc))

    def _converse(self) -> str:
        """Start a session and read from it until it ends. Return why it did."""
        try:
            pipe = self._start_session()
        except OSError as exc:
            return f"the conversation with Flux cannot be started: {exc}"
        with self._lock:
            self._pipe = pipe
        if self._closed.is_set():
            self.send("close")
        self._read(pipe)
        with self._lock:
            self._pipe = None
            os.close(pipe.writer)
        os.close(pipe.reader)
        pipe.end()
        return "the conversation with Flux ended"

    def _read(self, pipe: Pipe) -> None:
        with os.fdopen(os.dup(pipe.reader), "rb") as lines:
            for line in lines:
                message = json.loads(line)
                if message["type"] == "answer":
                    box = self._answers.get(message["ask"])
                    if box is not None:
                        box.put(message)
                elif message["type"] == "flux":
                    self._on_flux(message["folder"])
                else:
                    self._pass_on(message)

    def _pass_on(self, message: dict[str, Any]) -> None:
        event = event_of(message)
        if isinstance(event, Up | Down):
            self._down = isinstance(event, Down)
        if isinstance(event, Submitted | Refused | Undecided):
            with self._lock:
                self._pending.pop(event.mark, None)
        self._listener(event)

    def _give_up(self, reason: str) -> None:
        """Nothing will be heard of what is under way."""
        with self._lock:
            marks = list(self._pending)
            self._pending.clear()
        for mark in marks:
            self._listener(Undecided(mark, reason))
        for box in list(self._answers.values()):
            box.put({"error": reason})


__all__ = ["Pipe", "SessionLink"]
