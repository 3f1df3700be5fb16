"""From a jobspec of any dialect to what Flux runs: V1 documents, and which of them wait for which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rainbow.jobspec.durations import as_number
from rainbow.jobspec.flux.plan import Plan, Unit, plan_of
from rainbow.jobspec.flux.shapes import Shape, shape_of
from rainbow.jobspec.problems import invalid
from rainbow.jobspec.request import Jobspec, Task
from rainbow.jobspec.requirements import text_of

MAX_JOBS = 1000
"""The most Flux jobs that one jobspec may turn into."""


@dataclass(frozen=True, slots=True)
class FluxJob:
    """One job to submit. `name` is unique in the list; `depends_on` are names that stand earlier in it."""

    name: str
    document: dict[str, Any] = field(hash=False)
    depends_on: tuple[str, ...] = ()

    def ready(self, jobids: Mapping[str, str]) -> dict[str, Any]:
        """The document with its dependencies filled in (RFC 26, scheme ``afterok``).

        `jobids` gives the Flux job id, as text, of every name in `depends_on`; a missing one is a KeyError.
        """
        if not self.depends_on:
            return self.document
        waits = [{"scheme": "afterok", "value": jobids[name]} for name in self.depends_on]
        attributes = self.document["attributes"]
        system = attributes["system"]
        system = system | {"dependencies": [*system.get("dependencies", []), *waits]}
        return self.document | {"attributes": attributes | {"system": system}}


class V1Translator:
    """The translator ``v1``: every dialect to V1 (RFC 25), which is all that Flux takes."""

    name = "v1"

    def translate(self, jobspec: Jobspec) -> list[FluxJob]:
        """The Flux jobs that carry out `jobspec`, each after those that it depends on.

        A V1 or canonical jobspec is one job. In nextgen every task is a job, as many times as its
        `replicas` say, and every group a batch job whose script runs the group's tasks inside its
        allocation. Wishes about subsystems are left out: they were decided when the cluster was chosen.
        Every document has ``attributes.system.duration``, 0 where nothing is said.

        Raises:
            InvalidJobspec: says what V1 cannot express, or why the tasks can have no order.
        """
        if jobspec.dialect in ("V1", "simple", "canonical"):
            job = _canonical(jobspec)
            return [FluxJob(jobspec.name or "job", job)]
        return _jobs(plan_of(jobspec))


# -- V1 and canonical ----------------------------------------------------------------------------


def _canonical(jobspec: Jobspec) -> dict[str, Any]:
    document = jobspec.document
    given = document["attributes"] or {}
    system = {**given.get("system", {}), "duration": as_number(jobspec.duration or 0.0)}
    if "environment" in system:
        system["environment"] = {name: text_of(text, "environment") for name, text in system["environment"].items()}
    attributes: dict[str, Any] = {**given, "system": system}
    if jobspec.dialect != "canonical":
        return {**document, "attributes": attributes}
    if len(jobspec.tasks) != 1:
        raise invalid("tasks", f"V1 jobspecs, which Flux runs, have exactly one task; here are {len(jobspec.tasks)}")
    shape = shape_of(jobspec.request.resources, "resources")
    task = jobspec.tasks[0]
    _merge_task(document["tasks"][0], system)
    count = _task_count(task, shape, system)
    label = task.slot or "task"
    return {
        "version": 1,
        "resources": shape.resources(label),
        "tasks": [{"command": list(task.command), "slot": label, "count": count}],
        "attributes": attributes,
    }


def _merge_task(task: dict[str, Any], system: dict[str, Any]) -> None:
    """Move a task's own environment to the job's; null takes a variable away (RFC 14)."""
    attributes = task.get("attributes", {})
    others = sorted(attributes.keys() - {"environment"})
    if others or "distribution" in task:
        what = f"the task attribute {others[0]}" if others else "a distribution of tasks"
        raise invalid("tasks[0]", f"V1 jobspecs, which Flux runs, cannot say: {what}")
    if changes := attributes.get("environment"):
        merged = {**system.get("environment", {}), **changes}
        system["environment"] = {key: value for key, value in merged.items() if value is not None}


def _task_count(task: Task, shape: Shape, system: dict[str, Any]) -> dict[str, int]:
    (kind, value), *_ = task.count
    if kind == "total":
        return {"total": value}
    if kind == "per_slot":
        # V1 takes one task a slot only; more are a larger total on the same slots.
        return {"per_slot": 1} if value == 1 else {"total": value * shape.total_slots}
    each, number = value
    if each not in ("node", "core"):
        raise invalid("tasks[0].count", f"V1 jobspecs, which Flux runs, cannot say: tasks per {each}")
    shell = system.get("shell", {})
    options = {**shell.get("options", {}), "per-resource": {"type": each, "count": number}}
    system["shell"] = {**shell, "options": options}
    return {"per_slot": 1}


# -- nextgen -------------------------------------------------------------------------------------


def _jobs(plan: Plan) -> list[FluxJob]:
    jobs: list[FluxJob] = []
    copies: dict[str, tuple[str, ...]] = {}
    for unit in plan.units:
        waits = tuple(name for dependency in unit.depends_on for name in copies[dependency])
        if len(jobs) + unit.replicas > MAX_JOBS:
            raise invalid(unit.name, f"more than {MAX_JOBS} jobs in one jobspec; submit several")
        names: tuple[str, ...] = (unit.name,)
        if unit.replicas > 1:
            names = tuple(f"{unit.name}-{number}" for number in range(1, unit.replicas + 1))
        copies[unit.name] = names
        jobs += [FluxJob(name, document_of(unit, name), waits) for name in names]
    taken: set[str] = set()
    for job in jobs:
        if job.name in taken:
            raise invalid(job.name, "a copy of a task gets the name that another task has; rename one")
        taken.add(job.name)
    return jobs


def document_of(unit: Unit, name: str) -> dict[str, Any]:
    """The V1 document of one task, or of one group as a batch job, under `name`."""
    settings = unit.settings
    system: dict[str, Any] = {"duration": as_number(settings.duration), "job": {"name": name}}
    if settings.cwd is not None:
        system["cwd"] = settings.cwd
    if settings.environment is not None:
        system["environment"] = dict(settings.environment)
    system |= settings.others
    command, count = list(unit.command), {"per_slot": 1}
    if settings.tasks is not None:
        count = {"total": settings.tasks}
    if unit.script is not None:
        command = [*unit.command, "{{tmpdir}}/script"]
        system["files"] = {"script": {"mode": 0o100700, "encoding": "utf-8", "data": unit.script}}
    if unit.is_group:
        # One broker on each node makes an instance of Flux out of the allocation, and runs the script in it.
        system["shell"] = {"options": {"per-resource": {"type": "node"}, "mpi": "none", "exit-timeout": "none"}}
        count = {"per_slot": 1}
    attributes: dict[str, Any] = {"system": system}
    if settings.image is not None:
        attributes["user"] = {"rainbow": {"image": settings.image}}
    return {
        "version": 1,
        "resources": unit.shape.resources(),
        "tasks": [{"command": command, "slot": "task", "count": count}],
        "attributes": attributes,
    }


__all__ = ["MAX_JOBS", "FluxJob", "V1Translator", "document_of"]
