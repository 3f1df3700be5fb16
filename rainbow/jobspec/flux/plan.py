"""In what jobs a nextgen jobspec is carried out: its tasks and groups, named, sized and put in order."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

from rainbow.errors import InvalidJobspec
from rainbow.jobspec.dialects.nextgen import read_names, read_resource, read_task, split_reference, walk_groups
from rainbow.jobspec.flux.script import Script
from rainbow.jobspec.flux.settings import Settings, gather
from rainbow.jobspec.flux.shapes import ONE_CORE, Shape, shape_of
from rainbow.jobspec.problems import invalid
from rainbow.jobspec.request import SLOT, Jobspec, Task, Want

MAX_GROUPS = 1000
"""The most batch jobs in one jobspec, those inside others counted as often as they are started."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One job of the plan (or `replicas` equal ones). `depends_on` are names of units before it.

    With a `script` the `command` is what runs it; a group is a batch job, in an instance of its own.
    """

    name: str
    command: tuple[str, ...]
    shape: Shape
    settings: Settings
    replicas: int = 1
    depends_on: tuple[str, ...] = ()
    script: str | None = None
    is_group: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Units in an order in which each comes after those that it depends on."""

    units: tuple[Unit, ...]


def plan_of(jobspec: Jobspec) -> Plan:
    """The plan of a nextgen jobspec, in either of its forms.

    Raises:
        InvalidJobspec: something V1 has no words for, tasks that wait for each other, unknown names.
    """
    if jobspec.dialect == "nextgen-list":
        return Plan(tuple(_old_list_units(jobspec)))
    return Plan(tuple(_Planner(jobspec).units()))


@dataclass(slots=True)
class _Step:
    """A task in its scope: the top level, or one group."""

    name: str
    task: Task
    waits: list[str]
    group: dict[str, Any] | None = None


class _Planner:
    def __init__(self, jobspec: Jobspec) -> None:
        document = jobspec.document
        self.jobspec = jobspec
        self.resources: dict[str, Any] = document.get("resources") or {}
        self.attributes: dict[str, Any] = document.get("attributes") or {}
        self.groups: dict[str, dict[str, Any]] = {}
        self.inner_groups: set[str] = set()
        for group, path in walk_groups(document.get("groups", []), "groups"):
            if group["name"] in self.groups:
                raise invalid(path, f"two groups are called {group['name']!r}; rename one")
            self.groups[group["name"]] = group
            if path.count("groups") > 1:
                self.inner_groups.add(group["name"])
        self.started = 0

    def units(self) -> Iterator[Unit]:
        tasks = list(self.jobspec.tasks)
        named = {task.group for task in tasks}
        used = {task["group"] for group in self.groups.values() for task in group.get("tasks", []) if "group" in task}
        # A group that nothing starts is started for its own sake.
        free = [name for name in self.groups if name not in named | used | self.inner_groups]
        tasks += [Task(group=name, extra={}) for name in free]
        self._check_all_started({task.group for task in tasks if task.group is not None})
        if not tasks:
            raise invalid("tasks", "nothing to run; add a task")
        steps = self._steps(tasks, self.jobspec.name)
        bodies: dict[str, tuple[str, list[str]]] = {}
        for step in steps:
            if step.group is not None:
                script, outer = self._script(step.group, (step.group["name"],), None)
                bodies[step.name] = (script, outer)
                step.waits += outer
        for step, waits, unknown in _ordered(steps):
            if unknown:
                raise invalid(step.name, f"waits for {unknown[0]!r}, which is no task and no group here")
            yield self._unit(step, waits, bodies.get(step.name, (None, []))[0])

    def _check_all_started(self, started: set[str]) -> None:
        waiting = list(started)
        while waiting:
            inside = {task["group"] for task in self.groups[waiting.pop()].get("tasks", []) if "group" in task}
            waiting += inside - started
            started |= inside
        if idle := sorted(self.groups.keys() - started):
            raise invalid(f"group {idle[0]}", "nothing starts it; add a task with group where it should run")

    def _unit(self, step: _Step, waits: list[str], script: str | None) -> Unit:
        task = step.task
        if task.local:
            raise invalid(step.name, "a local task runs in the script of its group; put it into a group")
        reference = step.group.get("resources") if step.group is not None else task.resources
        layers = [self.attributes, *self._resource_layers(reference)]
        layers += [step.group.get("attributes")] if step.group is not None else []
        return Unit(
            name=step.name,
            command=("flux", "broker") if step.group is not None else _command(step),
            shape=self._shape(reference, step.name, None),
            settings=gather([*layers, task.extra.get("attributes")], step.name),
            replicas=_replicas(task),
            depends_on=tuple(waits),
            script=script,
            is_group=step.group is not None,
        )

    # -- groups ----------------------------------------------------------------------------------

    def _script(self, group: dict[str, Any], chain: tuple[str, ...], around: Shape | None) -> tuple[str, list[str]]:
        """The script of a group, and the names outside of it that something inside waits for.

        `chain` are the groups it is in, itself the last; `around` is the shape of the one around it.
        """
        self.started += 1
        if self.started > MAX_GROUPS:
            raise invalid(
                f"group {group['name']}", f"more than {MAX_GROUPS} groups are started; submit several jobspecs"
            )
        listed = group.get("tasks", [])
        if not listed:
            raise invalid(f"group {group['name']}", "no tasks in it; nothing to run")
        own = self._shape(group.get("resources"), f"group {group['name']}", around)
        steps = self._steps([read_task(task, f"group {group['name']}") for task in listed], None)
        bodies: dict[str, str] = {}
        for step in steps:
            if step.group is None:
                continue
            name = step.group["name"]
            if name in chain:
                raise invalid(f"group {name}", "contains itself")
            bodies[step.name], outer = self._script(step.group, (*chain, name), own)
            step.waits += outer
        script = Script()
        outside: list[str] = []
        for step, waits, unknown in _ordered(steps):
            for name in unknown:
                if name in chain:
                    raise invalid(step.name, f"waits for the group {name!r} that it is part of; neither could ever end")
            outside += unknown
            self._add(script, step, waits, own, bodies.get(step.name))
        return script.text(), outside

    def _add(self, script: Script, step: _Step, waits: list[str], own: Shape, body: str | None) -> None:
        task = step.task
        mine = task.extra.get("attributes")
        if step.group is not None:
            if _replicas(task) > 1:
                raise invalid(step.name, "a group with replicas; write it as several tasks")
            reference = step.group.get("resources")
            settings = gather([*self._resource_layers(reference), step.group.get("attributes"), mine], step.name)
            assert body is not None
            script.batch(step.name, body, self._shape(reference, step.name, own), settings, waits)
            return
        if mine and "image" in mine:
            raise invalid(step.name, "an image of its own inside a group; give the group the image")
        command = _command(step)
        if task.local:
            if _replicas(task) > 1:
                raise invalid(step.name, "a local task with replicas; it runs once, in the script")
            raw = task.extra.get("command")
            # A text is shell, and is run as it stands; a list is words.
            line = raw if isinstance(raw, str) else shlex.join(command)
            script.local(step.name, line, gather([mine], step.name), waits)
            return
        settings = gather([*self._resource_layers(task.resources), mine], step.name)
        shape = self._shape(task.resources, step.name, own)
        script.submit(step.name, command, shape, settings, _replicas(task), waits)

    # -- names, resources ------------------------------------------------------------------------

    def _steps(self, tasks: list[Task], whole: str | None) -> list[_Step]:
        """Give every task of a scope its name. The one task of a named jobspec takes that name."""
        steps: list[_Step] = []
        taken: set[str] = set()
        for number, task in enumerate(tasks, 1):
            group = self.groups[task.group] if task.group is not None else None
            name = task.name or task.group
            if name is None:
                name = whole if whole and len(tasks) == 1 else f"{whole or 'task'}-{number}"
            if name in taken:
                raise invalid(name, "two tasks have this name; rename one")
            taken.add(name)
            waits = [*task.depends_on, *(read_names(group.get("depends_on"), "groups") if group else ())]
            steps.append(_Step(name, task, waits, group))
        return steps

    def _shape(self, reference: str | None, whose: str, inherited: Shape | None) -> Shape:
        if reference is None:
            if inherited is not None:
                return inherited
            if not self.resources:
                return ONE_CORE
            if len(self.resources) > 1:
                raise invalid(whose, "names no resources, and there are several; say which")
            reference = next(iter(self.resources))
        names = split_reference(reference)
        if len(names) > 1 and ("&" in reference or "," in reference):
            raise invalid(
                whose, f"V1 jobspecs, which Flux runs, cannot say: several resources ({reference}) for one task"
            )
        # Of alternatives the first is taken: the cluster was chosen so that each is there.
        want = read_resource(self.resources[names[0]], f"resources.{names[0]}")
        return shape_of((_bare(want),), f"resources.{names[0]}")

    def _resource_layers(self, reference: str | None) -> list[dict[str, Any] | None]:
        names = split_reference(reference) if reference is not None else list(self.resources)
        if reference is None and len(names) != 1:
            return []
        resource = self.resources[names[0]]
        return [{"environment": resource.get("environment")}, resource.get("attributes")]


def _bare(want: Want) -> Want:
    """``replicas: 1`` around nodes says no more than the nodes themselves."""
    if want.type == SLOT and want.count.min == 1 and len(want.children) == 1 and want.children[0].type == "node":
        return want.children[0]
    return want


def _command(step: _Step) -> tuple[str, ...]:
    if not step.task.command:
        raise invalid(step.name, "V1 jobspecs, which Flux runs, cannot say: steps; write a command")
    return step.task.command


def _replicas(task: Task) -> int:
    return int(dict(task.count).get("replicas", 1))


def _ordered(steps: list[_Step]) -> Iterator[tuple[_Step, list[str], list[str]]]:
    """Steps in an order that keeps to what they wait for, else to the order written.

    Yields for each the names it waits for in its own scope, and those that are not there.
    """
    names: dict[str, str] = {}
    for step in steps:
        names[step.name] = step.name
    for step in steps:
        if step.group is not None:
            names.setdefault(step.group["name"], step.name)
    known = {step.name: list(dict.fromkeys(names[name] for name in step.waits if name in names)) for step in steps}
    by_name = {step.name: step for step in steps}
    for name in _sorted(known):
        step = by_name[name]
        yield step, known[name], list(dict.fromkeys(other for other in step.waits if other not in names))


def _sorted(waits: dict[str, list[str]]) -> Iterable[str]:
    sorter = TopologicalSorter(waits)
    try:
        sorter.prepare()
    except CycleError as exc:
        raise invalid(exc.args[1][0], f"waits for itself: {' > '.join(exc.args[1])}") from None
    place = {name: at for at, name in enumerate(waits)}
    ready: set[str] = set()
    while sorter.is_active():
        ready.update(sorter.get_ready())
        first = min(ready, key=place.__getitem__)
        ready.remove(first)
        yield first
        sorter.done(first)


# -- the older list form -------------------------------------------------------------------------


def _old_list_units(jobspec: Jobspec) -> Iterator[Unit]:
    document = jobspec.document
    shape = shape_of(jobspec.request.resources, "resources")
    attributes = document.get("attributes") or {}
    steps = [
        _Step(task.name or f"{jobspec.name or 'task'}-{number}", task, list(task.depends_on))
        for number, task in enumerate(jobspec.tasks, 1)
    ]
    if len({step.name for step in steps}) != len(steps):
        raise invalid("tasks", "two tasks have one name; rename one")
    for step, waits, unknown in _ordered(steps):
        if unknown:
            raise invalid(step.name, f"waits for {unknown[0]!r}, which is no task here")
        task = step.task
        settings = gather([attributes, attributes.get("system"), task.extra.get("attributes")], step.name)
        counts = dict(task.count)
        if "total" in counts or counts.get("per_slot", 1) > 1:
            total = counts.get("total") or counts["per_slot"] * shape.total_slots
            settings = replace(settings, tasks=total)
        script = task.extra.get("script")
        if "transform" in task.extra or (not task.command and not isinstance(script, str)):
            raise _no_steps(step)
        yield Unit(step.name, task.command, shape, settings, 1, tuple(waits), None if task.command else script)


def _no_steps(step: _Step) -> InvalidJobspec:
    return invalid(step.name, "V1 jobspecs, which Flux runs, cannot say: transform steps and scripts; write a command")
