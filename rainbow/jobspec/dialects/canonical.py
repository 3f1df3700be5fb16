"""Canonical jobspec (RFC 14), and V1 (RFC 25), the part of it that Flux runs.

The published JSON schemas refuse valid documents and accept invalid ones; what is checked here is what
Flux's own readers agree on.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from difflib import get_close_matches
from json import dumps
from typing import Any

from rainbow.errors import InvalidJobspec
from rainbow.jobspec.alternatives import has_sibling_slots, with_alternatives
from rainbow.jobspec.constraints import read_constraint
from rainbow.jobspec.counts import read_count
from rainbow.jobspec.demand import demand_of
from rainbow.jobspec.durations import read_seconds
from rainbow.jobspec.problems import Path, invalid, shown
from rainbow.jobspec.request import SLOT, XOR_SLOT, Constraint, Jobspec, Request, Task, Want, shared

VERSIONS = (1, 999, 9999)
"""Accepted values of `version`. The last two mark experiments in Flux's own tests, with looser rules."""

SLOTS = (SLOT, XOR_SLOT)

_TOP = frozenset(("version", "resources", "tasks", "attributes"))
_VERTEX = frozenset(("type", "count", "unit", "exclusive", "with", "label", "id"))
_TASK = frozenset(("command", "slot", "count", "distribution", "attributes"))
_ATTRIBUTES = frozenset(("system", "user"))
_TASK_COUNTS = ("per_slot", "total", "per_resource")


def read_canonical(document: dict[str, Any], as_v1: bool = False) -> Jobspec:
    """Read a canonical jobspec; `as_v1` asks for one that RFC 25 allows.

    The dialect of the result is ``V1`` when the document has one of the four forms of RFC 25 with plain
    counts, whether or not that was asked for.

    Raises:
        InvalidJobspec: the first thing that is wrong.
    """
    version = document.get("version")
    if type(version) is not int or version not in VERSIONS:
        raise invalid("version", f"{shown(version)} is no version; write 1")
    if len(document) != 4 or not _TOP.issuperset(document):
        _wrong_keys(document, _TOP, _TOP, "")
    resources = document["resources"]
    if type(resources) is not list or not resources:
        raise invalid("resources", f"a list of at least one resource is needed, not {shown(resources)}")
    wants = _known_wants(resources, version)
    listed = document["tasks"]
    if type(listed) is not list:
        raise invalid("tasks", f"a list is needed, not {shown(listed)}")
    tasks = tuple(_read_task(item, ("tasks", at)) for at, item in enumerate(listed))
    if has_sibling_slots(wants):
        wants = with_alternatives(wants, resources, {task.slot for task in tasks if task.slot is not None})
    system = _read_attributes(document["attributes"], version)
    duration, constraint = read_system(system, version)
    is_v1 = False
    if version == 1:
        if has_v1_form(wants):
            _check_v1_job(tasks, system)
            # More tasks to a slot, or settings of a task's own, are canonical though the resources are V1's.
            kind, value = tasks[0].count[0]
            is_v1 = (kind == "total" or value == 1) and len(listed[0]) == 3
        elif not _has_slot(wants):
            raise invalid("resources", "no slot in it; say where the tasks go with a resource of type slot")
    if as_v1 and not is_v1:
        raise _not_v1(version, has_v1_form(wants))
    return Jobspec(
        dialect="V1" if is_v1 else "canonical",
        request=shared(Request(wants, constraint)),
        demand=demand_of(wants),
        document=document,
        tasks=tasks,
        name=_job_name(system),
        duration=duration,
    )


#: Resources that were read before, by their text: jobs of a workflow differ in the command more often than in these.
_WANTS: OrderedDict[tuple[str, int], tuple[Want, ...]] = OrderedDict()
_MAX_WANTS, _MAX_TEXT = 1024, 4096


def _known_wants(resources: list[Any], version: int) -> tuple[Want, ...]:
    try:
        key = dumps(resources), version
    except (TypeError, ValueError, RecursionError):
        key = "", 0  # reading says what is wrong
    wants = _WANTS.get(key)
    if wants is None:
        wants = tuple(read_vertex(item, ("resources", at), version) for at, item in enumerate(resources))
        if 0 < len(key[0]) <= _MAX_TEXT:
            _WANTS[key] = wants
            if len(_WANTS) > _MAX_WANTS:
                with suppress(KeyError):  # another thread dropped it
                    _WANTS.popitem(last=False)
    return wants


# -- resources -----------------------------------------------------------------------------------


def read_vertex(vertex: Any, path: Path, version: int = 1, lenient: bool = False) -> Want:
    """Read one resource vertex with all below it. `lenient` takes unknown keys, and slots without a label."""
    if type(vertex) is not dict:
        raise invalid(path, f"a resource is a mapping with type and count, not {shown(vertex)}")
    kind = vertex.get("type")
    if type(kind) is not str:
        raise invalid((path, "type"), f"the type of a resource is text, not {shown(kind)}")
    if not lenient and not _VERTEX.issuperset(vertex):
        _wrong_keys(vertex, _VERTEX, frozenset(), path)
    if "count" not in vertex:
        raise invalid((path, "count"), "missing; say how many")
    # RFC 25 leaves it open, and Flux takes it: no gpus asked for.
    count = read_count(vertex["count"], (path, "count"), 0 if kind == "gpu" and version == 1 else 1)
    children: tuple[Want, ...] = ()
    if "with" in vertex:
        below = vertex["with"]
        if type(below) is not list:
            raise invalid((path, "with"), f"a list of resources is needed, not {shown(below)}")
        where = (path, "with")
        children = tuple([read_vertex(one, (where, at), version, lenient) for at, one in enumerate(below)])
    exclusive = vertex.get("exclusive")
    if exclusive is not True and exclusive is not False and "exclusive" in vertex:
        raise invalid((path, "exclusive"), f"{shown(exclusive)} is neither true nor false")
    for key in ("label", "unit", "id"):
        if key in vertex and type(vertex[key]) is not str:
            raise invalid((path, key), f"text is needed, not {shown(vertex[key])}")
    if kind in SLOTS:
        if not children:
            raise invalid((path, "with"), "an empty slot; say what is in it")
        if not lenient and "label" not in vertex:
            raise invalid((path, "label"), "missing; a slot needs one, for tasks to name it")
    # Labels only tie tasks to slots. They stay out of the request: jobs that differ by them match alike.
    return Want(kind, count, children, exclusive, vertex.get("unit"))


def has_v1_form(wants: tuple[Want, ...]) -> bool:
    """Whether this is one of the four forms of RFC 25, every count a plain number."""
    if len(wants) != 1:
        return False
    top = wants[0]
    if top.type == "node":
        if len(top.children) != 1 or top.count.min != top.count.max:
            return False
        top = top.children[0]
    if top.type != SLOT or top.count.min != top.count.max:
        return False
    inside = sorted(want.type for want in top.children)
    if inside != ["core"] and inside != ["core", "gpu"]:
        return False
    return all(not want.children and want.count.min == want.count.max for want in top.children)


def _has_slot(wants: tuple[Want, ...]) -> bool:
    return any(want.type in SLOTS or _has_slot(want.children) for want in wants)


# -- tasks ---------------------------------------------------------------------------------------


def _read_task(task: Any, path: Path) -> Task:
    if type(task) is not dict:
        raise invalid(path, f"a task is a mapping with command, slot and count, not {shown(task)}")
    if not _TASK.issuperset(task) or "slot" not in task or "count" not in task:
        _wrong_keys(task, _TASK, frozenset(("command", "slot", "count")), path)
    slot = task["slot"]
    if type(slot) is not str:
        raise invalid((path, "slot"), f"the label of a slot is needed, not {shown(slot)}")
    if len(task) > 3:
        _check_task_extras(task, path)
    command = read_command(task.get("command"), (path, "command"))
    return Task(command=command, slot=slot, count=_task_count(task["count"], (path, "count")))


def read_command(command: Any, path: Path) -> tuple[str, ...]:
    """A command as a list of its words. Raises InvalidJobspec."""
    if type(command) is not list or not command:
        raise invalid(path, f"a list of at least one text is needed, not {shown(command)}")
    for word in command:
        if type(word) is not str:
            raise invalid(path, f"{shown(word)} is not text; quote it")
        if "\0" in word:
            raise invalid(path, "an argument has a NUL character, which no command can take")
    return tuple(command)


def _task_count(count: Any, path: Path) -> tuple[tuple[str, Any], ...]:
    if type(count) is not dict or len(count) != 1:
        raise invalid(path, "exactly one of per_slot, total or per_resource is needed, as a mapping")
    (kind, number), *_ = count.items()
    if kind not in _TASK_COUNTS:
        raise invalid(path, f"{shown(kind)} is none of per_slot, total, per_resource")
    if kind == "per_resource":
        if type(number) is not dict or type(number.get("type")) is not str:
            raise invalid((path, "per_resource"), "a mapping with type and count is needed")
        each = number.get("count")
        value: Any = (number["type"], each)
    else:
        value = each = number
    if type(each) is not int or each < 1:
        raise invalid((path, kind), f"{shown(each)} is no number of tasks; write a whole number from 1 up")
    return ((kind, value),)


def _check_task_extras(task: dict[str, Any], path: Path) -> None:
    if "distribution" in task and type(task["distribution"]) is not str:
        raise invalid((path, "distribution"), f"text is needed, not {shown(task['distribution'])}")
    attributes = task.get("attributes", {})
    if type(attributes) is not dict:
        raise invalid((path, "attributes"), f"a mapping is needed, not {shown(attributes)}")
    for key, value in attributes.items():
        if type(value) is not (dict if key == "environment" else str):
            raise invalid(((path, "attributes"), key), f"{shown(value)} has no place here")


# -- attributes ----------------------------------------------------------------------------------


def _read_attributes(attributes: Any, version: int) -> dict[str, Any] | None:
    """The system attributes; None when there are none."""
    if type(attributes) is not dict:
        if attributes is None and version != 1:
            return None
        raise invalid("attributes", f"a mapping with system is needed, not {shown(attributes)}")
    if not _ATTRIBUTES.issuperset(attributes):
        _wrong_keys(attributes, _ATTRIBUTES, frozenset(), "attributes")
    if "user" in attributes and type(attributes["user"]) is not dict:
        raise invalid("attributes.user", f"a mapping is needed, not {shown(attributes['user'])}")
    if "system" not in attributes:
        return None
    system = attributes["system"]
    if type(system) is not dict:
        raise invalid("attributes.system", f"a mapping is needed, not {shown(system)}")
    return system


def read_system(system: dict[str, Any] | None, version: int) -> tuple[float | None, Constraint | None]:
    """Check the system attributes; gives duration (seconds) and constraint."""
    if not system:
        return None, None
    duration: float | None = None
    if "duration" in system:
        value = system["duration"]
        if version != 1 and type(value) is str and value.isascii() and value.isdecimal() and len(value) < 16:
            value = int(value)  # experiments write it as text; a unit is never taken
        duration = read_seconds(value, "attributes.system.duration")
    constraint: Constraint | None = None
    if "constraints" in system:
        constraint = read_constraint(system["constraints"], "attributes.system.constraints")
    if "cwd" in system and (type(system["cwd"]) is not str or "\0" in system["cwd"]):
        raise invalid("attributes.system.cwd", f"the path of a folder is needed, not {shown(system['cwd'])}")
    for key in ("job", "shell", "environment"):
        if key in system and type(system[key]) is not dict:
            raise invalid(("attributes.system", key), f"a mapping is needed, not {shown(system[key])}")
    for name, text in system.get("environment", {}).items():
        if not isinstance(text, str | int | float):
            raise invalid(("attributes.system.environment", name), f"text or a number is needed, not {shown(text)}")
    if "shell" in system:
        _check_shell(system["shell"])
    if "dependencies" in system:
        _check_dependencies(system["dependencies"])
    return duration, constraint


def _check_shell(shell: dict[str, Any]) -> None:
    path = "attributes.system.shell.options"
    options = shell.get("options", {})
    if type(options) is not dict:
        raise invalid(path, f"a mapping is needed, not {shown(options)}")
    if "per-resource" in options:
        each = options["per-resource"]
        if type(each) is not dict or type(each.get("type")) is not str:
            raise invalid((path, "per-resource"), "a mapping with a type, such as node or core, is needed")


def _check_dependencies(dependencies: Any) -> None:
    path = "attributes.system.dependencies"
    if type(dependencies) is not list:
        raise invalid(path, f"a list is needed, not {shown(dependencies)}")
    for at, one in enumerate(dependencies):
        if type(one) is not dict or type(one.get("scheme")) is not str or type(one.get("value")) is not str:
            raise invalid((path, at), "a mapping with scheme and value, both text, is needed (RFC 26)")


def _check_v1_job(tasks: tuple[Task, ...], system: dict[str, Any] | None) -> None:
    if len(tasks) != 1:
        raise invalid("tasks", f"{len(tasks)} tasks; V1 (RFC 25) has exactly one")
    if tasks[0].count[0][0] == "per_resource":
        raise invalid("tasks[0].count", "per_resource is not in V1 (RFC 25); use per_slot or total")
    # Some writers leave the whole of system empty, and are read; one that fills it must say how long.
    if system and "duration" not in system:
        raise invalid("attributes.system.duration", "missing; write the seconds, or 0 for no limit")


def _not_v1(version: int, form: bool) -> InvalidJobspec:
    if version != 1:
        return invalid("version", f"{version} is not that of V1 (RFC 25); write 1")
    if form:
        return invalid("tasks[0]", "not V1 (RFC 25), whose task has command, slot and count: one per_slot, or a total")
    return invalid("resources", "not V1 (RFC 25): it has one slot of core, or core and gpu, at the top or in a node")


def _job_name(system: dict[str, Any] | None) -> str | None:
    name = system.get("job", {}).get("name") if system else None
    return name if type(name) is str else None


def _wrong_keys(given: dict[str, Any], known: frozenset[str], needed: frozenset[str], path: Path) -> None:
    """Say which key is missing or unknown. Only called when one is."""
    missing = sorted(needed - given.keys())
    unknown = sorted(given.keys() - known, key=str)
    for key in unknown:
        near = get_close_matches(str(key), known - given.keys(), 1)
        if near:
            raise invalid(path, f"unknown key {shown(key)}; did you mean {near[0]!r}?")
    if missing:
        raise invalid((path, missing[0]), "missing")
    raise invalid(path, f"unknown key {shown(unknown[0])}; the keys are {', '.join(sorted(known))}")
