"""JSON Schemas of all models that travel over the broker, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from rainbow.models.control import AgentCommand, AnyRequest, ControlReply
from rainbow.models.job import RETRYABLE_REJECTS, TERMINAL, Answer, Dispatch, JobEvent, JobRecord, SubmitRequest

Document = dict[str, Any]

REQUESTS: tuple[type[BaseModel], ...] = get_args(AnyRequest)
_MODELS: tuple[type[BaseModel], ...] = (
    SubmitRequest,
    Answer,
    Dispatch,
    JobEvent,
    JobRecord,
    *REQUESTS,
    ControlReply,
    AgentCommand,
)
_TIME: Document = {
    "description": "RFC 3339, or seconds since 1970.",
    "anyOf": [{"type": "string", "format": "date-time"}, {"type": "number"}],
}
_ALGORITHM: Document = {
    "description": "A plugin by name, or with its options.",
    "anyOf": [{"type": "string", "maxLength": 1024}, {"$ref": "#/components/schemas/Algorithm"}],
}
#: Fields whose validators take more than their type says, which pydantic cannot see.
_WIDER: Mapping[tuple[str, str], Document] = {
    ("SubmitRequest", "expires"): _TIME,
    ("SubmitRequest", "begin_time"): _TIME,
    ("SubmitRequest", "match"): _ALGORITHM,
    ("SubmitRequest", "selection"): _ALGORITHM,
    ("SubmitRequest", "id"): {"type": "string", "format": "uuid"},
}


def schemas() -> Document:
    """The models as JSON Schema, draft 7 as AsyncAPI has it."""
    _, generated = models_json_schema(
        [(model, "validation") for model in _MODELS], ref_template="#/components/schemas/{model}"
    )
    schemas: Document = {name: _draft7(generated["$defs"][name]) for name in sorted(generated["$defs"])}
    for (model, field), wider in _WIDER.items():
        schemas[model]["properties"][field] = {**wider}
    schemas["JobEvent"]["properties"]["state"]["description"] = f"Ends: {', '.join(sorted(TERMINAL))}."
    schemas["Reason"]["properties"]["code"]["description"] = (
        f"The same cluster may be asked again after: {', '.join(sorted(RETRYABLE_REJECTS))}."
    )
    return schemas


def _draft7(value: Any) -> Any:
    """Without pydantic's titles, and with tuples as draft 7 writes them."""
    if isinstance(value, list):
        return [_draft7(item) for item in value]
    if not isinstance(value, dict):
        return value
    out: Document = {}
    for key, item in value.items():
        if key == "title" and isinstance(item, str):
            continue
        if key == "properties":
            out[key] = {name: _draft7(schema) for name, schema in item.items()}
        elif key == "description":
            out[key] = " ".join(str(item).split())
        else:
            out["items" if key == "prefixItems" else key] = _draft7(item)
    return out
