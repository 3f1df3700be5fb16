"""Questions that an agent answers: bids, and output of jobs. Each kind has a thread of its own.

So a Flux that is slow to tell its queue holds up neither a cancel nor somebody's output. Nothing of a question is kept:
one that nobody waits for any more, or that finds too many before it, is dropped.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from rainbow.client.rpc import Rpc
from rainbow.errors import BadCredentials, RainbowError
from rainbow.models.control import AgentCommand

log = logging.getLogger(__name__)

#: Questions of a kind that may wait.
_MOST = 1000
#: Seconds that the clocks of both sides may differ.
_LEEWAY = 60.0
_SEND = 10.0

#: The body of an answer; None when there is none to give.
Respond = Callable[[AgentCommand], "dict[str, Any] | None"]


class RequestWorker:
    """Answers one kind of question with `respond`, in the thread that calls `run`."""

    def __init__(
        self, cluster: str, rpc: Rpc, respond: Respond, *, most: int = _MOST, clock: Callable[[], float] = time.time
    ) -> None:
        self._cluster = cluster
        self._rpc = rpc
        self._respond = respond
        self._clock = clock
        self._waiting: queue.Queue[AgentCommand] = queue.Queue(most)

    def ask(self, questions: Sequence[AgentCommand]) -> None:
        """Take them up, if there is room. Returns at once."""
        for question in questions:
            try:
                self._waiting.put_nowait(question)
            except queue.Full:
                log.warning(
                    "too many questions: one is dropped", extra={"action": "question", "kind": question.command}
                )

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                question = self._waiting.get(timeout=0.2)
            except queue.Empty:
                continue
            if self._clock() > question.until + _LEEWAY:
                continue
            try:
                body = self._respond(question)
                if body is not None:
                    self._rpc.send(
                        {
                            "op": "answer",
                            "version": 1,
                            "cluster": self._cluster,
                            "reply": question.reply,
                            "body": body,
                        },
                        timeout=_SEND,
                    )
            except BadCredentials:
                raise
            except RainbowError as exc:
                log.info("not answered: %s", exc, extra={"action": "question", "code": exc.code})
