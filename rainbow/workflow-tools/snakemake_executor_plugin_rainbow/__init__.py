"""Snakemake's jobs as jobs of rainbow: ``snakemake --executor rainbow --jobs 100``.

Clusters and submitter share the folder of the workflow and its software, unless ``--shared-fs-usage`` says otherwise.
``threads`` are cores; of the resources ``gpu`` (or ``gpus``) and ``runtime`` (minutes) are taken,
and ``rainbow_clusters``, names separated by spaces. Memory and disk are not: Flux allocates neither.
"""

# No `from __future__ import annotations`: Snakemake makes options of the fields' types.

import os
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Optional

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface
from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase

from rainbow.client import Client, Follower
from rainbow.errors import RainbowError
from rainbow.models.job import JobRecord
from rainbow.settings import load


@dataclass
class ExecutorSettings(ExecutorSettingsBase):  # type: ignore[misc]
    """Options ``--rainbow-…``."""

    config: Optional[str] = field(  # noqa: UP045 - Snakemake knows this form only
        default=None, metadata={"help": "Settings file of rainbow (else RAINBOW_CONFIG, ./, ~/.config/rainbow)."}
    )
    hold: float = field(default=0.0, metadata={"help": "Seconds that a job waits for a cluster that can run it."})


common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    pass_default_storage_provider_args=True,
    pass_default_resources_args=True,
    pass_envvar_declarations_to_cmd=True,
    auto_deploy_default_storage_provider=True,
    init_seconds_before_status_checks=0,
)


class Executor(RemoteExecutor):  # type: ignore[misc]
    """Submits each job that is ready, and learns of ends from one follower."""

    def __post_init__(self) -> None:
        settings = self.workflow.executor_settings
        try:
            self.client = Client(settings=load(Path(settings.config) if settings.config else None), name="snakemake")
        except RainbowError as exc:
            raise WorkflowError(f"rainbow: {exc}") from None
        self.follower = Follower(self.client)
        self.ended: dict[str, JobRecord | Exception] = {}

    def run_job(self, job: JobExecutorInterface) -> None:
        """Submit one job."""
        try:
            submitted = self.client.submit(**self._fields(job))
        except RainbowError as exc:
            raise WorkflowError(f"rainbow does not take {job.name}: {exc}") from None
        self.follower.add([(submitted, partial(self._changed, submitted.id))])
        self.report_job_submission(SubmittedJobInfo(job, external_jobid=submitted.id))

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Report the jobs that have ended, and yield the others."""
        for info in active_jobs:
            end = self.ended.pop(info.external_jobid, None)
            if end is None:
                yield info
            elif isinstance(end, JobRecord) and end.state == "completed":
                self.report_job_success(info)
            else:
                self.report_job_error(info, msg=f"rainbow: job {info.external_jobid} {_why(end)}\n")

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Cancel jobs when the workflow is interrupted."""
        try:
            self.client.cancel([info.external_jobid for info in active_jobs], reason="the workflow was cancelled")
        except RainbowError as exc:
            self.logger.warning(f"rainbow: {exc}")

    def shutdown(self) -> None:
        """Disconnect; jobs go on."""
        super().shutdown()
        self.client.close()

    def _changed(self, job_id: str, record: JobRecord | Exception) -> None:
        if isinstance(record, Exception) or record.terminal:
            self.ended[job_id] = record

    def _fields(self, job: JobExecutorInterface) -> dict[str, Any]:
        resources: Mapping[str, Any] = job.resources
        fields: dict[str, Any] = {
            "command": ["/bin/bash", "-c", self.format_job_exec(job)],
            "name": self.get_jobname(job),
            "tasks": 1,
            "cores_per_task": max(1, job.threads),
            "gpus_per_task": int(resources.get("gpus", resources.get("gpu", 0))),
            "environment": {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ},
            "hold": self.workflow.executor_settings.hold,
        }
        if self.workflow.storage_settings.assume_common_workdir:
            fields["cwd"] = os.getcwd()
        if runtime := resources.get("runtime"):
            fields["duration"] = f"{runtime}m"
        if int(resources.get("nodes", 1)) > 1:
            raise WorkflowError(f"{job.name}: a job of Snakemake runs on one node")
        if clusters := resources.get("rainbow_clusters"):
            fields["clusters"] = str(clusters).split()
        return fields


def _why(end: JobRecord | Exception) -> str:
    if isinstance(end, Exception):
        return f"cannot be followed: {end}"
    refused = "; ".join(f"{k}: {v.get('detail')}" for k, v in (end.answer or {}).get("reasons", {}).items())
    return f"{end.state}: {end.detail or refused or end.output or f'exit {end.returncode}'}"
