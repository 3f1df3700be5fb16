"""Commands from the scheduler's side: cancel a job, report anew, and questions to be answered (`questions`).

A cancel is in the journal before it is acked.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from rainbow import codec, topology
from rainbow.backoff import Backoff
from rainbow.brokers.base import Broker, Delivery
from rainbow.errors import BadSignature, InvalidInput
from rainbow.models.control import AgentCommand
from rainbow.models.wire import parse
from rainbow.security import signing
from rainbow_agents.executors.base import Executor
from rainbow_agents.journal import ELSEWHERE, Journal, JournalDown
from rainbow_agents.registration.client import RegistrationClient

log = logging.getLogger(__name__)

_PREFETCH = 100
#: Seconds that a command whose signature does not hold waits for newer keys.
KEYS_WITHIN = 20.0


class Commands:
    """One thread (`run`) on the queue `rainbow.agent.<cluster>`."""

    def __init__(
        self,
        *,
        cluster: str,
        broker: Broker,
        journal: Journal,
        executor: Executor,
        registrar: RegistrationClient,
        resync: Callable[[], None],
        bid: Callable[[Sequence[AgentCommand]], None],
        output: Callable[[Sequence[AgentCommand]], None],
        keys_within: float = KEYS_WITHIN,
    ) -> None:
        self._executor = executor
        self._cluster = cluster
        self._broker = broker
        self._journal = journal
        self._registrar = registrar
        self._resync = resync
        self._bid = bid
        self._output = output
        self._keys_within = keys_within

    def run(self, stop: threading.Event) -> None:
        while not self._registrar.registered:  # the registrar declares the queue
            if stop.wait(0.1):
                return
        consumer = self._broker.consume(topology.agent_queue(self._cluster), prefetch=_PREFETCH)
        backoff = Backoff(0.5, 10.0)
        waiting: list[tuple[float, int, Delivery]] = []
        try:
            while not stop.is_set():
                deliveries = consumer.take(_PREFETCH, 0.5)
                due, waiting = self._due(waiting)
                done: list[Delivery] = []
                cancels: list[tuple[str, int, str]] = []
                bids: list[AgentCommand] = []
                outputs: list[AgentCommand] = []
                for delivery in [*due, *deliveries]:
                    command = self._read(delivery, last=delivery in due)
                    if isinstance(command, int):
                        waiting.append((time.monotonic() + self._keys_within, command, delivery))
                        continue
                    done.append(delivery)
                    if command is None:
                        continue
                    if command.command == "resync":
                        log.info("told to report anew", extra={"action": "resync"})
                        self._resync()
                    elif command.command == "bid":
                        bids.append(command)
                    elif command.command == "output":
                        outputs.append(command)
                    elif command.id is not None:
                        reason = ELSEWHERE if command.moved else command.reason or "cancelled"
                        cancels.append((command.id, command.attempt, reason))
                self._bid(bids)
                self._output(outputs)
                if not self._cancel(cancels):
                    consumer.requeue(done)
                    if backoff.wait(stop):
                        return
                    continue
                backoff.reset()
                consumer.ack(done)
        finally:
            consumer.cancel()

    def _due(
        self, waiting: list[tuple[float, int, Delivery]]
    ) -> tuple[list[Delivery], list[tuple[float, int, Delivery]]]:
        now = time.monotonic()
        due = [d for until, serial, d in waiting if now >= until or self._registrar.serial > serial]
        return due, [w for w in waiting if w[2] not in due]

    def _read(self, delivery: Delivery, *, last: bool) -> AgentCommand | int | None:
        """The command; None when it is none of ours; a registration serial when newer keys may verify it."""
        try:
            self._registrar.check(delivery.body, delivery.headers.get(signing.HEADER))
            return parse(AgentCommand, codec.decode(delivery.body, delivery.content_type))
        except BadSignature as exc:
            if not last:
                return self._registrar.request("a command is signed with a key that is not known here")
            log.warning("command ignored: %s", exc, extra={"action": "ignore", "code": exc.code})
        except InvalidInput as exc:
            log.warning("command ignored: %s", exc, extra={"action": "ignore", "code": exc.code})
        return None

    def _cancel(self, cancels: Sequence[tuple[str, int, str]]) -> bool:
        """Write the cancels down, then end the jobs that are here. False when they cannot be written down."""
        if not cancels:
            return True
        try:
            rows = self._journal.cancel(cancels)
        except JournalDown as exc:
            log.error("%s", exc, extra={"action": "cancel"})  # noqa: TRY400
            return False
        for row in rows:
            log.info("cancelling", extra={"action": "cancel", "id": row.id, "attempt": row.attempt})
            self._executor.cancel([row.held], row.cancel or "cancelled")
        return True
