"""The OpenAPI document of the HTTP API, from the models that the messages have."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from rainbow.client.views import Cancelled, ClusterView
from rainbow.models.job import Answer, JobRecord, SubmitRequest
from rainbow.models.requests import Output

_MODELS: tuple[type[BaseModel], ...] = (SubmitRequest, Answer, JobRecord, Output, Cancelled, ClusterView)
#: Fields of a submission that the token in the header replaces.
_OURS = ("token", "tokens")
_JOB_ID = {
    "name": "id",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
    "description": "A UUID; with [7] element 7 of an array.",
}
_NAME = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
_ERRORS = {
    "400": "Malformed input; `code` and `message` name the field.",
    "401": "No token.",
    "403": "The token does not allow it.",
    "404": "No such thing, or it is another user's.",
    "413": "The body is too large.",
    "429": "Too many requests of this token.",
    "503": "The broker or the store cannot be reached.",
    "504": "No scheduler answered in time.",
}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _listed(key: str, name: str) -> dict[str, Any]:
    return {"type": "object", "required": [key], "properties": {key: {"type": "array", "items": _ref(name)}}}


def _answers(good: int, schema: dict[str, Any], media: str = "application/json") -> dict[str, Any]:
    answers: dict[str, Any] = {str(good): {"description": "Done.", "content": {media: {"schema": schema}}}}
    for status, text in _ERRORS.items():
        answers[status] = {"description": text, "content": {"application/json": {"schema": _ref("Error")}}}
    return answers


def _body(schema: dict[str, Any]) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _query(name: str, schema: dict[str, Any], text: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": text}


def _paths() -> dict[str, Any]:
    return {**_submitting(), **_one_job(), **_clusters()}


def _submitting() -> dict[str, Any]:
    submission: dict[str, Any] = {
        "oneOf": [_ref("SubmitRequest"), {**_listed("jobs", "SubmitRequest"), "additionalProperties": False}]
    }
    accepted = {
        "type": "object",
        "required": ["jobs"],
        "properties": {
            "jobs": {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "string"}}}}
        },
    }
    page = _listed("jobs", "JobRecord")
    page["required"].append("next")
    page["properties"]["next"] = {
        "type": ["string", "null"],
        "description": "Where the next page begins; null: the end.",
    }
    filters = [
        _query("state", {"type": "string"}, "Only jobs in this state."),
        _query("cluster", {"type": "string"}, "Only jobs of this cluster."),
        _query("user", {"type": "string"}, "Only jobs of this user."),
        _query("text", {"type": "string"}, "Only jobs that have this text in their id, name, user or detail."),
        _query("array", {"type": "string", "format": "uuid"}, "Only elements of this array."),
        _query("before", {"type": "string"}, "Go on after the page that gave this as `next`."),
        _query("limit", {"type": "integer", "minimum": 1, "maximum": 10_000, "default": 100}, "Newest jobs at most."),
    ]
    return {
        "/v1/jobs": {
            "post": {
                "operationId": "submit",
                "summary": "Submit one job or many. The same id again is the same job.",
                "requestBody": _body(submission),
                "responses": _answers(202, accepted),
            },
            "get": {
                "operationId": "listJobs",
                "summary": "The newest jobs that the token may see, page by page.",
                "parameters": filters,
                "responses": _answers(200, page),
            },
        },
        "/v1/satisfy": {
            "post": {
                "operationId": "satisfy",
                "summary": "Which clusters could run the job. Nothing is submitted.",
                "requestBody": _body(_ref("SubmitRequest")),
                "responses": _answers(200, _ref("Answer")),
            }
        },
    }


def _one_job() -> dict[str, Any]:
    offsets = [
        _query("stdout", {"type": "integer", "default": 0}, "First byte of standard output; negative from its end."),
        _query("stderr", {"type": "integer", "default": 0}, "First byte of standard error; negative from its end."),
    ]
    events = {"type": "string", "description": "Server-sent events `job`, each with a JobRecord, until it has ended."}
    one_job = [_JOB_ID]
    return {
        "/v1/jobs/{id}": {
            "get": {
                "operationId": "getJob",
                "summary": "The record of a job with its history.",
                "parameters": one_job,
                "responses": _answers(200, _ref("JobRecord")),
            }
        },
        "/v1/jobs/{id}/events": {
            "get": {
                "operationId": "watchJob",
                "summary": "The record of a job each time it changes.",
                "parameters": one_job,
                "responses": _answers(200, events, "text/event-stream"),
            }
        },
        "/v1/jobs/{id}/output": {
            "get": {
                "operationId": "getOutput",
                "summary": "A piece of the output of a job.",
                "parameters": [*one_job, *offsets],
                "responses": _answers(200, _ref("Output")),
            }
        },
        "/v1/jobs/{id}/jobspec": {
            "get": {
                "operationId": "getJobspec",
                "summary": "What was submitted. It is kept with the job, unless it was very large.",
                "parameters": one_job,
                "responses": _answers(200, {"type": "object", "description": "The jobspec, as its cluster gets it."}),
            }
        },
        "/v1/jobs/{id}/cancel": {
            "post": {
                "operationId": "cancel",
                "summary": "Ask for a job to end. Repeating it is harmless.",
                "parameters": one_job,
                "responses": _answers(202, _ref("Cancelled")),
            }
        },
    }


def _clusters() -> dict[str, Any]:
    return {
        "/v1/clusters": {
            "get": {
                "operationId": "listClusters",
                "summary": "The clusters that the token covers.",
                "responses": _answers(200, _listed("clusters", "ClusterView")),
            }
        },
        "/v1/clusters/{name}": {
            "get": {
                "operationId": "getCluster",
                "summary": "One cluster.",
                "parameters": [_NAME],
                "responses": _answers(200, _ref("ClusterView")),
            }
        },
    }


def document(version: str) -> dict[str, Any]:
    """The OpenAPI 3.1 document for this version of rainbow."""
    _, schemas = models_json_schema(
        [(model, "validation") for model in _MODELS], ref_template="#/components/schemas/{model}"
    )
    definitions: dict[str, Any] = schemas["$defs"]
    for name in _OURS:
        definitions["SubmitRequest"]["properties"].pop(name, None)
    definitions["Error"] = {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["code", "message"],
                "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
            }
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "rainbow", "version": version, "description": "Submit jobs to many Flux clusters."},
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": _paths(),
        "components": {
            "schemas": definitions,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}},
        },
    }
