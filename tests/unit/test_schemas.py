"""The JSON Schemas that are installed agree with the models about messages."""

from __future__ import annotations

import time
import uuid
from typing import Any

import jsonschema
import pytest

from rainbow import schemas
from rainbow.errors import InvalidInput
from rainbow.models.job import Answer, JobEvent, JobRecord, SubmitRequest
from rainbow.models.wire import parse

ID = str(uuid.uuid4())
JOB: dict[str, Any] = {"id": ID, "command": ["hostname"], "nodes": 2, "duration": "10m", "priority": 3}


def valid(name: str, message: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(schemas.load(name)).is_valid(message))


@pytest.mark.parametrize(
    "message",
    [
        JOB,
        {"jobspec": {"version": 1}, "clusters": ["blue", "@gpu"], "match": "range", "hold": 5},
        {"command": "echo hello", "selection": {"name": "first", "options": {}}, "expires": "2030-01-01T00:00:00Z"},
        {**JOB, "nodes": 0},
        {**JOB, "priority": 32},
        {**JOB, "node": 1},
        {**JOB, "command": 7},
        {**JOB, "environment": {"A": 1}},
    ],
)
def test_schema_and_model_agree_on_submissions(message: dict[str, Any]) -> None:
    try:
        parse(SubmitRequest, message)
        taken = True
    except InvalidInput:
        taken = False
    assert valid("submission", message) == taken


def test_what_rainbow_sends_is_valid() -> None:
    now = time.time()
    reasons = {"red": {"code": "too-few-nodes", "detail": "needs 4, has 2"}}
    answer = parse(Answer, {"id": ID, "status": "no-match", "reasons": reasons})
    event = parse(
        JobEvent, {"id": ID, "attempt": 1, "cluster": "blue", "state": "completed", "at": now, "returncode": 0}
    )
    record = parse(JobRecord, {"id": ID, "state": "running", "times": {"running": now}})
    assert valid("answer", answer.model_dump(mode="json"))
    assert valid("event", event.model_dump(mode="json", exclude_none=True))
    assert valid("record", record.model_dump(mode="json"))
    assert not valid("event", {"id": ID, "state": "sleeping", "at": now})
