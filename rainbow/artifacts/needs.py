"""From what is published about an image to what a job with it needs.

A policy says of each attribute, by pattern, what it is: ``need``, ``known`` (a need, but a node that says nothing of it
passes), ``ignore``, or a number, the weight of a preference. The first pattern that fits decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from rainbow.artifacts.base import ImageFacts, Statement

#: compspec records where an image was built. What the container brings along itself, and the exact model of the
#: processor it was built on, are no reason against a cluster: they are preferences.
DEFAULT_POLICY: Mapping[str, str | float] = {"os.*": 1, "cpu.model": 1, "cpu.vendor": 1, "*": "need"}
_GPU = ("hardware.gpu.available", "hardware.gpu.enabled")
_NO = ("no", "false", "none")


def needs_of(facts: ImageFacts, policy: Mapping[str, str | float] | None = None) -> list[dict[str, Any]]:
    """The `compatibility` of a job with this image.

    What an artifact says of an attribute stands before annotations, and these before the platform of the image.
    """
    rules = {**(policy or {}), **{k: v for k, v in DEFAULT_POLICY.items() if k not in (policy or {})}}
    known: dict[tuple[str, bool], Statement] = {}
    for origin in ("artifact", "annotation", "platform", "preference"):
        for statement in facts.statements:
            if statement.origin == origin:
                known.setdefault((statement.attribute, origin == "preference"), statement)
    made = [_item(statement, _kind(statement, rules)) for statement in known.values()]
    return [item for item in made if item is not None]


def _kind(statement: Statement, rules: Mapping[str, str | float]) -> str | float:
    if statement.origin == "preference":
        return 1.0
    if statement.origin == "platform":
        # Most clusters do not say what everybody there knows.
        return "known"
    if statement.attribute in _GPU and statement.value.casefold() in _NO:
        return 1.0  # it can do without: nodes that have none are better, no more
    return next(kind for pattern, kind in rules.items() if fnmatchcase(statement.attribute, pattern))


def _item(statement: Statement, kind: str | float) -> dict[str, Any] | None:
    if kind == "ignore":
        return None
    item: dict[str, Any] = {"attribute": statement.attribute, "value": statement.value}
    if isinstance(kind, int | float):
        item["weight"] = kind
    elif kind == "known":
        item["if_known"] = True
    return item


def order(items: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Needs first, then preferences."""
    return sorted(items, key=lambda item: "weight" in item)
