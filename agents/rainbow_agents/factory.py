"""What the settings make: the cluster's graph, a connection, an executor, the client of the registrar."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

from rainbow import brokers, plugins
from rainbow.brokers.base import Broker
from rainbow.errors import Denied
from rainbow.resources.graph.json_stream import Blocks
from rainbow.resources.readers.summary import Summary
from rainbow.security import bearer
from rainbow.settings import Settings, connect_options, secret
from rainbow_agents.discovery import capacity, discover
from rainbow_agents.executors.base import Capacity, Context, Executor, Listener
from rainbow_agents.identity import Identity, Registration
from rainbow_agents.registration.client import RegistrationClient
from rainbow_agents.staging import StagingExecutor
from rainbow_agents.state import private_folder

Password = Callable[[], str]
Connect = Callable[[str | None, Password | None], Broker]
MakeExecutor = Callable[[Context, Listener], Executor]


class Factory:
    """`connect`, `executor` and `summary` stand in for what the settings would make.

    Raises:
        UnknownPlugin: There is no such executor.
    """

    def __init__(
        self,
        settings: Settings,
        cluster: str,
        state_dir: Path,
        *,
        connect: Connect | None = None,
        executor: MakeExecutor | None = None,
        summary: Callable[[], Summary] | None = None,
    ) -> None:
        self.settings = settings
        self.cluster = cluster
        self.state_dir = state_dir
        self._connect = connect or self._connect_broker
        self._make_executor = executor or cast(MakeExecutor, plugins.load("rainbow.executors", settings.agent.executor))
        self._summary = summary or self._discover
        self.known, self._reading = Blocks(), threading.Lock()

    def summary(self) -> Summary:
        """The cluster's graph, folded. Raises InvalidGraph, InvalidSettings, FluxUnreachable."""
        return self._summary()

    def executor(self, owner: str, listener: Listener) -> Executor:
        """The executor; `owner` marks our jobs. Raises InvalidSettings, UnknownPlugin."""
        settings = self.settings.agent
        folder = self.state_dir / settings.executor
        with private_folder(folder):
            pass
        asks_flux = settings.graph is None and settings.executor.startswith(("flux", "auto"))
        context = Context(
            cluster=self.cluster,
            owner=owner,
            state_dir=folder,
            capacity=Capacity() if asks_flux else capacity(self.summary()),
            options=settings.options,
        )
        files = self.settings.staging.folder
        if files is not None:
            files /= f"{self.cluster}-{owner}"  # other agents may have the same folder, and remove what is not theirs
        elif settings.executor == "local":
            files = self.state_dir / "files"
        return StagingExecutor(partial(self._make_executor, context), listener, self.settings.staging, files)

    def broker(self, token: Callable[[], str | None]) -> Broker:
        """A connection to the broker; with `broker.oauth` the agent's own `token` opens it."""

        def password() -> str:
            value = token()
            if value is None:
                raise Denied("no token opens the broker: set a register token (token, token_file or RAINBOW_TOKEN)")
            return value

        if self.settings.broker.oauth:
            return self._connect(f"agent-{self.cluster}", password)
        return self._connect(None, None)

    def registration_client(
        self, identity: Identity, *, on_change: Callable[[], None], on_loss: Callable[[], None]
    ) -> RegistrationClient:
        """Raises Denied when there is nothing to register with."""
        settings = self.settings
        token = secret(settings.token)
        if token is None and settings.token_file is not None:
            token = bearer.read_file(settings.token_file)
        registrar = RegistrationClient(
            cluster=self.cluster,
            identity=identity,
            summary=self.summary,
            token=token,
            secret=secret(settings.scheduler.secret),
            matcher=settings.agent.matcher,
            on_change=on_change,
            on_loss=on_loss,
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
            return discover(self.settings.agent.graph, self.settings.agent.subsystems, self.known)


__all__ = ["Connect", "Factory", "MakeExecutor", "Password"]
