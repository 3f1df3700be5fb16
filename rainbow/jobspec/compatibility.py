"""What an image needs of the nodes it runs on, as a job carries it: ``attributes.user.rainbow.compatibility``.

A list of ``{attribute, value}``. ``if_known: true`` lets nodes pass that say nothing of the attribute; ``weight: N``
makes it a preference, which is never a reason to refuse a cluster (selection `compatibility`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

from rainbow.jobspec.problems import invalid, shown
from rainbow.jobspec.request import HostNeed, Jobspec, shared

KEY = "compatibility"
MAX_NEEDS = 64
MAX_NAME = 128
MAX_VALUE = 256
_KEYS = frozenset(("attribute", "value", "if_known", "weight"))

Preferences = tuple[tuple[HostNeed, float], ...]


def read_compatibility(items: Any, path: str = KEY) -> tuple[tuple[HostNeed, ...], Preferences]:
    """Needs and preferences, each once, in the order given.

    Raises:
        InvalidJobspec: not such a list, or beyond its bounds.
    """
    if type(items) is not list:
        raise invalid(path, f"a list of mappings with attribute and value is needed, not {shown(items)}")
    if len(items) > MAX_NEEDS:
        raise invalid(path, f"{len(items)} needs are too many: at most {MAX_NEEDS} are taken")
    needs: dict[HostNeed, None] = {}
    preferences: dict[HostNeed, float] = {}
    for at, item in enumerate(items):
        need, weight = _read_item(item, f"{path}[{at}]")
        if weight is None:
            needs[need] = None
        else:
            preferences[need] = weight
    return tuple(needs), tuple(preferences.items())


def _read_item(item: Any, path: str) -> tuple[HostNeed, float | None]:
    if type(item) is not dict or not _KEYS.issuperset(item):
        raise invalid(path, f"a mapping with attribute, value, if_known and weight is needed, not {shown(item)}")
    attribute = _text(item.get("attribute"), MAX_NAME, f"{path}.attribute")
    value = _text(item.get("value"), MAX_VALUE, f"{path}.value")
    if_known = item.get("if_known", False)
    if type(if_known) is not bool:
        raise invalid(f"{path}.if_known", f"{shown(if_known)} is neither true nor false")
    weight = item.get("weight")
    if weight is not None and (type(weight) not in (int, float) or not isfinite(weight) or not 0 < weight <= 1e6):
        raise invalid(f"{path}.weight", f"{shown(weight)} is no weight: write a number above 0, up to 1000000")
    return HostNeed(attribute, value, if_known), weight


def _text(value: Any, most: int, path: str) -> str:
    if type(value) is not str or not value.strip() or "\0" in value:
        raise invalid(path, f"text is needed, not {shown(value)}")
    if len(value) > most:
        raise invalid(path, f"{len(value)} characters; at most {most} are taken")
    return value.strip()


def _carried(document: Mapping[str, Any]) -> Any:
    """What stands at ``attributes.user.rainbow.compatibility``; None for nothing."""
    found: Any = document.get("attributes")
    for key in ("user", "rainbow", KEY):
        found = found.get(key) if type(found) is dict else None
    return found


def with_needs(spec: Jobspec) -> Jobspec:
    """`spec` with the needs that its document carries; itself when it carries none. Raises InvalidJobspec."""
    items = _carried(spec.document)
    if items is None:
        return spec
    needs, preferences = read_compatibility(items, f"attributes.user.rainbow.{KEY}")
    return replace(spec, request=shared(replace(spec.request, host=needs)), preferences=preferences)


def carrying(document: Mapping[str, Any], items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A copy of a jobspec document that carries `items`, after those it carries already.

    Raises:
        InvalidJobspec: the document has something else where they belong.
    """
    made = dict(document)
    at, path = made, ""
    for key in ("attributes", "user", "rainbow"):
        path = f"{path}.{key}" if path else key
        inner = at.get(key, {})
        if inner is None or type(inner) is not dict:
            raise invalid(path, f"a mapping is needed, not {shown(inner)}")
        at[key] = dict(inner)
        at = at[key]
    before = at.get(KEY, [])
    if type(before) is not list:
        raise invalid(f"{path}.{KEY}", f"a list is needed, not {shown(before)}")
    at[KEY] = [*before, *map(dict, items)]
    return made
