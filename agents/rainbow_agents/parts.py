"""The parts of a running agent, built whole and in order: each gets what it needs in its constructor."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rainbow.brokers.base import Broker
from rainbow.client.rpc import Rpc
from rainbow.errors import RainbowError
from rainbow.models.control import AgentCommand
from rainbow.settings import Settings
from rainbow_agents.commands import Commands
from rainbow_agents.contact import Contact
from rainbow_agents.factory import Factory
from rainbow_agents.identity import Identity
from rainbow_agents.intake.admission.policies import Load, Policy
from rainbow_agents.intake.bids import Bidder
from rainbow_agents.intake.finalizer import Finalizer
from rainbow_agents.intake.freshness import Freshness
from rainbow_agents.intake.gate import IntakeGate
from rainbow_agents.intake.held_jobs import HeldJobReconciler
from rainbow_agents.intake.in_flight import InFlight
from rainbow_agents.intake.intake import Intake
from rainbow_agents.intake.receiver import Receiver
from rainbow_agents.intake.validation import Checks
from rainbow_agents.journal import Journal
from rainbow_agents.registration.client import RegistrationClient
from rainbow_agents.registration.request_worker import RequestWorker
from rainbow_agents.reporting.epochs import EpochReporter
from rainbow_agents.reporting.events import Publisher
from rainbow_agents.reporting.follower import Follower
from rainbow_agents.reporting.heartbeat import Heartbeat, reported
from rainbow_agents.reporting.outbox import Outbox
from rainbow_agents.reporting.output_reader import OutputReader
from rainbow_agents.routing import EventRouter
from rainbow_agents.threads import Threads

log = logging.getLogger(__name__)

#: Seconds between looks of the housekeeping thread.
HOUSEKEEPING = 30.0
#: Seconds that ended jobs stay in the journal: longer than any dispatch can still be on its way.
KEEP = 7 * 86400.0


@dataclass(slots=True)
class Core:
    """What an agent has before it is connected. `settings` and `policy` change when the settings are read again."""

    cluster: str
    settings: Settings
    policy: Policy
    factory: Factory
    identity: Identity
    journal: Journal
    registrar: RegistrationClient
    threads: Threads
    report_due: threading.Event
    #: The agent's state, as the reports have it.
    state: Callable[[], str]
    #: Called with each look of the heartbeat thread.
    tick: Callable[[], None]
    reconcile_every: float
    settle_within: float
    keys_within: float

    def load(self) -> Load:
        counts = self.journal.counts()
        return Load(queued=counts.get("taken", 0) + counts.get("accepted", 0), running=counts.get("running", 0))


class Parts:
    """Builds all parts on a `broker` connection; `start` starts their threads."""

    def __init__(self, core: Core, broker: Broker) -> None:
        self._core = core
        self._rpc = Rpc(broker, token=core.registrar.token)
        self.broker = broker
        self.gate = IntakeGate()
        router = EventRouter(
            self.gate,
            core.report_due,
            lambda: core.registrar.request("the resources changed"),
            lambda error: core.threads.fail("executor", error),
        )
        self.listener = router.listen
        self.executor = core.factory.executor(core.identity.owner, self.listener)
        publisher = Publisher(broker, core.cluster, core.registrar)
        self.outbox = Outbox(core.journal, publisher, lambda: self._epochs.drained())
        self._contact = Contact(core.journal.epochs.confirmed_at)
        self._epochs = EpochReporter(
            core.cluster, broker, core.journal, core.registrar, contact=self._contact, wake=self.outbox.wake
        )
        self.heartbeat = self._build_heartbeat()
        self.follower = Follower(
            core.journal,
            self.executor,
            router.progress,
            wake=self.outbox.wake,
            changed=self.heartbeat.follow,
            every=core.reconcile_every,
        )
        checks = Checks(
            core.cluster,
            core.registrar.check,
            max_bytes=core.settings.limits.message_bytes * 2,
            max_depth=core.settings.limits.depth + 8,
            clock=time.time,
        )
        self.intake = self._build_intake(router, publisher, checks)
        self._bidder = Bidder(
            core.cluster,
            checks,
            self.executor,
            policy=lambda: core.policy,
            load=core.load,
            values=lambda: core.settings.agent.values,
            why_not=self._why_no_jobs,
        )
        self._output_reader = OutputReader(core.journal, self.executor)
        self._bids = RequestWorker(core.cluster, self._rpc, self._answer_bids)
        self._outputs = RequestWorker(core.cluster, self._rpc, self._answer_output)
        self._commands = self._build_commands()
        self._held_jobs = HeldJobReconciler(core.journal, self._rpc, core.cluster, self.executor, wake=self.outbox.wake)

    def _build_heartbeat(self) -> Heartbeat:
        core = self._core
        return Heartbeat(
            cluster=core.cluster,
            rpc=self._rpc,
            registrar=core.registrar,
            executor=self.executor,
            report_due=core.report_due,
            every=core.settings.agent.report_every,
            values=lambda: {"jobs_unclear": self.follower.unclear, **reported(core.settings.agent)},
            state=core.state,
            counts=core.journal.counts,
            each=core.tick,
            heard=self._epochs.heard,
            contact=self._contact,
        )

    def _build_commands(self) -> Commands:
        core = self._core
        return Commands(
            cluster=core.cluster,
            broker=self.broker,
            journal=core.journal,
            executor=self.executor,
            registrar=core.registrar,
            resync=self.resync,
            bid=self._bids.ask,
            output=self._outputs.ask,
            keys_within=core.keys_within,
        )

    def _build_intake(self, router: EventRouter, publisher: Publisher, checks: Checks) -> Intake:
        core = self._core
        in_flight = InFlight(self.broker, core.cluster, core.settings.agent.prefetch)
        finalizer = Finalizer(
            cluster=core.cluster,
            journal=core.journal,
            publisher=publisher,
            in_flight=in_flight,
            gate=self.gate,
            executor=self.executor,
            inbox=router.outcomes,
            settle_within=core.settle_within,
            on_accept=lambda _: core.report_due.set(),
            doubt=Freshness(lambda: core.journal.epochs.reported, lambda: self._contact.missed).doubt,
            on_doubt=lambda keys: self._held_jobs.confirm(keys),
        )
        receiver = Receiver(
            journal=core.journal,
            checks=checks,
            policy=lambda: core.policy,
            registrar=core.registrar,
            in_flight=in_flight,
            gate=self.gate,
            executor=self.executor,
            finalizer=finalizer,
            load=core.load,
            keys_within=core.keys_within,
        )
        return Intake(core.journal, in_flight, receiver, finalizer)

    def start(self, quiet: threading.Event) -> None:
        """Start all threads. No job is taken any more once `quiet` is set; all end with the agent's `stop`."""
        threads = self._core.threads
        stop = threads.stop
        threads.start("registration", lambda: self._core.registrar.run(self._rpc, stop))
        threads.start("finalizer", lambda: self.intake.run_finalizer(quiet))
        threads.start("receiver", lambda: self.intake.run_receiver(quiet))
        threads.start("follower", lambda: self.follower.run(stop))
        threads.start("commands", lambda: self._commands.run(stop))
        threads.start("bids", lambda: self._bids.run(stop))
        threads.start("output", lambda: self._outputs.run(stop))
        threads.start("held-jobs", lambda: self._held_jobs.run(stop))
        threads.start("outbox", lambda: self.outbox.run(stop))
        threads.start("heartbeat", lambda: self.heartbeat.run(stop))
        threads.start("housekeeping", lambda: self._keep_house(stop))

    def resync(self) -> None:
        """Register again, and report."""
        self._core.registrar.request("resync")
        self._core.report_due.set()

    # -- answers -----------------------------------------------------------------------------------------------

    def _why_no_jobs(self) -> str | None:
        """Why none are taken now; a pause between two looks at the executor is no reason."""
        state = self._core.state()
        return None if state == "running" else self.intake.paused or f"the agent is {state}"

    def _answer_bids(self, question: AgentCommand) -> dict[str, Any]:
        return {"bids": [bid.model_dump(exclude_none=True) for bid in self._bidder.bid(question.asks)]}

    def _answer_output(self, question: AgentCommand) -> dict[str, Any] | None:
        if question.output is None:
            return None
        return self._output_reader.read(question.output).model_dump(exclude_none=True)

    # -- housekeeping ------------------------------------------------------------------------------------------

    def _keep_house(self, stop: threading.Event) -> None:
        pruned, asked = 0.0, False
        while not stop.wait(HOUSEKEEPING if asked else 1.0):
            try:
                if self._core.state() == "running":
                    self._held_jobs.look() if asked else self._held_jobs.confirm_left()
                    asked = True
                if self.intake.trouble is not None:
                    # Whoever registers has its queues declared again, if they are gone, and gets a fresh token.
                    self._core.registrar.request("its queue cannot be read")
                if time.monotonic() - pruned > 3600:
                    self._core.journal.prune(KEEP)
                    pruned = time.monotonic()
            except RainbowError as exc:
                log.warning("housekeeping: %s", exc, extra={"action": "housekeeping", "code": exc.code})


__all__ = ["KEEP", "Core", "Parts"]
