"""Parsl's apps as jobs of rainbow: ``Config(executors=[RainbowExecutor()])``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from parsl.executors.base import ParslExecutor
from parsl.executors.errors import InvalidResourceSpecification
from parsl.utils import RepresentationMixin

from rainbow.client import Client, JobFields
from rainbow.executor import Executor
from rainbow.executor.calls import Resources
from rainbow.settings import load


class RainbowExecutor(ParslExecutor, RepresentationMixin):
    """Each app is a job, which goes to a cluster that can run it; for many short apps use blocks of another executor.

    Args:
        label: The name of this executor, for ``executors=[…]`` of an app.
        config: Settings file of rainbow, None for the one in force.
        resources: What an app needs unless its `parsl_resource_specification` says so: nodes, cores, gpus, duration.
        python: The Python of the clusters, of the same minor version as this one, with cloudpickle and parsl.
        environment: Variables of the jobs.
        job: Further fields of each submission, as `clusters`, `selection`, `hold`.
        working_dir: Parsl's folder for staged files.
        storage_access: Parsl's staging providers.
    """

    def __init__(
        self,
        label: str = "rainbow",
        config: str | None = None,
        resources: Mapping[str, Any] | None = None,
        python: str = "python3",
        environment: Mapping[str, str] | None = None,
        job: JobFields | None = None,
        working_dir: str | None = None,
        storage_access: list[Any] | None = None,
    ) -> None:
        super().__init__()
        self.label = label
        self.config = config
        self.resources = resources
        self.python = python
        self.environment = environment
        self.job = job
        self.working_dir = working_dir
        self.storage_access = storage_access
        self._client: Client | None = None
        self._pool: Executor | None = None

    def start(self) -> None:
        """Connect."""
        self._client = Client(settings=load(Path(self.config) if self.config else None), name="parsl")
        self._pool = Executor(
            self._client, resources=self.resources, python=self.python, environment=self.environment, job=self.job
        )

    def submit(
        self, func: Callable[..., Any], resource_specification: dict[str, Any] | None, *args: Any, **kwargs: Any
    ) -> Future[Any]:
        """Submit one app."""
        assert self._pool is not None, "start() comes first"
        known = Resources.__annotations__
        wanted = resource_specification or {}
        if unknown := set(wanted) - set(known):
            raise InvalidResourceSpecification(unknown, f"write {', '.join(known)}")
        return self._pool.function(**wanted)(func)(*args, **kwargs)

    def shutdown(self) -> None:
        """Wait for the apps that run, and disconnect."""
        if self._pool is not None:
            self._pool.shutdown()
        if self._client is not None:
            self._client.close()
        super().shutdown()

    def monitor_resources(self) -> bool:
        """Parsl's own monitoring of processes does not reach the clusters."""
        return False
