"""Jobspec "nextgen" (compspec, version 1): named resources, several tasks, groups.

The published schema looks at little; what is checked here is what can be run in the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rainbow.jobspec.counts import ONE, exactly
from rainbow.jobspec.demand import demand_of
from rainbow.jobspec.dialects.words import read_words
from rainbow.jobspec.durations import read_seconds
from rainbow.jobspec.problems import invalid, shown
from rainbow.jobspec.request import SLOT, XOR_SLOT, Jobspec, Request, Requirement, Task, Want, shared
from rainbow.jobspec.requirements import read_requires
from rainbow.ranges.idset import MAX_ID

_REFERENCE = re.compile(r"[|&,]")

#: What Flux gives a task that says nothing of resources: one slot of one core.
DEFAULT_RESOURCE = Want(SLOT, ONE, (Want("core", ONE),))


def read_nextgen(document: dict[str, Any]) -> Jobspec:
    """Read a nextgen jobspec.

    Raises:
        InvalidJobspec: the first thing that is wrong.
    """
    version = document.get("version")
    if type(version) is not int or version != 1:
        raise invalid("version", "missing; write 1" if version is None else f"{shown(version)} is unknown; write 1")
    name = _optional_text(document, "name", "")
    resources = _mapping(document, "resources", "")
    wants: dict[str, Want] = {}
    scheduled: list[str] = []
    for key, resource in resources.items():
        wants[key] = read_resource(resource, f"resources.{key}")
        if _schedules(resource, f"resources.{key}"):
            scheduled.append(key)
    if "requires" in document:
        _check_named_requires(document["requires"])
    attributes = _mapping(document, "attributes", "")
    groups = list(walk_groups(document.get("groups", []), "groups"))
    tasks = tuple(read_task(task, path) for task, path in _listed_tasks(document))
    inner: list[Task] = []
    for group, path in groups:
        inner += [read_task(task, where) for task, where in _group_tasks(group, path)]
    _check_references(wants, groups, tasks, inner)
    if scheduled:
        asked = scheduled
    else:
        within = _only_within(groups, tasks, inner)
        asked = [key for key in wants if key not in within]
    request = tuple(wants[key] for key in asked)
    if not wants and (tasks or groups):
        request = (DEFAULT_RESOURCE,)
    return Jobspec(
        dialect="nextgen",
        request=shared(Request(request)),
        demand=demand_of(request),
        document=document,
        tasks=tasks,
        name=name,
        duration=_duration(attributes, [resources[key] for key in asked]),
        parameters=_mapping(attributes, "parameter", "attributes"),
    )


# -- resources -----------------------------------------------------------------------------------


def read_resource(resource: Any, path: str) -> Want:
    """Read a resource with all below it. ``replicas: N`` puts a slot of N around it."""
    if type(resource) is not dict:
        raise invalid(path, f"a resource is a mapping with type and count, not {shown(resource)}")
    kind = resource.get("type")
    if type(kind) is not str or not kind:
        raise invalid(f"{path}.type", f"the type of a resource is text, not {shown(kind)}")
    if "count" not in resource and "replicas" not in resource:
        raise invalid(path, "how many is missing; add count or replicas")
    count = _number(resource, "count", path)
    replicas = _number(resource, "replicas", path) if "replicas" in resource else None
    below = resource.get("with", [])
    if type(below) is dict:  # the specification's own example leaves the list out
        below = [below]
    if type(below) is not list:
        raise invalid(f"{path}.with", f"a list of resources is needed, not {shown(below)}")
    children = tuple(read_resource(one, f"{path}.with[{at}]") for at, one in enumerate(below))
    if kind in (SLOT, XOR_SLOT) and not children:
        raise invalid(f"{path}.with", "an empty slot; say what is in it")
    requires: tuple[Requirement, ...] = ()
    if "requires" in resource:
        requires = read_requires(resource["requires"], f"{path}.requires")
        if requires and kind in (SLOT, XOR_SLOT):
            raise invalid(f"{path}.requires", "a slot is no thing that could meet it; move it to what is in the slot")
    attributes = _mapping(resource, "attributes", path)
    if "duration" in attributes:
        read_seconds(attributes["duration"], f"{path}.attributes.duration")
    exclusive = resource.get("exclusive")
    if exclusive is not None and type(exclusive) is not bool:
        raise invalid(f"{path}.exclusive", f"{shown(exclusive)} is neither true nor false")
    unit = _optional_text(resource, "unit", path)
    want = Want(kind, exactly(count), children, exclusive, unit, None, requires)
    return want if replicas is None else Want(SLOT, exactly(replicas), (want,))


def _number(holder: dict[str, Any], key: str, path: str) -> int:
    value = holder.get(key, 1)
    if type(value) is not int or not 1 <= value <= MAX_ID:
        raise invalid(f"{path}.{key}", f"{shown(value)} is no number of them; write a whole number from 1 up")
    return value


def _schedules(resource: dict[str, Any], path: str) -> bool:
    value = resource.get("schedule", False)
    if type(value) is not bool:
        raise invalid(f"{path}.schedule", f"{shown(value)} is neither true nor false")
    return value


def _check_named_requires(groups: Any) -> None:
    """Top-level `requires`: named lists of user-space wishes. They take no part in the choice of a cluster."""
    if type(groups) is not dict:
        raise invalid("requires", f"a mapping of names to lists is needed, not {shown(groups)}")
    for key, items in groups.items():
        if type(items) is not list or not all(type(item) is dict for item in items):
            raise invalid(f"requires.{key}", f"a list of mappings is needed, not {shown(items)}")


# -- tasks and groups ----------------------------------------------------------------------------


def _listed_tasks(document: dict[str, Any]) -> Iterator[tuple[Any, str]]:
    """The top-level tasks. The older key ``task`` for a single one is read when there is no list."""
    if "tasks" not in document and "task" in document:
        yield document["task"], "task"
        return
    tasks = document.get("tasks", [])
    if type(tasks) is not list:
        raise invalid("tasks", f"a list is needed, not {shown(tasks)}")
    for at, task in enumerate(tasks):
        yield task, f"tasks[{at}]"


def read_task(task: Any, path: str) -> Task:
    """Read one entry of `tasks`. Raises InvalidJobspec."""
    if type(task) is not dict:
        raise invalid(path, f"a task is a mapping with command or group, not {shown(task)}")
    group = _optional_text(task, "group", path)
    steps = task.get("steps")
    if steps is not None and (type(steps) is not list or not steps):
        raise invalid(f"{path}.steps", f"a list of steps is needed, not {shown(steps)}")
    if "command" not in task and group is None and steps is None:
        raise invalid(path, "nothing to run; add command, steps or group")
    command = tuple(read_words(task["command"], f"{path}.command")) if "command" in task else ()
    local = task.get("local", False)
    if type(local) is not bool:
        raise invalid(f"{path}.local", f"{shown(local)} is neither true nor false")
    _optional_text(task, "requires", path)
    _mapping(task, "attributes", path)
    replicas = _number(task, "replicas", path)
    return Task(
        command=command,
        name=_optional_text(task, "name", path),
        resources=_optional_text(task, "resources", path),
        count=(("replicas", replicas),) if replicas != 1 else (),
        depends_on=read_names(task.get("depends_on"), f"{path}.depends_on"),
        group=group,
        local=local,
        extra=task,
    )


def read_names(value: Any, path: str) -> tuple[str, ...]:
    """Names of tasks or groups: a list of texts, one text, or nothing."""
    if value is None:
        return ()
    names = [value] if type(value) is str else value
    if type(names) is not list or not all(type(name) is str for name in names):
        raise invalid(path, f"a list of names is needed, not {shown(value)}")
    return tuple(names)


def walk_groups(groups: Any, path: str) -> Iterator[tuple[dict[str, Any], str]]:
    """All groups, those written inside other groups too."""
    if type(groups) is not list:
        raise invalid(path, f"a list is needed, not {shown(groups)}")
    for at, group in enumerate(groups):
        where = f"{path}[{at}]"
        if type(group) is not dict:
            raise invalid(where, f"a group is a mapping with name and tasks, not {shown(group)}")
        if type(group.get("name")) is not str:
            raise invalid(f"{where}.name", "missing; a group needs one, for tasks to name it")
        if "command" in group:
            raise invalid(f"{where}.command", "a group runs its tasks and has no command; move it into a task")
        _optional_text(group, "resources", where)
        read_names(group.get("depends_on"), f"{where}.depends_on")
        yield group, where
        if "groups" in group:
            yield from walk_groups(group["groups"], f"{where}.groups")


def _group_tasks(group: dict[str, Any], path: str) -> Iterator[tuple[Any, str]]:
    tasks = group.get("tasks", [])
    if type(tasks) is not list:
        raise invalid(f"{path}.tasks", f"a list is needed, not {shown(tasks)}")
    for at, task in enumerate(tasks):
        yield task, f"{path}.tasks[{at}]"


def split_reference(reference: str) -> list[str]:
    """The names in a reference to resources: ``a|b`` (either), ``a&b`` and ``a,b`` (both)."""
    return [name for part in _REFERENCE.split(reference) if (name := part.strip())]


def _check_references(
    wants: dict[str, Want], groups: list[tuple[dict[str, Any], str]], tasks: tuple[Task, ...], inner: list[Task]
) -> None:
    names = {group["name"] for group, _ in groups}
    referring = [(task.resources, task.name or "a task") for task in (*tasks, *inner)]
    referring += [(group.get("resources"), f"group {group['name']}") for group, _ in groups]
    for reference, who in referring:
        if reference is None:
            continue
        wanted = split_reference(reference)
        if not wanted:
            raise invalid("resources", f"{who} names no resource in {shown(reference)}")
        for name in wanted:
            if name not in wants:
                raise invalid("resources", f"{who} names {shown(name)}, which is not there; add it or correct the name")
    for task in (*tasks, *inner):
        if task.group is not None and task.group not in names:
            raise invalid("groups", f"a task names the group {shown(task.group)}, which is not there")


def _only_within(groups: list[tuple[dict[str, Any], str]], tasks: tuple[Task, ...], inner: list[Task]) -> set[str]:
    """Resources that only serve inside a group: they are cut from what the group has, not asked for besides."""
    nested = {task.group for task in inner if task.group is not None}
    nested |= {group["name"] for group, path in groups if path.count("groups") > 1}
    at_top = {task.group for task in tasks if task.group is not None}
    nested -= at_top
    outside: set[str] = set()
    within: set[str] = set()
    for task in tasks:
        outside.update(split_reference(task.resources or ""))
    for group, _ in groups:
        names = split_reference(group.get("resources") or "")
        (within if group["name"] in nested else outside).update(names)
    for task in inner:
        within.update(split_reference(task.resources or ""))
    return within - outside


# -- small readers -------------------------------------------------------------------------------


def _duration(attributes: dict[str, Any], resources: list[dict[str, Any]]) -> float | None:
    if "duration" in attributes:
        return read_seconds(attributes["duration"], "attributes.duration")
    said = [r["attributes"]["duration"] for r in resources if "duration" in r.get("attributes", {})]
    return float(max(said)) if said else None


def _mapping(holder: dict[str, Any], key: str, path: str) -> dict[str, Any]:
    if key not in holder:
        return {}
    value = holder[key]
    if type(value) is not dict:
        raise invalid(f"{path}.{key}" if path else key, f"a mapping is needed, not {shown(value)}")
    return value


def _optional_text(holder: dict[str, Any], key: str, path: str) -> str | None:
    if key not in holder:
        return None
    value = holder[key]
    if type(value) is not str:
        raise invalid(f"{path}.{key}" if path else key, f"text is needed, not {shown(value)}")
    return value
