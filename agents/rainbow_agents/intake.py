"""From the cluster's queue into the executor: each job started exactly once, whatever happens in between.

Two threads share the work, so that many jobs are under way at a time: one takes (see `taking`), one settles what came
of it (see `settling`). What both know is in `underway` and `gate`; here they are put together.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from rainbow.brokers.base import Broker
from rainbow_agents.admission import Load, Policy
from rainbow_agents.checks import Checks
from rainbow_agents.events import Publisher
from rainbow_agents.executors.base import Executor, Mark, Outcome
from rainbow_agents.gate import Gate
from rainbow_agents.journal import Journal, JournalDown
from rainbow_agents.registration import Registrar
from rainbow_agents.settling import SETTLE_WITHIN, Settling
from rainbow_agents.taking import KEYS_WITHIN, Taking
from rainbow_agents.underway import Underway

log = logging.getLogger(__name__)


class Intake:
    """See the module. `executor` is set by the agent; `up`/`down` say whether it can be used."""

    def __init__(
        self,
        *,
        cluster: str,
        broker: Broker,
        journal: Journal,
        checks: Checks,
        policy: Policy,
        registrar: Registrar,
        publisher: Publisher,
        prefetch: int = 64,
        settle_within: float = SETTLE_WITHIN,
        keys_within: float = KEYS_WITHIN,
        load: Callable[[], Load],
        on_accept: Callable[[Sequence[Mark]], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._journal = journal
        self._gate = Gate()
        self._underway = Underway(broker, cluster, prefetch)
        self._settling = Settling(
            cluster=cluster,
            journal=journal,
            publisher=publisher,
            underway=self._underway,
            gate=self._gate,
            settle_within=settle_within,
            on_accept=on_accept,
            clock=clock,
        )
        self._taking = Taking(
            journal=journal,
            checks=checks,
            policy=policy,
            registrar=registrar,
            underway=self._underway,
            gate=self._gate,
            settling=self._settling,
            load=load,
            keys_within=keys_within,
            clock=clock,
        )
        self.run_taking: Callable[[threading.Event], None] = self._taking.run
        self.run_settling: Callable[[threading.Event], None] = self._settling.run
        self.up: Callable[[], None] = self._gate.up
        self.down: Callable[[str], None] = self._gate.down
        self.tell: Callable[[Outcome], None] = self._settling.tell

    @property
    def executor(self) -> Executor | None:
        return self._gate.given

    @executor.setter
    def executor(self, executor: Executor) -> None:
        self._gate.given = executor

    @property
    def policy(self) -> Policy:
        return self._taking.policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self._taking.policy = policy

    @property
    def last_take(self) -> float:
        return self._taking.last

    @property
    def last_settle(self) -> float:
        return self._settling.last

    @property
    def paused(self) -> str | None:
        """Why no jobs are taken: ours not to, or the broker that gives us none. None while they are."""
        return self._taking.paused or self.trouble

    @property
    def trouble(self) -> str | None:
        """Why the broker gives us nothing from the queue, while it does not."""
        return self._underway.trouble

    @property
    def in_flight(self) -> int:
        return self._underway.unsettled

    def close(self) -> None:
        """At the end: what is still under way goes back, as if it had not been taken; the queue is let go of."""
        marks = self._underway.abandon()
        if marks:
            log.warning("%d jobs are given back unsubmitted", len(marks), extra={"action": "stop"})
            try:
                self._journal.returned(marks)
            except JournalDown as exc:
                log.error("%s", exc, extra={"action": "stop"})  # noqa: TRY400
        self._underway.close()


__all__ = ["Intake"]
