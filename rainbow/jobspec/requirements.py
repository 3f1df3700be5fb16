"""Wishes about subsystems, in all the spellings they have had.

nextgen: ``requires: [{name: spack, field: version, min: "0.5.1"}]`` on a resource.
Older list form: ``task.resources.<subsystem>: {match: [{field, value}], range: [{field, min, max}]}``,
and, older still, ``match: [{type: shm}]``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rainbow.jobspec.problems import invalid, shown
from rainbow.jobspec.request import Requirement


def read_requires(items: Any, path: str) -> tuple[Requirement, ...]:
    """Read `requires` of a nextgen resource: a list of mappings. Each item must hold, on a vertex of its own choice.

    ``match`` (or ``value`` in its place) is equality, ``min``/``max`` a range of versions, both ends
    included; ``match`` with ``attribute`` and ``value`` are two wishes. ``match`` with ``attribute`` and a range is
    one: the vertex that matches has that attribute in the range. ``algorithm: NAME`` hands all other keys to that
    match plugin.

    Raises:
        InvalidJobspec: not such a list, or an item that names no subsystem or compares nothing.
    """
    if type(items) is not list:
        raise invalid(path, f"a list of mappings with name, field and match is needed, not {shown(items)}")
    found: list[Requirement] = []
    for at, item in enumerate(items):
        where = f"{path}[{at}]"
        if type(item) is not dict:
            raise invalid(where, f"a mapping with name, field and match is needed, not {shown(item)}")
        found += _read_item(item, where)
    return tuple(dict.fromkeys(found))


def _read_item(item: dict[str, Any], path: str) -> list[Requirement]:
    subsystem = item.get("name")
    if type(subsystem) is not str or not subsystem:
        raise invalid(f"{path}.name", "the name of a subsystem is needed")
    if "algorithm" in item:
        others = {key: value for key, value in item.items() if key not in ("name", "field", "algorithm")}
        algorithm = text_of(item["algorithm"], f"{path}.algorithm")
        return [_requirement(subsystem, item.get("field"), algorithm, others, path)]
    found: list[Requirement] = []
    value = item.get("value")
    if "match" in item:
        found.append(_requirement(subsystem, item.get("field"), "match", {"match": item["match"]}, path))
        if value is not None and item.get("attribute") is not None:
            found.append(_requirement(subsystem, item["attribute"], "match", {"match": value}, path))
    elif value is not None:
        field = item["field"] if "field" in item else item.get("attribute")
        found.append(_requirement(subsystem, field, "match", {"match": value}, path))
    bounds = {key: item[key] for key in ("min", "max") if item.get(key) not in (None, "")}
    if bounds:
        if "match" in item and value is None and item.get("attribute") is not None:
            return [replace(found[0], also=(_requirement(subsystem, item["attribute"], "range", bounds, path),))]
        found.append(_requirement(subsystem, item.get("field"), "range", bounds, path))
    if not found:
        raise invalid(path, f"nothing to compare {subsystem} with; add match, min or max")
    return found


def _requirement(subsystem: str, field: Any, algorithm: str, arguments: dict[str, Any], path: str) -> Requirement:
    if type(field) is not str or not field:
        raise invalid(f"{path}.field", "the name of the metadata to compare is needed, such as type or version")
    texts = sorted((key, text_of(value, f"{path}.{key}")) for key, value in arguments.items())
    return Requirement(subsystem, field, algorithm, tuple(texts))


def text_of(value: Any, path: str) -> str:
    """A flat value as the text it is compared by: booleans in lower case, numbers as written."""
    if type(value) is str:
        return value
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is int or type(value) is float:
        return str(value)
    raise invalid(path, f"text or a number is needed, not {shown(value)}")


def read_wishes(resources: Any, path: str) -> tuple[Requirement, ...]:
    """Read ``task.resources`` of the older list form.

    Only ``match`` and ``range`` ever decided anything; what else stands there (``cpu.target: amd64``,
    ``storage: […]``) was carried along for other programs and is let be.
    """
    if type(resources) is not dict:
        raise invalid(path, f"a mapping of subsystems is needed, not {shown(resources)}")
    found: list[Requirement] = []
    for subsystem, wishes in resources.items():
        if type(wishes) is not dict:
            continue
        for item, where in _listed(wishes, "match", f"{path}.{subsystem}"):
            if "field" in item or "value" in item:
                found.append(_requirement(subsystem, item.get("field"), "match", {"match": item.get("value")}, where))
            else:
                found += [_requirement(subsystem, key, "match", {"match": item[key]}, where) for key in item]
        for item, where in _listed(wishes, "range", f"{path}.{subsystem}"):
            bounds = {key: item[key] for key in ("min", "max") if item.get(key) not in (None, "")}
            if not bounds:
                raise invalid(where, "a range needs min or max")
            found.append(_requirement(subsystem, item.get("field"), "range", bounds, where))
    return tuple(dict.fromkeys(found))


def _listed(wishes: dict[str, Any], key: str, path: str) -> list[tuple[dict[str, Any], str]]:
    items = wishes.get(key, [])
    if type(items) is not list or not all(type(item) is dict for item in items):
        raise invalid(f"{path}.{key}", "a list of mappings is needed")
    return [(item, f"{path}.{key}[{at}]") for at, item in enumerate(items)]
