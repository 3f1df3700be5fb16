"""PSI/J's jobs as jobs of rainbow: ``JobExecutor.get_instance("rainbow")``."""

from __future__ import annotations

import os
import shlex
import time
from functools import partial
from pathlib import Path
from typing import Any

from psij import (
    InvalidJobException,
    Job,
    JobExecutor,
    JobExecutorConfig,
    JobSpec,
    JobState,
    JobStatus,
    ResourceSpecV1,
    SubmitException,
)

from rainbow.client import Client, Follower
from rainbow.client import Job as Submitted
from rainbow.errors import InvalidInput, RainbowError
from rainbow.models.job import JobRecord
from rainbow.settings import load

_STATES = {
    "completed": JobState.COMPLETED,
    "cancelled": JobState.CANCELED,
    "running": JobState.ACTIVE,
    "submitted": JobState.QUEUED,
    "held": JobState.QUEUED,
    "assigned": JobState.QUEUED,
    "accepted": JobState.QUEUED,
    "rejected": JobState.QUEUED,
}


class RainbowJobExecutor(JobExecutor):
    """Submits to rainbow with the settings in force.

    Args:
        url: A settings file of rainbow, None for the one in force.
        config: Not used beyond what PSI/J itself does with it.

    The launchers ``single``, ``multiple``, ``srun``, ``mpirun`` and none all start the tasks as Flux does. Custom
    attributes ``rainbow.clusters`` (names separated by spaces) and ``rainbow.hold`` go into the submission. What has no
    counterpart is refused, unless the custom attribute ``rainbow.ignore_unsupported`` is set.
    """

    def __init__(self, url: str | None = None, config: JobExecutorConfig | None = None) -> None:
        super().__init__(url=url, config=config or JobExecutorConfig())
        self._client = Client(settings=load(Path(url) if url else None), name="psij")
        self._follower = Follower(self._client)
        #: Ids of our jobs that have not ended: the registrar may not know the newest yet.
        self._open: set[str] = set()

    def submit(self, job: Job) -> None:
        """See `psij.JobExecutor.submit`."""
        spec = self._check_job(job)
        try:
            submitted = self._client.submit(**_fields(spec))
        except InvalidInput as exc:
            job.executor = None
            raise InvalidJobException(str(exc)) from exc
        except RainbowError as exc:
            job.executor = None
            raise SubmitException(str(exc)) from exc
        job._native_id = submitted.id
        self._follow(job, submitted)

    def cancel(self, job: Job) -> None:
        """See `psij.JobExecutor.cancel`."""
        if job.native_id is None:
            raise SubmitException("the job has not been submitted")
        if not job.status.final:
            self._follower.cancel(job.native_id)

    def list(self) -> list[str]:
        """The ids of jobs that have not ended: ours, and among the newest 1000 that the token may see."""
        try:
            others = [record.id for record in self._client.jobs(limit=1000) if not record.terminal]
            return list(dict.fromkeys([*self._open, *others]))
        except RainbowError as exc:
            raise SubmitException(str(exc)) from exc

    def attach(self, job: Job, native_id: str) -> None:
        """See `psij.JobExecutor.attach`."""
        if job.status.state != JobState.NEW:
            raise InvalidJobException("Job must be in the NEW state")
        job.executor = self
        job._native_id = native_id
        self._follow(job, self._client.job(native_id))

    def _follow(self, job: Job, submitted: Submitted) -> None:
        self._set_job_status(job, JobStatus(JobState.QUEUED, time=time.time()))
        self._open.add(submitted.id)
        self._follower.add([(submitted, partial(self._changed, job))])

    def _changed(self, job: Job, record: JobRecord | Exception) -> None:
        if isinstance(record, Exception) or record.terminal:
            self._open.discard(str(job.native_id))
        if isinstance(record, Exception):
            self._set_job_status(job, JobStatus(JobState.FAILED, time=time.time(), message=str(record)))
            return
        state = _STATES.get(record.state, JobState.FAILED)
        if state == job.status.state:
            return
        metadata: dict[str, object] = {"cluster": record.cluster, "attempt": record.attempt}
        status = JobStatus(
            state,
            time=record.times.get("ended" if record.terminal else record.state, time.time()),
            message=None if state != JobState.FAILED else record.detail or record.state,
            exit_code=record.returncode if state in (JobState.COMPLETED, JobState.FAILED) else None,
            metadata=metadata,
        )
        self._set_job_status(job, status)


def _fields(spec: JobSpec) -> dict[str, Any]:
    """The submission for a specification. Raises InvalidJobException for what has no counterpart."""
    if not spec.executable:
        raise InvalidJobException("Job must have an executable")
    resources = spec.resources
    if not isinstance(resources, ResourceSpecV1):
        raise InvalidJobException("only resources of version 1 are known")
    attributes = spec.attributes
    custom = attributes.custom_attributes or {}
    for name, value in (
        ("memory", resources.memory),
        ("reservation_id", attributes.reservation_id),
        ("queue_name", attributes.queue_name),
        # Of PSI/J's next release.
        *((name, getattr(spec, name, None)) for name in ("stage_in", "stage_out", "cleanup")),
    ):
        if value and not custom.get("rainbow.ignore_unsupported"):
            raise InvalidJobException(
                f"{name} has no counterpart in rainbow's simple form: leave it out, or set the custom attribute "
                "rainbow.ignore_unsupported"
            )
    fields: dict[str, Any] = {
        "command": _command(spec),
        "name": spec.name or "psij",
        "tasks": resources.computed_process_count,
        "cores_per_task": resources.cpu_cores_per_process or 1,
        "gpus_per_task": resources.gpu_cores_per_process or 0,
        "duration": attributes.duration.total_seconds(),
        "environment": _environment(spec),
        "hold": float(str(custom.get("rainbow.hold", 0.0))),
        "account": attributes.account,
    }
    if resources.node_count is not None or resources.processes_per_node is not None:
        fields["nodes"] = resources.computed_node_count
    if resources.exclusive_node_use:
        if resources.computed_process_count != resources.computed_node_count:
            raise InvalidJobException("exclusive nodes are given for one process a node")
        fields["nodes"] = resources.computed_node_count
        del fields["tasks"]
    if spec.directory is not None:
        fields["cwd"] = str(spec.directory)
    if "rainbow.clusters" in custom:
        fields["clusters"] = str(custom["rainbow.clusters"]).split()
    return fields


def _command(spec: JobSpec) -> list[str]:
    """The command; a shell around it for what goes before and after, and for files as its streams."""
    words = [spec.executable, *(spec.arguments or ())]
    streams = (("<", spec.stdin_path), (">", spec.stdout_path), ("2>", spec.stderr_path))
    redirected = [f"{sign}{shlex.quote(str(path))}" for sign, path in streams if path is not None]
    if not redirected and spec.pre_launch is None and spec.post_launch is None:
        return words
    lines = []
    if spec.pre_launch is not None:
        lines.append(f". {shlex.quote(str(spec.pre_launch))}")
    lines.append(" ".join([shlex.join(words), *redirected]))
    if spec.post_launch is not None:
        lines += ["code=$?", f". {shlex.quote(str(spec.post_launch))}", "exit $code"]
    return ["/bin/bash", "-c", "\n".join(lines)]


def _environment(spec: JobSpec) -> dict[str, str]:
    """What the specification sets; PATH and HOME of here with `inherit_environment`, the rest stays here."""
    inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    given = {name: str(value) for name, value in (spec.environment or {}).items()}
    return {**(inherited if spec.inherit_environment else {}), **given}
