"""The agent of one cluster: all its parts, put together and running. Several may run in one process."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any, cast

from rainbow import brokers, plugins
from rainbow.brokers.base import Broker
from rainbow.client.credentials import read_token_file
from rainbow.client.rpc import Rpc
from rainbow.errors import Denied, InvalidSettings, RainbowError
from rainbow.models.control import AgentCommand
from rainbow.resources.json_stream import Blocks
from rainbow.resources.summary import Summary
from rainbow.settings import Settings, connect_options, secret
from rainbow_agents import health
from rainbow_agents.admission import Load, Policy
from rainbow_agents.bids import Bidder
from rainbow_agents.checks import Checks
from rainbow_agents.commands import Commands
from rainbow_agents.discovery import capacity, discover
from rainbow_agents.events import Publisher
from rainbow_agents.executors.base import (
    Capacity,
    Changed,
    Context,
    Down,
    Executor,
    Happening,
    Listener,
    Up,
    is_news,
    is_outcome,
)
from rainbow_agents.follow import Follower
from rainbow_agents.heartbeat import Heartbeat
from rainbow_agents.identity import Identity, Registration
from rainbow_agents.intake import Intake
from rainbow_agents.journal import Journal
from rainbow_agents.limbo import Limbo
from rainbow_agents.outbox import Outbox
from rainbow_agents.questions import Questions
from rainbow_agents.registration import Registrar
from rainbow_agents.threads import Threads
from rainbow_agents.transcript import Transcript

log = logging.getLogger(__name__)

Password = Callable[[], str]
Connect = Callable[[str | None, Password | None], Broker]
MakeExecutor = Callable[[Context, Listener], Executor]

#: Seconds that ended jobs stay in the journal: longer than any dispatch can still be on its way.
KEEP = 7 * 86400.0
_HOUSEKEEPING = 30.0
#: Jobs that ended within so many seconds are told again when the store lost its data: for as long, a submission that
#: was handed out may come again, or a second copy of its dispatch come back (`queues.dispatch_timeout`).
_TOLD_AGAIN = 1800.0


class Agent:
    """One agent. `start` returns at once; `stop` ends it within its grace. `exit_code` says how it went.

    `connect`, `executor` and `summary` stand in for what the settings would make: a broker (for user and password),
    an executor, the folded graph. Wrong settings raise from the constructor.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        connect: Connect | None = None,
        executor: MakeExecutor | None = None,
        summary: Callable[[], Summary] | None = None,
        reconcile_every: float = 60.0,
        settle_within: float = 60.0,
    ) -> None:
        if settings.cluster.name is None:
            raise InvalidSettings("which cluster is this? set cluster.name (--cluster, or RAINBOW_CLUSTER_NAME)")
        self.cluster = settings.cluster.name
        self.settings = settings
        self.state_dir = settings.agent.state_dir / self.cluster
        self._connect = connect or self._connect_broker
        self._make_executor = executor or cast(MakeExecutor, plugins.load("rainbow.executors", settings.agent.executor))
        self._summary = summary or self._discover
        self._known, self._reading = Blocks(), threading.Lock()
        self._reconcile_every = reconcile_every
        self._settle_within = settle_within
        self._policy = Policy.from_settings(settings.agent)
        self.identity = Identity(self.state_dir)
        self.journal = Journal(self.state_dir / "journal.sqlite", cluster=self.cluster)
        self.registrar = self._make_registrar()
        self.threads = Threads()
        self._quiet = threading.Event()
        self._lock_file: int | None = None
        self._broker: Broker | None = None
        self._executor: Executor | None = None
        self._up = False
        self._phase = "starting"
        self._stopped = False
        self._stop_lock = threading.Lock()
        self._intake: Intake | None = None
        self._follower: Follower | None = None
        self._outbox: Outbox | None = None
        self._heartbeat: Heartbeat | None = None
        self._limbo: Limbo | None = None
        self._bidder: Bidder | None = None
        self._transcript: Transcript | None = None
        self._health = health.HealthFile(settings.agent.health_file) if settings.agent.health_file else None

    # -- life --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin, in the background: wait to be the active one if so set, connect, register, take jobs."""
        self.threads.start("agent", self._begin)

    def wait(self, timeout: float | None = None) -> bool:
        """Until the agent ended by itself (something died) or `request_stop` was called; False after `timeout`."""
        return self.threads.stop.wait(timeout)

    def request_stop(self) -> None:
        """Safe in a signal handler: `wait` returns, then call `stop`."""
        self.threads.stop.set()

    def stop(self, grace: float | None = None) -> int:
        """Stop consuming, finish or give back what is held, flush events, disconnect. Gives the exit code."""
        with self._stop_lock:
            if self._stopped:
                return self.exit_code
            self._stopped = True
        end = time.monotonic() + (self.settings.agent.grace if grace is None else grace)
        self._phase = "stopping"
        self._quiet.set()
        intake, broker = self._intake, self._broker
        if intake is not None:
            deadline = time.monotonic() + 0.6 * (end - time.monotonic())
            while intake.in_flight and time.monotonic() < deadline and self.threads.failure is None:
                time.sleep(0.02)
            intake.close()
        self.threads.stop.set()
        left = self.threads.join(max(1.0, end - time.monotonic() - 1.0))
        if left:
            log.warning("threads still running at the end: %s", ", ".join(left), extra={"action": "stop"})
        if self._executor is not None:
            self._executor.close()
        if self._heartbeat is not None and self._may_send() and self.registrar.registered:
            self._heartbeat.report()
        if self._outbox is not None and self._may_send() and not self._outbox.flush(max(0.5, end - time.monotonic())):
            log.warning("some events will be sent by the next run", extra={"action": "stop"})
        if broker is not None:
            broker.close()
        self.journal.close()
        if self._lock_file is not None:
            os.close(self._lock_file)
        if self._health is not None:
            self._health.remove()
        log.info("stopped", extra={"action": "stop", "code": self.exit_code})
        return self.exit_code

    @property
    def exit_code(self) -> int:
        return self.threads.exit_code

    @property
    def failure(self) -> BaseException | None:
        return self.threads.failure

    def reload(self, settings: Settings) -> None:
        """Take over what may change while running: policy, the admin's values, the graph and subsystem files."""
        self._policy = Policy.from_settings(settings.agent)
        self.settings = settings
        if self._intake is not None:
            self._intake.policy = self._policy
        if self._heartbeat is not None:
            self._heartbeat.values = dict(settings.agent.values)
        self._resync()
        log.info("settings read again", extra={"action": "reload"})

    @property
    def state(self) -> str:
        """What the reports say: starting, stand-by, running, paused, executor-down, stopping."""
        if self._phase != "running":
            return self._phase
        if not self._up:
            return "executor-down"
        if self._intake is not None and self._intake.paused is not None:
            return "paused"
        return "running"

    def health(self) -> health.Health:
        broker, intake, beat = self._broker, self._intake, self._heartbeat
        connected = broker is not None and broker.status.connected
        last_report = beat.last_report if beat else 0.0
        state = self.state
        ok, detail = health.verdict(
            connected=connected or state == "stand-by",
            registered=self.registrar.registered or state == "stand-by",
            state=state,
            last_report=last_report,
            now=time.time(),
        )
        if state == "paused" and intake is not None:
            detail = intake.paused or detail
        return health.Health(
            cluster=self.cluster,
            state=state,
            ok=ok,
            detail=detail,
            written_at=time.time(),
            connected=connected,
            registered=self.registrar.registered,
            last_take=intake.last_take if intake else 0.0,
            last_settle=intake.last_settle if intake else 0.0,
            last_report=last_report,
            events_waiting=self.journal.waiting(),
        )

    # -- parts, for `rainbow-agent check` -------------------------------------------------------------------

    def summary(self) -> Summary:
        """The cluster's graph, folded. Raises InvalidGraph, InvalidSettings, FluxUnreachable."""
        return self._summary()

    def make_executor(self, listener: Listener) -> Executor:
        """The executor of the settings. Raises InvalidSettings, UnknownPlugin."""
        return self._make_executor(self._context(), listener)

    def connect(self) -> Broker:
        """A connection to the broker as this agent makes it."""
        oauth = self.settings.broker.oauth
        return self._connect(f"agent-{self.cluster}" if oauth else None, self._password if oauth else None)

    # -- beginning -----------------------------------------------------------------------------------------

    def _begin(self) -> None:
        stop = self.threads.stop
        if not self._become_active(stop):
            return
        broker = self._open_broker()
        self._broker = broker
        rpc = Rpc(broker, token=self.registrar.token)
        publisher = Publisher(broker, self.cluster, self.registrar)
        settings = self.settings.agent
        outbox = self._outbox = Outbox(self.journal, publisher)
        heartbeat = self._heartbeat = Heartbeat(
            cluster=self.cluster,
            rpc=rpc,
            registrar=self.registrar,
            every=settings.report_every,
            values=settings.values,
            state=lambda: self.state,
            counts=self.journal.counts,
            each=self._write_health,
        )
        follower = self._follower = Follower(
            self.journal,
            wake=outbox.wake,
            changed=lambda news: heartbeat.include([n.mark for n in news]),
            every=self._reconcile_every,
        )
        checks = Checks(
            self.cluster,
            self.registrar.check,
            max_bytes=self.settings.limits.message_bytes * 2,
            max_depth=self.settings.limits.depth + 8,
            clock=time.time,
        )
        intake = self._intake = Intake(
            cluster=self.cluster,
            broker=broker,
            journal=self.journal,
            checks=checks,
            policy=self._policy,
            registrar=self.registrar,
            publisher=publisher,
            prefetch=settings.prefetch,
            settle_within=self._settle_within,
            load=self._load,
            on_accept=lambda _: heartbeat.changed(),
        )
        commands = Commands(
            cluster=self.cluster,
            broker=broker,
            journal=self.journal,
            registrar=self.registrar,
            resync=self._resync,
            bid=(bids := Questions(self.cluster, rpc, self._bids)).ask,
            output=(outputs := Questions(self.cluster, rpc, self._output)).ask,
        )
        limbo = self._limbo = Limbo(self.journal, rpc, self.cluster)
        self.threads.start("registration", lambda: self.registrar.run(rpc, stop))
        executor = self._executor = self.make_executor(self._listen)
        bidder = self._bidder = Bidder(
            self.cluster,
            checks,
            policy=lambda: self._policy,
            load=self._load,
            values=lambda: self.settings.agent.values,
            why_not=self._why_no_jobs,
        )
        transcript = self._transcript = Transcript(self.journal)
        for part in (intake, follower, heartbeat, commands, limbo, bidder, transcript):
            part.executor = executor
        if self._up:
            follower.up()
        self._phase = "running"
        self.threads.start("settling", lambda: intake.run_settling(self._quiet))
        self.threads.start("taking", lambda: intake.run_taking(self._quiet))
        self.threads.start("following", lambda: follower.run(stop))
        self.threads.start("commands", lambda: commands.run(stop))
        self.threads.start("bids", lambda: bids.run(stop))
        self.threads.start("output", lambda: outputs.run(stop))
        self.threads.start("outbox", lambda: outbox.run(stop))
        self.threads.start("heartbeat", lambda: heartbeat.run(stop))
        self.threads.start("housekeeping", lambda: self._keep_house(stop))

    def _become_active(self, stop: threading.Event) -> bool:
        """Agents of one cluster on one state folder share its queue; a stand-by waits until it is alone."""
        descriptor = os.open(self.state_dir / "active.lock", os.O_RDWR | os.O_CREAT, 0o600)
        self._lock_file = descriptor
        kind = fcntl.LOCK_EX if self.settings.agent.role == "stand-by" else fcntl.LOCK_SH
        told = False
        while not stop.is_set():
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if not told:
                    log.info("another agent of this cluster is active: standing by", extra={"action": "stand-by"})
                    told = True
                self._phase = "stand-by"
                self._write_health()
                stop.wait(0.5)
            else:
                self._phase = "starting"
                return True
        return False

    def _open_broker(self) -> Broker:
        """The connection everything goes through; with `oauth` one that the agent's own token opened."""
        if self.settings.broker.oauth and not self.registrar.registered:
            # The token to register with opens the control exchange only, so it gets a connection of its own.
            bootstrap = self.connect()
            try:
                self._register_first(Rpc(bootstrap))
            finally:
                bootstrap.close()
        return self.connect()

    def _register_first(self, rpc: Rpc) -> Registration:
        from rainbow.backoff import Backoff
        from rainbow.errors import Unavailable

        backoff = Backoff(0.5, 15.0)
        while True:
            try:
                return self.registrar.register(rpc)
            except (Denied, InvalidSettings):
                raise
            except RainbowError as exc:
                if not isinstance(exc, Unavailable) and exc.code != "timed-out":
                    raise
                log.warning("not registered yet: %s", exc, extra={"action": "register", "code": exc.code})
                if backoff.wait(self.threads.stop):
                    raise

    def _password(self) -> str:
        token = self.registrar.token()
        if token is None:
            raise Denied("no token opens the broker: set a register token (token, token_file or RAINBOW_TOKEN)")
        return token

    # -- what the settings make ------------------------------------------------------------------------------

    def _make_registrar(self) -> Registrar:
        settings = self.settings
        token = secret(settings.token)
        if token is None and settings.token_file is not None:
            token = read_token_file(settings.token_file)
        registrar = Registrar(
            cluster=self.cluster,
            identity=self.identity,
            summary=lambda: self._summary(),
            token=token,
            secret=secret(settings.scheduler.secret),
            matcher=settings.agent.matcher,
            on_change=self._registration_changed,
            on_loss=self._tell_again,
        )
        given = settings.cluster
        if not registrar.registered and given.registration and given.secret and given.keys:
            registrar.use(
                Registration(
                    cluster=self.cluster,
                    registration=given.registration,
                    secret=given.secret.get_secret_value(),
                    keys={kid: key.get_secret_value() for kid, key in given.keys.items()},
                )
            )
        if not registrar.registered and token is None and settings.scheduler.secret is None:
            raise Denied(
                f"nothing to register cluster {self.cluster} with: set a register token (`rainbow token issue --role "
                "register`, then token or token_file in the settings, or RAINBOW_TOKEN)"
            )
        return registrar

    def _connect_broker(self, user: str | None, password: Password | None) -> Broker:
        options = connect_options(self.settings, f"rainbow-agent {self.cluster}", user=user, password=password)
        return brokers.connect(options)

    def _discover(self) -> Summary:
        with self._reading:
            return discover(self.settings.agent.graph, self.settings.agent.subsystems, self._known)

    def _context(self) -> Context:
        settings = self.settings.agent
        folder = self.state_dir / settings.executor
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        asks_flux = settings.graph is None and settings.executor.startswith("flux")
        return Context(
            cluster=self.cluster,
            owner=self.identity.owner,
            state_dir=folder,
            capacity=Capacity() if asks_flux else capacity(self._summary()),
            options=settings.options,
        )

    # -- what happens ---------------------------------------------------------------------------------------

    def _listen(self, happening: Happening) -> None:
        """From the executor, in any of its threads."""
        intake, follower, heartbeat = self._intake, self._follower, self._heartbeat
        if intake is None or follower is None or heartbeat is None:
            return
        if is_outcome(happening):
            intake.tell(happening)
        elif is_news(happening):
            follower.tell(happening)
        elif isinstance(happening, Up):
            log.info("executor up", extra={"action": "executor-up", "incarnation": happening.incarnation})
            self._up = True
            follower.up()
            intake.up()
            heartbeat.changed()
        elif isinstance(happening, Down):
            log.warning("executor down: %s", happening.reason, extra={"action": "executor-down"})
            self._up = False
            intake.down(f"the executor is down: {happening.reason}")
            heartbeat.changed()
        elif isinstance(happening, Changed):
            if happening.graph:
                self.registrar.request("the resources changed")
            heartbeat.changed()

    def _load(self) -> Load:
        counts = self.journal.counts()
        return Load(queued=counts.get("taken", 0) + counts.get("accepted", 0), running=counts.get("running", 0))

    def _why_no_jobs(self) -> str | None:
        """Why none are taken now; a pause between two looks at the executor is no reason."""
        if self.state == "running":
            return None
        return (self._intake.paused if self._intake is not None else None) or f"the agent is {self.state}"

    def _bids(self, question: AgentCommand) -> dict[str, Any] | None:
        if self._bidder is None:
            return None
        return {"bids": [bid.model_dump(exclude_none=True) for bid in self._bidder.bid(question.asks)]}

    def _output(self, question: AgentCommand) -> dict[str, Any] | None:
        if self._transcript is None or question.output is None:
            return None
        return self._transcript.read(question.output).model_dump(exclude_none=True)

    def _registration_changed(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.changed()

    def _tell_again(self) -> None:
        """The store lost its data: what runs here, and what ended a short while ago, is told once more."""
        told = self.journal.tell_again(_TOLD_AGAIN)
        log.info("the cluster was forgotten: %d jobs are told again", told, extra={"action": "tell-again"})
        if self._outbox is not None:
            self._outbox.wake()

    def _resync(self) -> None:
        self.registrar.request("resync")
        if self._heartbeat is not None:
            self._heartbeat.changed()

    def _may_send(self) -> bool:
        return self._broker is not None and self._broker.status.connected

    def _write_health(self) -> None:
        if self._health is not None:
            self._health.write(self.health())

    def _keep_house(self, stop: threading.Event) -> None:
        pruned = 0.0
        while not stop.wait(_HOUSEKEEPING):
            try:
                if self._limbo is not None and self.state == "running":
                    self._limbo.look()
                if self._intake is not None and self._intake.trouble is not None:
                    # Who registers has its queues made again, if they are gone, and gets a fresh token.
                    self.registrar.request("its queue cannot be read")
                if time.monotonic() - pruned > 3600:
                    self.journal.prune(KEEP)
                    pruned = time.monotonic()
            except RainbowError as exc:
                log.warning("housekeeping: %s", exc, extra={"action": "housekeeping", "code": exc.code})
