"""The simple form: a command and a few numbers, as `flux submit` takes them, made into a jobspec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rainbow.jobspec.dialects.words import read_words
from rainbow.jobspec.durations import as_number, read_duration
from rainbow.jobspec.problems import invalid, shown
from rainbow.jobspec.requirements import text_of
from rainbow.ranges.idset import MAX_ID


def simple(
    command: str | Sequence[str],
    *,
    nodes: int | None = None,
    tasks: int | None = None,
    cores_per_task: int = 1,
    gpus_per_task: int = 0,
    duration: float | str | None = None,
    cwd: str | None = None,
    environment: Mapping[str, str] | None = None,
    name: str | None = None,
    requires: Sequence[Mapping[str, Any]] | None = None,
    image: str | None = None,
) -> dict[str, Any]:
    """A jobspec document for `command` (a list of words, or a text that is read as a shell would).

    `tasks` is the total over all nodes. Nodes without tasks mean one task on each, which then has the node
    to itself, as ``flux submit -N`` does; tasks without nodes go wherever there is room. `duration` is in
    seconds or RFC 23 text (``10m``); none means no limit. The environment is what is given, nothing else.

    The document is V1, or nextgen when there are `requires`, which V1 has no word for. They are about
    nodes: without `nodes` one node that meets them holds all the tasks.

    Raises:
        InvalidJobspec: a number out of range, more nodes than tasks, an empty command, a bad duration.
    """
    words = read_words(command, "command")
    _check_numbers(nodes, tasks, cores_per_task, gpus_per_task)
    for key, text in (("cwd", cwd), ("name", name), ("image", image)):
        _check_text(key, text)
    whole_nodes = nodes is not None and tasks is None
    wanted = tasks if tasks is not None else nodes if nodes is not None else 1
    if requires and nodes is None:
        nodes = 1
    if nodes is not None and nodes > wanted:
        raise invalid("nodes", f"{nodes} nodes for {wanted} tasks leaves nodes idle; ask for at most as many nodes")
    seconds = as_number(read_duration(duration)) if duration is not None else 0

    top, even = _resources(nodes, wanted, whole_nodes, cores_per_task, gpus_per_task)
    system: dict[str, Any] = {"duration": seconds, "environment": _environment(environment)}
    if cwd is not None:
        system["cwd"] = cwd
    if requires:
        return _nextgen(words, top, system, None if even else wanted, name, requires, image)
    if name is not None:
        system["job"] = {"name": name}
    attributes: dict[str, Any] = {"system": system}
    if image is not None:
        attributes["user"] = {"rainbow": {"image": image}}
    count = {"per_slot": 1} if even else {"total": wanted}
    return {
        "version": 1,
        "resources": [top],
        "tasks": [{"command": words, "slot": "task", "count": count}],
        "attributes": attributes,
    }


def _resources(nodes: int | None, tasks: int, whole_nodes: bool, cores: int, gpus: int) -> tuple[dict[str, Any], bool]:
    """The resource tree, and whether its slots hold the tasks evenly, one in each slot."""
    inside = [{"type": "core", "count": cores}]
    if gpus:
        inside.append({"type": "gpu", "count": gpus})
    # As many slots on each node as the fullest needs; where that is too many in all, the total says so.
    each = -(-tasks // nodes) if nodes is not None else tasks
    even = nodes is None or each * nodes == tasks
    slot: dict[str, Any] = {"type": "slot", "count": each, "label": "task", "with": inside}
    top: dict[str, Any] = slot
    if nodes is not None:
        top = {"type": "node", "count": nodes, "with": [slot]}
        if whole_nodes:
            top["exclusive"] = True
    return top, even


def _nextgen(
    words: list[str],
    node: dict[str, Any],
    attributes: dict[str, Any],
    total: int | None,
    name: str | None,
    requires: Sequence[Mapping[str, Any]],
    image: str | None,
) -> dict[str, Any]:
    node["requires"] = [dict(item) if isinstance(item, Mapping) else item for item in requires]
    task: dict[str, Any] = {"command": words, "resources": "job"}
    if total is not None:
        task["attributes"] = {"tasks": total}
    if image is not None:
        attributes["image"] = image
    document: dict[str, Any] = {"version": 1, "resources": {"job": node}, "tasks": [task], "attributes": attributes}
    if name is not None:
        document["name"] = name
        task["name"] = name
    return document


def _check_numbers(nodes: int | None, tasks: int | None, cores_per_task: int, gpus_per_task: int) -> None:
    if nodes is not None:
        _check_number("nodes", nodes, 1)
    if tasks is not None:
        _check_number("tasks", tasks, 1)
    _check_number("cores_per_task", cores_per_task, 1)
    _check_number("gpus_per_task", gpus_per_task, 0)


def _check_text(key: str, text: str | None) -> None:
    if text is not None and (not isinstance(text, str) or not text or "\0" in text):
        raise invalid(key, f"{shown(text)} is no {key}; write text or leave it out")


def _check_number(key: str, value: Any, least: int) -> None:
    if type(value) is not int or not least <= value <= MAX_ID:
        raise invalid(key, f"{shown(value)} is no number of {key.split('_')[0]}; write a whole number from {least} up")


def _environment(given: Mapping[str, str] | None) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise invalid("environment", f"a mapping of names to texts is needed, not {shown(given)}")
    for key, value in given.items():
        if not isinstance(key, str) or not key or "=" in key or "\0" in key:
            raise invalid("environment", f"{shown(key)} is no name of a variable")
        if "\0" in text_of(value, f"environment.{key}"):
            raise invalid(f"environment.{key}", f"{shown(value)} has a NUL in it")
    return {key: text_of(value, f"environment.{key}") for key, value in given.items()}
