"""The JSON Schemas of the messages, which are installed with the package."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from generators import models

SCHEMAS: Mapping[str, str] = {
    "submission": "SubmitRequest",
    "answer": "Answer",
    "dispatch": "Dispatch",
    "event": "JobEvent",
    "record": "JobRecord",
}


def schema(name: str) -> str:
    """The JSON Schema of a message, with all that it refers to."""
    known = models.schemas()
    used: dict[str, Any] = {}

    def inside(value: Any) -> Any:
        if isinstance(value, list):
            return [inside(item) for item in value]
        if not isinstance(value, dict):
            return value
        reference = value.get("$ref", "")
        if isinstance(reference, str) and reference.startswith("#/components/schemas/"):
            target = reference.rpartition("/")[2]
            if target not in used:
                used[target] = None
                used[target] = inside(known[target])
            return {**value, "$ref": f"#/$defs/{target}"}
        return {key: inside(item) for key, item in value.items()}

    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": name}
    body = inside(known[SCHEMAS[name]])
    return json.dumps({**body, **head, **({"$defs": used} if used else {})}, indent=1, sort_keys=True) + "\n"
