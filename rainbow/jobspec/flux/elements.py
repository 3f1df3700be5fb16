"""An element of an array: the V1 documents of the array with what is this element's own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from rainbow.jobspec.flux.v1 import FluxJob
from rainbow.models.arrays import Element


def for_element(jobs: Iterable[FluxJob], element: Element) -> list[FluxJob]:
    """The jobs with the variables of their element, and its index and array in commands and names of files."""
    places = {"{{array.id}}": element.array, "{{array.index}}": str(element.index)}
    return [replace(job, document=_document(job.document, element.environment(), places)) for job in jobs]


def _document(document: dict[str, Any], environment: dict[str, str], places: dict[str, str]) -> dict[str, Any]:
    attributes = document["attributes"]
    system = attributes["system"]
    system = {**system, "environment": {**(system.get("environment") or {}), **environment}}
    shell = system.get("shell") or {}
    options = shell.get("options") or {}
    streams = {name: _filled(options[name], places) for name in ("output", "input") if name in options}
    if streams:
        system["shell"] = {**shell, "options": {**options, **streams}}
    tasks = [{**task, "command": _filled(task["command"], places)} for task in document["tasks"]]
    return {**document, "tasks": tasks, "attributes": {**attributes, "system": system}}


def _filled(value: Any, places: dict[str, str]) -> Any:
    if isinstance(value, str):
        for place, text in places.items():
            value = value.replace(place, text)
        return value
    if isinstance(value, dict):
        return {key: _filled(one, places) for key, one in value.items()}
    return [_filled(one, places) for one in value] if isinstance(value, list) else value


__all__ = ["for_element"]
