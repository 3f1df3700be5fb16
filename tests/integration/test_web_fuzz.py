"""The HTTP API against its OpenAPI document, with requests that schemathesis makes: the same ones each time."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from rainbow.settings import Settings
from rainbow.web.app import make_app
from rainbow.web.gateway import Gateway
from rig import Rig, resources

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
OPERATIONS = [
    "POST /v1/jobs",
    "GET /v1/jobs",
    "POST /v1/satisfy",
    "GET /v1/jobs/{id}",
    "GET /v1/jobs/{id}/events",
    "GET /v1/jobs/{id}/output",
    "GET /v1/jobs/{id}/jobspec",
    "POST /v1/jobs/{id}/cancel",
    "GET /v1/clusters",
    "GET /v1/clusters/{name}",
]


@pytest.fixture(scope="module")
def api() -> Iterator[tuple[Any, str]]:
    """The API as schemathesis reads it, and a token. No agent runs: what is submitted waits."""
    name = f"memory://{uuid.uuid4().hex}"
    with Rig(name, name) as rig:
        rig.register("blue", resources())
        given_ = Settings.model_validate({"broker": {"url": rig.broker_url}, "web": {"rate": 1000, "burst": 1000}})
        gateway = Gateway(given_, timeout=120.0)
        yield schemathesis.openapi.from_asgi("/openapi.json", make_app(given_, gateway)), rig.token
        gateway.close()


def test_every_operation_is_tried(api: tuple[Any, str]) -> None:
    found = [result.ok().label for result in api[0].get_all_operations()]
    assert sorted(found) == sorted(OPERATIONS)


@pytest.mark.parametrize("name", OPERATIONS)
def test_answers_are_those_that_the_document_has(api: tuple[Any, str], name: str) -> None:
    schema, token = api
    method, path = name.split()

    @settings(
        max_examples=12,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=schema[path][method].as_strategy())
    def check(case: Any) -> None:
        case.call_and_validate(headers={"Authorization": f"Bearer {token}"}, checks=CHECKS, timeout=120)

    check()
