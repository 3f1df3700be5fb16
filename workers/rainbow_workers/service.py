"""The workers of one process, built from parts, started and stopped together.

There is no global: whoever makes a Service hands it its broker, its store and its key ring.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rainbow import plugins, topology
from rainbow.brokers import declare
from rainbow.brokers.base import Broker
from rainbow.client.mailbox import Mailbox
from rainbow.errors import InvalidSettings
from rainbow.models import control
from rainbow.security.tokens import KeyRing, Verifier
from rainbow_workers.audit import Audit
from rainbow_workers.bidding.bidder import AT_ONCE, Bidding
from rainbow_workers.clusters.bid_accuracy import BidAccuracy
from rainbow_workers.clusters.cache import ClusterCache
from rainbow_workers.clusters.circuit_breaker import BreakerPolicy, CircuitBreaker
from rainbow_workers.clusters.sync import CacheSync
from rainbow_workers.keys import ClusterKeys, RingFile
from rainbow_workers.outlet import Outlet
from rainbow_workers.records.former_queue import FormerQueue
from rainbow_workers.records.recorder import Recorder
from rainbow_workers.registry.epochs import Announcer
from rainbow_workers.registry.operations.access import AccessOperations
from rainbow_workers.registry.operations.barring import Barring
from rainbow_workers.registry.operations.clusters import ClusterOperations
from rainbow_workers.registry.operations.issuing import AGENT_TTL, SUBMIT_TTL, Issuer
from rainbow_workers.registry.operations.jobs import JobOperations
from rainbow_workers.registry.operations.registering import RegisterOperations
from rainbow_workers.registry.operations.relaying import RelayOperations
from rainbow_workers.registry.operations.shares import ShareOperations
from rainbow_workers.registry.registrar import Operation, Registrar
from rainbow_workers.scheduling.arrays import Arrays
from rainbow_workers.scheduling.cancelling import Cancelling
from rainbow_workers.scheduling.contention import Contention
from rainbow_workers.scheduling.decide import Decider
from rainbow_workers.scheduling.dependents import Dependents
from rainbow_workers.scheduling.dispatcher import Dispatcher
from rainbow_workers.scheduling.durations import Durations
from rainbow_workers.scheduling.failover import RateLimiter
from rainbow_workers.scheduling.fair_share import FairShare
from rainbow_workers.scheduling.limits import Limits
from rainbow_workers.scheduling.listening import Parts
from rainbow_workers.scheduling.outgoing import Outgoing
from rainbow_workers.scheduling.rebinding import Rebinding
from rainbow_workers.scheduling.returns import Returns
from rainbow_workers.scheduling.scheduler import Scheduler
from rainbow_workers.scheduling.submissions import SubmissionReader
from rainbow_workers.scheduling.waiting import WaitingPolicy, WaitingRoom
from rainbow_workers.stores.base import Store
from rainbow_workers.stores.confirmed import ConfirmedStore
from rainbow_workers.worker import Task, Worker

log = logging.getLogger(__name__)

#: How many messages that may be large a worker holds.
LARGE_PREFETCH = 200

WORKERS = ("scheduler", "bidding", "registrar", "recorder", "returns")


@dataclass(frozen=True)
class ServiceOptions:
    """How the workers of a process behave. Times in seconds, sizes in bytes.

    `keep` is how long the store keeps the records of ended jobs. `vhost` is where the scopes of tokens that are given
    out hold (None: no scopes). `ring_file` is read again when it is replaced. `audit` is a file, or ``-`` for stdout.
    """

    workers: Sequence[str] = WORKERS
    selection: str = "least-loaded"
    selection_options: Mapping[str, Any] = field(default_factory=dict)
    graphs: str = "folded"
    limits: topology.Limits = field(default_factory=topology.Limits)
    declare: bool = True
    batch: int = 500
    prefetch: int = 2500
    reserve: float = 60.0
    alive_after: float = 35.0
    retry_after: float = 5.0
    keep: float = 7 * 86400.0
    max_attempts: int = 20
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)
    failover_rate: float = 100.0
    waiting: WaitingPolicy = field(default_factory=WaitingPolicy)
    secret: str | None = None
    vhost: str | None = None
    agent_ttl: float = AGENT_TTL
    submit_ttl: float = SUBMIT_TTL
    ring_file: Path | None = None
    audit: Path | None = None
    audit_bytes: int = 64 << 20
    audit_keep: int = 10
    message_bytes: int = 1 << 20
    control_bytes: int = 64 << 20
    depth: int = 64


class Service:
    def __init__(self, broker: Broker, store: Store, ring: KeyRing, options: ServiceOptions | None = None) -> None:
        self.broker = broker
        self.store = store
        self._store = ConfirmedStore(store)
        self._options = options or ServiceOptions()
        self._verifier = Verifier(ring)
        self._keys = ClusterKeys(lambda: self._verifier.ring)
        self._broker = Outlet(broker, self._keys)
        o = self._options
        self._audit = Audit(o.audit, max_bytes=o.audit_bytes, keep=o.audit_keep)
        graphs = plugins.load("rainbow.graphs", o.graphs)()
        self.world = ClusterCache(o.alive_after, o.breaker.threshold, o.waiting.depth, graphs)
        file = self._options.ring_file
        follow_ring = RingFile(file, self._use, self._not_used).look if file else None
        self._follower = CacheSync(
            self.world, self._store, self._verifier, also=follow_ring or (lambda: None), again=self._store.again
        )
        self._turns = RateLimiter(o.failover_rate)
        self._contention = Contention()
        self._fair_share = FairShare(self._store, self.world, o.waiting.shares)
        self._limits = Limits(self._store, self._fair_share.table)
        self._dispatchers: list[Dispatcher] = []
        self.recorders: list[Recorder] = []
        self.room: WaitingRoom | None = None
        self._mailbox = Mailbox(self._broker)
        self._cancelling = Cancelling(self._broker, self._store, self.world, self._follower, self._keys)
        self._former = FormerQueue(self._broker)
        names = list(self._options.workers)
        if "scheduler" in names:
            names += ["waiting", "dependents", "arrays"]
        self.workers = [self._worker(name) for name in names]

    def start(self) -> None:
        """Declare the topology (when allowed) and start the workers. Raises TopologyMismatch, BadCredentials."""
        if self._options.declare:
            declare(self._broker, topology.core(self._options.limits))
        for warning in self._store.warnings():
            log.warning(warning, extra={"action": "store-warning"})
        for worker in self.workers:
            worker.start()
        if self.recorders:
            self._former.start()

    def stop(self, grace: float = 15.0) -> None:
        """Stop taking, let what is under way finish, give back the rest."""
        for worker in self.workers:
            worker.stop()
        self._former.stop()
        deadline = time.monotonic() + grace
        for worker in self.workers:
            if worker.ident is not None:
                worker.join(max(0.0, deadline - time.monotonic()))
        self._mailbox.close()
        self._audit.close()

    def ring(self) -> KeyRing:
        """The key ring in force."""
        return self._verifier.ring

    def _use(self, ring: KeyRing) -> None:
        self._verifier.ring = ring
        self._audit.note(None, "rotate", [kid for kid, _ in ring.keys])

    def _not_used(self, problem: InvalidSettings) -> None:
        self._audit.note(None, "rotate", str(self._options.ring_file), problem.code, problem.message)

    def outcomes(self) -> Counter[str]:
        """How many jobs were assigned, held, denied, and so on, since the start."""
        return sum((d.outcomes for d in self._dispatchers), Counter())

    def durations(self) -> Durations:
        """How long jobs stayed in each stage of scheduling, since the start."""
        return sum((d.durations for d in self._dispatchers), Durations())

    def refused_events(self) -> int:
        """How many events came from clusters that were never given the attempt."""
        return sum(recorder.refused for recorder in self.recorders)

    def failed(self) -> BaseException | None:
        """What ended a worker that should still run: the process must end with it."""
        return next((w.error for w in self.workers if w.error is not None), None)

    # -- building -------------------------------------------------------------------------------------------

    def _worker(self, name: str) -> Worker:
        task: Task = {
            "scheduler": self._scheduler,
            "registrar": self._registrar,
            "recorder": self._recorder,
            "returns": self._returns,
            "bidding": self._bidding,
            "waiting": self._waiting,
            "dependents": self._dependents,
            "arrays": self._arrays,
        }[name]()
        if name == "bidding":
            return Worker(task, self._broker, batch=self._options.batch, prefetch=AT_ONCE, poll=0.05)
        # Resource graphs come to the registrar, some megabytes each.
        prefetch = min(LARGE_PREFETCH, self._options.prefetch) if name == "registrar" else self._options.prefetch
        return Worker(task, self._broker, batch=self._options.batch, prefetch=prefetch)

    def _decider(self, contention: Contention | None = None) -> Decider:
        o = self._options
        return Decider(
            self.world,
            selection=o.selection,
            options=o.selection_options,
            retry_after=o.retry_after,
            max_attempts=o.max_attempts,
            probe_every=o.breaker.probe,
            contention=contention,
        )

    def _intake(self, decider: Decider) -> SubmissionReader:
        return SubmissionReader(
            self._verifier,
            self._keys,
            check_selection=decider.check,
            max_bytes=self._options.message_bytes,
            max_depth=self._options.depth,
            accounts=lambda: self._fair_share.table.names("account"),
            keep=self._options.keep,
            max_array=self._options.waiting.max_array,
        )

    def _dispatcher(self, decider: Decider) -> Dispatcher:
        dispatcher = Dispatcher(
            self._broker,
            self._store,
            self.world,
            decider,
            self._keys,
            lambda: self._verifier.ring,
            turns=self._turns,
            fair_share=self._fair_share,
            limits=self._limits,
            refuse_running=self._options.waiting.refuse_running,
            reserve_s=self._options.reserve,
            lives=self._options.limits.dispatch_timeout,
            lane=self._contention.lane,
        )
        self._dispatchers.append(dispatcher)
        return dispatcher

    def _scheduler(self) -> Task:
        decider = self._decider(self._contention)
        return Scheduler(self._intake(decider), self._dispatcher(decider), self._follower, self._audit)

    def _waiting(self) -> Task:
        """Part of each process that schedules: what one puts into the waiting queues, any may take out."""
        decider = self._decider()
        self.room = WaitingRoom(
            self._broker,
            self._store,
            self.world,
            self._intake(decider),
            decider,
            self._dispatcher(decider),
            Outgoing(self.world, self._keys, lambda: self._verifier.ring, lane=self._contention.lane),
            self._follower,
            self._contention,
            self._fair_share,
            self._options.waiting,
            self._limits,
            audit=self._audit,
        )
        return self.room

    def _dependents(self) -> Task:
        return Dependents(self._listening())

    def _arrays(self) -> Task:
        return Arrays(self._listening(), self._cancelling, self._options.keep)

    def _listening(self) -> Parts:
        """Of workers that are part of each process that schedules, as the waiting room is."""
        return Parts(
            self._broker,
            self._store,
            self.world,
            self._intake(self._decider()),
            Outgoing(self.world, self._keys, lambda: self._verifier.ring),
            self._follower,
            self._keys,
            window=min(60_000, 8 * self._options.waiting.window),
        )

    def _returns(self) -> Task:
        decider = self._decider()
        intake = self._intake(decider)
        return Returns(
            self._broker,
            intake,
            self._dispatcher(decider),
            self._follower,
            self._store,
            self.world,
            self._keys,
            self._mailbox,
            Rebinding(self._broker, self.world, intake, decider),
            self._audit,
        )

    def _bidding(self) -> Task:
        decider = self._decider()
        return Bidding(
            self._broker,
            self._intake(decider),
            self._dispatcher(decider),
            decider,
            self.world,
            self._keys,
            self.ring,
            self._follower,
            BidAccuracy(self._store, self.world),
            self._mailbox,
        )

    def _recorder(self) -> Task:
        recorder = Recorder(
            self._broker,
            self._store,
            self._keys,
            self._follower,
            CircuitBreaker(self._store, self.world, self._options.breaker),
            audit=self._audit,
            max_bytes=self._options.control_bytes,
            max_depth=self._options.depth,
            in_order=lambda: self._former.empty,
        )
        self.recorders.append(recorder)
        return recorder

    def _registrar(self) -> Task:
        o = self._options
        issuer = Issuer(self.ring, vhost=o.vhost, agent_ttl=o.agent_ttl, submit_ttl=o.submit_ttl)
        clusters = ClusterOperations(self._store, self.world)
        registering = RegisterOperations(self._broker, self._store, self.world, issuer, self._keys, o.limits)
        barring = Barring(self._broker, self._store, self.world, o.limits)
        jobs = JobOperations(self._store, self.world, self._cancelling)
        relay = RelayOperations(self._broker, self._store, self.world, self._keys, self.ring)
        shares = ShareOperations(self._store, self.world, self._fair_share)
        access = AccessOperations(self._store, self.world, issuer, barring.bar)
        operations: dict[type, Operation] = {
            control.Ping: access.ping,
            control.ListShares: shares.list_shares,
            control.SetShare: shares.set_share,
            control.ShowQueue: shares.queue,
            control.Revoke: access.revoke,
            control.SettleDead: access.settle_dead,
            control.ListDead: access.settle_dead,
            control.Enroll: access.enroll,
            control.ListEnrollments: access.list_enrollments,
            control.DecideEnrollment: access.decide,
            control.Register: registering.register,
            control.Delete: registering.delete,
            control.SetSubsystem: clusters.set_subsystem,
            control.RemoveSubsystem: clusters.remove_subsystem,
            control.Report: clusters.state,
            control.ListClusters: clusters.list_clusters,
            control.Drain: clusters.drain,
            control.Resume: clusters.resume,
            control.SetGroup: clusters.set_group,
            control.ListGroups: clusters.list_groups,
            control.GetJobs: jobs.status,
            control.ListJobs: jobs.find,
            control.Watch: jobs.watch,
            control.Cancel: jobs.cancel,
            control.GetJobspec: jobs.jobspec,
            control.GetOutput: relay.output,
            control.AgentAnswer: relay.answer,
        }
        announcer = Announcer(self._broker, self.world, self._keys)

        def chores() -> None:
            announcer.look()
            barring.settle()

        return Registrar(
            self._broker,
            self._store,
            self._verifier,
            self._follower,
            operations,
            secret=o.secret,
            max_bytes=o.control_bytes,
            max_depth=o.depth,
            audit=self._audit,
            chores=chores,
        )
