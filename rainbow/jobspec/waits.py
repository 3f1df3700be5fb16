"""What a jobspec waits for outside of the cluster that it will run on: taken out of the document, as no Flux knows it.

That is, in ``attributes.system.dependencies`` (RFC 26), dependencies on jobs of rainbow and ``begin-time``; and, in
nextgen, ids of jobs in ``depends_on``. All other dependencies stay: they are between the parts of a job, or Flux's own.
"""

from __future__ import annotations

from typing import Any

from rainbow.jobspec.problems import invalid, shown
from rainbow.models.dependencies import SCHEMES, Dependency
from rainbow.models.ids import read_id

BEGIN = "begin-time"
#: Seconds since 1970 in the year 5138.
_LATEST = 1e11

Waits = tuple[tuple[Dependency, ...], float | None]
NONE: Waits = ((), None)


def take_waits(document: dict[str, Any]) -> tuple[dict[str, Any], Waits]:
    """The document without them (itself when there are none, else a copy), and what they are: jobs, and a time.

    Raises:
        InvalidJobspec: a ``begin-time`` that is no time.
    """
    found: list[Dependency] = []
    begin: float | None = None
    attributes = document.get("attributes")
    system = attributes.get("system") if type(attributes) is dict else None
    listed = system.get("dependencies") if type(system) is dict else None
    if type(listed) is list:
        kept: list[Any] = []
        for one in listed:
            dependency = _dependency(one)
            if dependency is not None:
                found.append(dependency)
            elif type(one) is dict and one.get("scheme") == BEGIN:
                begin = max(begin or 0.0, _moment(one.get("value")))
            else:
                kept.append(one)
        if len(kept) != len(listed):
            assert type(attributes) is dict
            assert type(system) is dict
            rest = {key: value for key, value in system.items() if key != "dependencies"}
            if kept:
                rest["dependencies"] = kept
            document = {**document, "attributes": {**attributes, "system": rest}}
    if "tasks" in document or "task" in document:
        document = _without_jobs(document, found)
    return document, (tuple(dict.fromkeys(found)), begin)


def _dependency(one: Any) -> Dependency | None:
    if type(one) is not dict or one.get("scheme") not in SCHEMES:
        return None
    job_id = _job(one.get("value"))
    return None if job_id is None else (one["scheme"], job_id)


def _job(value: Any) -> str | None:
    try:
        return read_id(value) if type(value) is str and len(value) >= 32 else None
    except ValueError:
        return None


def _moment(value: Any) -> float:
    try:
        moment = float(value)
    except (TypeError, ValueError):
        moment = -1.0
    if not 0 <= moment <= _LATEST:
        raise invalid("attributes.system.dependencies", f"begin-time {shown(value)} is no time in seconds since 1970")
    return moment


def _without_jobs(holder: dict[str, Any], found: list[Dependency]) -> dict[str, Any]:
    """A document, group or task without ids of jobs in its ``depends_on`` and below."""
    changed: dict[str, Any] = {}
    names = holder.get("depends_on")
    given = [names] if type(names) is str else names
    if type(given) is list:
        jobs = [job_id for name in given if (job_id := _job(name)) is not None]
        if jobs:
            found.extend(("afterok", job_id) for job_id in jobs)
            changed["depends_on"] = [name for name in given if _job(name) is None]
    for key in ("tasks", "groups"):
        parts = holder.get(key)
        if type(parts) is list:
            bare = [_without_jobs(part, found) if type(part) is dict else part for part in parts]
            if any(new is not old for new, old in zip(bare, parts, strict=True)):
                changed[key] = bare
    task = holder.get("task")
    if type(task) is dict and (bare_task := _without_jobs(task, found)) is not task:
        changed["task"] = bare_task
    return {**holder, **changed} if changed else holder
