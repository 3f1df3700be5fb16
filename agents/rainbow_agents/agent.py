"""The agent of one cluster: its life, from connecting to the last event. Several may run in one process."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from rainbow.backoff import Backoff
from rainbow.brokers.base import Broker
from rainbow.client.rpc import Rpc
from rainbow.errors import Denied, InvalidSettings, RainbowError, Unavailable
from rainbow.resources.readers.summary import Summary
from rainbow.settings import Settings
from rainbow_agents import health
from rainbow_agents.activation import Activation
from rainbow_agents.executors.base import Executor, Listener
from rainbow_agents.factory import Connect, Factory, MakeExecutor
from rainbow_agents.identity import Identity
from rainbow_agents.intake.admission.policies import Policy
from rainbow_agents.journal import Journal
from rainbow_agents.parts import Core, Parts
from rainbow_agents.reporting.epochs import AGAIN
from rainbow_agents.threads import Threads

log = logging.getLogger(__name__)


class Agent:
    """One agent. `start` returns at once; `stop` ends it within its grace. `exit_code` says how it went.

    `connect`, `executor` and `summary` stand in for what the settings would make: a broker (for user and password),
    an executor, the folded graph. `parts` are there once it is connected. Wrong settings raise from the constructor.

    Args:
        reconcile_every: Seconds between comparisons of the journal with the executor.
        settle_within: Seconds that the executor has to answer a submission.
        keys_within: Seconds that a message whose signature does not hold waits for newer keys.
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
        keys_within: float = 20.0,
    ) -> None:
        if settings.cluster.name is None:
            raise InvalidSettings("which cluster is this? set cluster.name (--cluster, or RAINBOW_CLUSTER_NAME)")
        self.cluster = settings.cluster.name
        self.state_dir = settings.agent.state_dir / self.cluster
        self.threads = Threads()
        self.factory = Factory(
            settings, self.cluster, self.state_dir, connect=connect, executor=executor, summary=summary
        )
        policy = Policy.from_settings(settings.agent)
        self.identity = Identity(self.state_dir)
        self.journal = Journal(self.state_dir / "journal.sqlite", cluster=self.cluster)
        report_due = threading.Event()
        self.registrar = self.factory.registration_client(
            self.identity, on_change=report_due.set, on_loss=self._report_again
        )
        self._core = Core(
            cluster=self.cluster,
            settings=settings,
            policy=policy,
            factory=self.factory,
            identity=self.identity,
            journal=self.journal,
            registrar=self.registrar,
            threads=self.threads,
            report_due=report_due,
            state=lambda: self.state,
            tick=self._write_health,
            reconcile_every=reconcile_every,
            settle_within=settle_within,
            keys_within=keys_within,
        )
        self._activation = Activation(self.state_dir, stand_by=settings.agent.role == "stand-by")
        self._health = health.HealthFile(settings.agent.health_file) if settings.agent.health_file else None
        self.parts: Parts | None = None
        self._quiet = threading.Event()
        self._phase = "starting"
        self._stopped = False
        self._stop_lock = threading.Lock()

    @property
    def settings(self) -> Settings:
        return self._core.settings

    # -- life --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start in the background: wait to be the active one if so set, connect, register, take jobs."""
        self.threads.start("agent", self._begin)

    def wait(self, timeout: float | None = None) -> bool:
        """Until the agent ended by itself (something died) or `request_stop` was called; False after `timeout`."""
        return self.threads.stop.wait(timeout)

    def request_stop(self) -> None:
        """Safe in a signal handler: `wait` returns, then call `stop`."""
        self.threads.stop.set()

    def stop(self, grace: float | None = None) -> int:
        """Stop consuming, finish or give back what is held, flush events, disconnect. Return the exit code."""
        with self._stop_lock:
            if self._stopped:
                return self.exit_code
            self._stopped = True
        end = time.monotonic() + (self.settings.agent.grace if grace is None else grace)
        self._phase = "stopping"
        self._quiet.set()
        parts = self.parts
        if parts is not None:
            deadline = time.monotonic() + 0.6 * (end - time.monotonic())
            while parts.intake.in_flight and time.monotonic() < deadline and self.threads.failure is None:
                time.sleep(0.02)
            parts.intake.close()
        self.threads.stop.set()
        left = self.threads.join(max(1.0, end - time.monotonic() - 1.0))
        if left:
            log.warning("threads still running at the end: %s", ", ".join(left), extra={"action": "stop"})
        if parts is not None:
            self._disconnect(parts, end)
        self.journal.close()
        self._activation.release()
        if self._health is not None:
            self._health.remove()
        log.info("stopped", extra={"action": "stop", "code": self.exit_code})
        return self.exit_code

    def _disconnect(self, parts: Parts, end: float) -> None:
        """Send the last report and what events are left, until `end` at the latest."""
        parts.executor.close()
        if parts.broker.status.connected and self.registrar.registered:
            parts.heartbeat.report()
        if parts.broker.status.connected and not parts.outbox.flush(max(0.5, end - time.monotonic())):
            log.warning("some events will be sent by the next run", extra={"action": "stop"})
        parts.broker.close()

    @property
    def exit_code(self) -> int:
        return self.threads.exit_code

    @property
    def failure(self) -> BaseException | None:
        return self.threads.failure

    def reload(self, settings: Settings) -> None:
        """Take over what may change while running: policy, the admin's values, the graph and subsystem files."""
        self._core.policy = Policy.from_settings(settings.agent)
        self._core.settings = self.factory.settings = settings
        if self.parts is not None:
            self.parts.resync()
        log.info("settings read again", extra={"action": "reload"})

    @property
    def state(self) -> str:
        """As in the reports: starting, stand-by, running, paused, executor-down, stopping."""
        parts = self.parts
        if self._phase != "running" or parts is None:
            return self._phase
        if not parts.gate.is_up:
            return "executor-down"
        return "running" if parts.intake.paused is None else "paused"

    def health(self) -> health.Health:
        parts, state = self.parts, self.state
        connected = parts is not None and parts.broker.status.connected
        last_report = parts.heartbeat.last_report if parts else 0.0
        ok, detail = health.verdict(
            connected=connected or state == "stand-by",
            registered=self.registrar.registered or state == "stand-by",
            state=state,
            last_report=last_report,
            now=time.time(),
        )
        if state == "paused" and parts is not None:
            detail = parts.intake.paused or detail
        unclear = parts.follower.unclear if parts is not None else 0
        if unclear:
            detail = f"{detail}; {unclear} job{'s' if unclear > 1 else ''} cannot be looked up (see the log)"
        return health.Health(
            cluster=self.cluster,
            state=state,
            ok=ok,
            detail=detail,
            written_at=time.time(),
            connected=connected,
            registered=self.registrar.registered,
            last_take=parts.intake.last_take if parts else 0.0,
            last_settle=parts.intake.last_settle if parts else 0.0,
            last_report=last_report,
            events_waiting=self.journal.outbox.waiting(),
            jobs_unclear=unclear,
        )

    # -- for `rainbow-agent check` ---------------------------------------------------------------------------

    def summary(self) -> Summary:
        """The cluster's graph, folded. Raises InvalidGraph, InvalidSettings, FluxUnreachable."""
        return self.factory.summary()

    def make_executor(self, listener: Listener) -> Executor:
        """The executor of the settings. Raises InvalidSettings, UnknownPlugin."""
        return self.factory.executor(self.identity.owner, listener)

    def connect(self) -> Broker:
        """A connection to the broker as this agent makes it."""
        return self.factory.broker(self.registrar.token)

    # -- starting ----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if not self._activation.acquire(self.threads.stop, self._stand_by):
            return
        self._phase = "starting"
        parts = Parts(self._core, self._open_broker())
        self.parts = parts
        self._phase = "running"
        parts.start(self._quiet)

    def _stand_by(self) -> None:
        self._phase = "stand-by"
        self._write_health()

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

    def _register_first(self, rpc: Rpc) -> None:
        backoff = Backoff(0.5, 15.0)
        while True:
            try:
                self.registrar.register(rpc)
            except (Denied, InvalidSettings):
                raise
            except RainbowError as exc:
                if not isinstance(exc, Unavailable) and exc.code != "timed-out":
                    raise
                log.warning("not registered yet: %s", exc, extra={"action": "register", "code": exc.code})
                if backoff.wait(self.threads.stop):
                    raise
            else:
                return

    def _report_again(self) -> None:
        """The store lost its data: what runs here, and what ended a short while ago, is reported once more."""
        count = self.journal.outbox.republish(AGAIN)
        log.info("the cluster was forgotten: %d jobs are reported again", count, extra={"action": "report-again"})

    def _write_health(self) -> None:
        if self._health is not None:
            self._health.write(self.health())


__all__ = ["Agent"]
