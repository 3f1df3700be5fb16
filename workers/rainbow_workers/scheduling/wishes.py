"""What a submission asks for: its jobspec, its bank, and the jobs that it waits for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rainbow.errors import InvalidInput
from rainbow.jobspec import Jobspec, read_cached
from rainbow.jobspec.compatibility import carrying
from rainbow.jobspec.dialects.simple import simple
from rainbow.models.arrays import MAX_TEXT, Array, read_array
from rainbow.models.dependencies import MAX_DEPENDENCIES, Dependency, read_dependencies
from rainbow.models.job import SubmitRequest


def jobspec_of(request: SubmitRequest) -> Jobspec:
    """The jobspec that a submission has, or describes. Raises InvalidJobspec."""
    if request.jobspec is not None:
        spec = read_cached(request.jobspec)
        if not request.compatibility:
            return spec
        made = read_cached(carrying(spec.document, request.compatibility))
        return replace(made, after=spec.after, begin=spec.begin) if spec.after or spec.begin else made
    assert request.command is not None
    document = simple(
        request.command,
        nodes=request.nodes,
        tasks=request.tasks,
        cores_per_task=request.cores_per_task or 1,
        gpus_per_task=request.gpus_per_task or 0,
        duration=request.duration,
        cwd=request.cwd,
        environment=request.environment,
        name=request.name,
        requires=request.requires,
        image=request.image,
    )
    if request.compatibility:
        document = carrying(document, request.compatibility)
    return read_cached(document)


def bank(jobspec: Jobspec) -> str | None:
    """The bank that a jobspec names for Flux, if it does."""
    found = _attribute(jobspec, "system", "bank")
    return found if isinstance(found, str) else None


def array_of(request: SubmitRequest, jobspec: Jobspec, most: int) -> Array | None:
    """The array that a submission asks for: itself, or in ``attributes.user.rainbow.array`` of its jobspec.

    Raises:
        InvalidInput: one that cannot be read, or of more than `most` elements.
    """
    text = request.array if request.array is not None else _attribute(jobspec, "user", "rainbow", "array")
    if text is None:
        return None
    if not isinstance(text, str) or len(text) > MAX_TEXT:
        raise InvalidInput('attributes.user.rainbow.array: write the indices as text, such as "1-100"')
    array = read_array(text)
    if array.size > most:
        raise InvalidInput(
            f"the array has {array.size} elements: at most {most} are taken (scheduler.waiting.max_array)"
        )
    return array


def _attribute(jobspec: Jobspec, *keys: str) -> Any:
    place: Any = jobspec.document.get("attributes")
    for key in keys:
        place = place.get(key) if isinstance(place, Mapping) else None
    return place


def after(job_id: str, request: SubmitRequest, jobspec: Jobspec) -> tuple[Dependency, ...]:
    """The jobs that this one waits for. Raises InvalidInput."""
    if request.dependency is None and not jobspec.after:
        return ()
    found = tuple(dict.fromkeys((*read_dependencies(request.dependency or ()), *jobspec.after)))
    if len(found) > MAX_DEPENDENCIES:
        raise InvalidInput(f"{len(found)} dependencies are too many: at most {MAX_DEPENDENCIES} are taken")
    if any(other == job_id for _, other in found):
        raise InvalidInput("the job depends on itself: name another one")
    return found
