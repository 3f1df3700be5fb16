"""The older list form of nextgen: `resources` as in V1, wishes about subsystems in the task.

Written until 2024-05. ``task`` or ``tasks``; ``task.resources.<subsystem>.{match,range}`` are the wishes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rainbow.jobspec.demand import demand_of
from rainbow.jobspec.dialects.canonical import read_system, read_vertex
from rainbow.jobspec.dialects.nextgen import read_names
from rainbow.jobspec.dialects.words import read_words
from rainbow.jobspec.durations import read_seconds
from rainbow.jobspec.problems import invalid, shown
from rainbow.jobspec.request import SLOT, XOR_SLOT, Jobspec, Request, Requirement, Task, Want, shared
from rainbow.jobspec.requirements import read_wishes


def read_old_list(document: dict[str, Any]) -> Jobspec:
    """Read a jobspec of the older list form.

    Raises:
        InvalidJobspec: the first thing that is wrong.
    """
    version = document.get("version")
    if type(version) is not int or version != 1:
        raise invalid("version", "missing; write 1" if version is None else f"{shown(version)} is unknown; write 1")
    resources = document.get("resources")
    if type(resources) is not list or not resources:
        raise invalid("resources", f"a list of at least one resource is needed, not {shown(resources)}")
    wants = tuple(read_vertex(item, f"resources[{at}]", lenient=True) for at, item in enumerate(resources))
    listed = document["tasks"] if "tasks" in document else [document.get("task")]
    if type(listed) is not list or not listed:
        raise invalid("tasks", f"a list of at least one task is needed, not {shown(listed)}")
    tasks: list[Task] = []
    wishes: list[Requirement] = []
    parameters: dict[str, Any] = {}
    for at, item in enumerate(listed):
        path = f"tasks[{at}]" if "tasks" in document else "task"
        tasks.append(_read_task(item, path))
        if "resources" in item:
            wishes += read_wishes(item["resources"], f"{path}.resources")
        parameters |= _parameters(item.get("attributes"), f"{path}.attributes")
    attributes = document.get("attributes")
    parameters |= _parameters(attributes, "attributes")
    duration, constraint = _system(attributes)
    if wishes:
        wants = place(wants, tuple(dict.fromkeys(wishes)))
    name = document.get("name")
    return Jobspec(
        dialect="nextgen-list",
        request=shared(Request(wants, constraint)),
        demand=demand_of(wants),
        document=document,
        tasks=tuple(tasks),
        name=name if type(name) is str else None,
        duration=duration,
        parameters=parameters,
    )


def place(wants: tuple[Want, ...], wishes: tuple[Requirement, ...]) -> tuple[Want, ...]:
    """Put the wishes on the nodes; without nodes on what stands directly above a slot, or else is in it."""
    for chosen in (_is_node, _is_above_slot):
        placed, any_placed = _place(wants, wishes, chosen)
        if any_placed:
            return placed
    return tuple(
        replace(want, children=place(want.children, wishes))
        if want.type in (SLOT, XOR_SLOT)
        else replace(want, requires=wishes)
        for want in wants
    )


def _is_node(want: Want) -> bool:
    return want.type == "node"


def _is_above_slot(want: Want) -> bool:
    return want.type not in (SLOT, XOR_SLOT) and any(child.type in (SLOT, XOR_SLOT) for child in want.children)


def _place(wants: tuple[Want, ...], wishes: tuple[Requirement, ...], chosen: Any) -> tuple[tuple[Want, ...], bool]:
    made: list[Want] = []
    any_placed = False
    for want in wants:
        children, below = _place(want.children, wishes, chosen)
        here = chosen(want)
        any_placed |= below or here
        made.append(replace(want, children=children, requires=wishes if here else want.requires))
    return tuple(made), any_placed


def _read_task(task: Any, path: str) -> Task:
    if type(task) is not dict:
        raise invalid(path, f"a task is a mapping, not {shown(task)}")
    slot = task.get("slot")
    if slot is not None and type(slot) is not str:
        raise invalid(f"{path}.slot", f"the label of a slot is needed, not {shown(slot)}")
    count = task.get("count", {})
    if type(count) is not dict or not all(type(n) is int and n >= 1 for n in count.values()):
        raise invalid(f"{path}.count", "a mapping such as per_slot: 1 is needed")
    name = task.get("name")
    return Task(
        command=tuple(read_words(task["command"], f"{path}.command")) if "command" in task else (),
        name=name if type(name) is str else None,
        slot=slot,
        count=tuple(count.items()),
        depends_on=read_names(task.get("depends_on"), f"{path}.depends_on"),
        extra=task,
    )


def _parameters(attributes: Any, path: str) -> dict[str, Any]:
    if attributes is None:
        return {}
    if type(attributes) is not dict:
        raise invalid(path, f"a mapping is needed, not {shown(attributes)}")
    found = attributes.get("parameter")
    if found is None:
        return {}
    if type(found) is not dict:
        raise invalid(f"{path}.parameter", f"a mapping is needed, not {shown(found)}")
    return found


def _system(attributes: dict[str, Any] | None) -> tuple[float | None, Any]:
    if not attributes:
        return None, None
    system = attributes.get("system")
    if system is not None and type(system) is not dict:
        raise invalid("attributes.system", f"a mapping is needed, not {shown(system)}")
    duration, constraint = read_system(system, 1)
    if duration is None and "duration" in attributes:
        duration = read_seconds(attributes["duration"], "attributes.duration")
    return duration, constraint
