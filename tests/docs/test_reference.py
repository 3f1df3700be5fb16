"""docs/reference: generated pages are current, asyncapi.yaml is AsyncAPI, and messages.md says what the code does."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

import jsonschema
import pytest
import yaml

from docs.documents import ROOT, all_documents
from rainbow import topology
from rainbow.models import control
from rainbow.models.job import Answer, AnswerStatus, Dispatch, JobEvent, RejectCode, SubmitRequest
from rainbow.models.wire import parse

REFERENCE = ROOT / "docs" / "reference"
GENERATE = runpy.run_path(str(ROOT / "docs" / "generate.py"))
PAGES: Mapping[str, Callable[[], str]] = GENERATE["PAGES"]
DOCUMENT: dict[str, Any] = GENERATE["asyncapi"].document()
MESSAGES = (REFERENCE / "messages.md").read_text()


@pytest.mark.parametrize("name", sorted(PAGES))
def test_generated_pages_are_current(name: str) -> None:
    assert (REFERENCE / name).read_text() == PAGES[name](), "run: python docs/generate.py"


# -- asyncapi.yaml -------------------------------------------------------------------------------------------


def _refs(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for item in value.values():
            yield from _refs(item)
    elif isinstance(value, list):
        for item in value:
            yield from _refs(item)


def _at(ref: str) -> Any:
    assert ref.startswith("#/")
    found: Any = DOCUMENT
    for part in ref[2:].split("/"):
        found = found[part]
    return found


def test_the_file_is_the_document() -> None:
    assert yaml.safe_load((REFERENCE / "asyncapi.yaml").read_text()) == DOCUMENT


def test_it_has_what_asyncapi_3_asks_for() -> None:
    """The required fields of the specification; the whole was checked once with its own JSON Schema."""
    assert DOCUMENT["asyncapi"] == "3.0.0"
    assert {"title", "version"} <= DOCUMENT["info"].keys()
    for server in DOCUMENT["servers"].values():
        assert {"host", "protocol"} <= server.keys()
    for operation in DOCUMENT["operations"].values():
        assert operation["action"] in ("send", "receive")
        channel = operation["channel"]["$ref"]
        assert all(m["$ref"].startswith(f"{channel}/messages/") for m in operation["messages"])
    for channel in DOCUMENT["channels"].values():
        names = set(re.findall(r"\{(\w+)\}", channel["address"] or ""))
        assert names == channel.get("parameters", {}).keys()


def test_every_reference_leads_somewhere() -> None:
    for ref in set(_refs(DOCUMENT)):
        assert _at(ref) is not None


def test_every_schema_is_one() -> None:
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema.Draft7Validator.check_schema(schema)


def test_every_exchange_and_queue_is_there() -> None:
    declared = topology.core() + topology.cluster("CLUSTER")
    titles = {c["title"] for c in DOCUMENT["channels"].values() if c["address"] is not None}
    assert titles == {e.name for e in declared.exchanges}
    queues = {q["name"]: q["arguments"] for c in DOCUMENT["channels"].values() for q in c.get("x-queues", ())}
    assert queues == {q.name: q.arguments() for q in declared.queues}


ID = "6f1c1f7e-3f0e-4c56-9a53-2f1f0f6c8a11"
#: Every field of a submission, in the forms that are accepted.
SUBMISSIONS: list[dict[str, Any]] = [
    {"command": ["hostname"]},
    {"command": "echo hello", "selection": "random", "match": "match", "expires": 2e9},
    {
        "version": 1,
        "id": ID,
        "token": "a.b.c",
        "tokens": ["a.b.c"],
        "command": ["hostname"],
        "nodes": 2,
        "tasks": 4,
        "cores_per_task": 2,
        "gpus_per_task": 0,
        "duration": "10m",
        "cwd": "/tmp",
        "environment": {"A": "b"},
        "requires": [{"name": "io", "field": "type", "match": "nvme"}],
        "compatibility": [{"attribute": "mpi.version", "value": ">=4.1,<5"}],
        "name": "job",
        "account": "physics",
        "image": "docker.io/library/debian",
        "clusters": ["blue", "@gpu"],
        "match": {"name": "range"},
        "selection": {"name": "random", "options": {}},
        "satisfy_only": False,
        "hold": 30,
        "priority": 31,
        "expires": "2030-05-01T12:00:00Z",
        "dependency": [f"afterok:{ID}"],
        "begin_time": "2030-05-01T12:00:00Z",
        "array": "1-100%5",
    },
    {"jobspec": {"version": 1, "resources": [], "tasks": []}},
    {"jobspec": "version: 1"},
]
WRONG: list[dict[str, Any]] = [
    {"command": ["hostname"], "colour": "red"},
    {"command": ["hostname"], "nodes": 0},
    {"command": ["hostname"], "nodes": "2"},
    {"command": ["hostname"], "priority": 32},
    {"command": ["hostname"], "version": 2},
    {"command": ["hostname"], "account": "no account"},
]


def _validator(name: str) -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator({**DOCUMENT, "$ref": f"#/components/schemas/{name}"})


@pytest.mark.parametrize("submission", SUBMISSIONS)
def test_what_the_models_take_the_schema_takes(submission: dict[str, Any]) -> None:
    parse(SubmitRequest, submission)
    _validator("SubmitRequest").validate(submission)


@pytest.mark.parametrize("submission", WRONG)
def test_what_the_schema_refuses_the_models_refuse(submission: dict[str, Any]) -> None:
    assert not _validator("SubmitRequest").is_valid(submission)
    with pytest.raises(Exception, match="field"):
        parse(SubmitRequest, submission)


def test_samples_name_every_field() -> None:
    assert {name for s in SUBMISSIONS for name in s} == set(SubmitRequest.model_fields)


# -- messages.md ---------------------------------------------------------------------------------------------


def _section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", MESSAGES, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def _first_column(text: str) -> set[str]:
    cells = re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_fields_of_a_submission() -> None:
    assert _first_column(_section("Submission")) == set(SubmitRequest.model_fields)


def test_fields_and_statuses_of_an_answer() -> None:
    fields, statuses = _section("Answer").split("| status |")
    assert _first_column(fields) >= set(Answer.model_fields) - {"version"}
    assert _first_column(statuses) >= set(get_args(AnswerStatus))


def test_exchanges_and_queues() -> None:
    declared = topology.core() + topology.cluster("CLUSTER")
    rows = re.findall(r"^\| `([\w.]+)` \| (\w+) \|", _section("Exchanges and queues"), re.MULTILINE)
    assert dict(rows) == {e.name: e.type for e in declared.exchanges}
    text = _section("Exchanges and queues").replace("`, `.", "`, `rainbow.hold.")
    assert {q.name for q in declared.queues} <= set(re.findall(r"`([\w.]+)`", text))


def test_states_codes_and_fields() -> None:
    states = set(re.findall(r"[a-z-]+", _section("States")))
    assert states >= set(get_args(JobEvent.model_fields["state"].annotation))
    assert set(get_args(RejectCode)) == _first_column(_section("Reasons"))
    assert set(re.findall(r"`(\w+)`", _section("Dispatch"))) >= set(Dispatch.model_fields)
    assert set(re.findall(r"`(\w+)`", _section("Events"))) >= set(JobEvent.model_fields)


def test_operations() -> None:
    named = set(re.findall(r"`([a-z-]+)`", _section("Control")))
    assert named >= {get_args(m.model_fields["op"].annotation)[0] for m in get_args(control.AnyRequest)}


# -- links ---------------------------------------------------------------------------------------------------


def _anchors(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", t.lower()).replace(" ", "-") for t in titles}


def test_links_lead_somewhere() -> None:
    for document in all_documents():
        file = ROOT / document.name
        text = re.sub(r"^```.*?^```", "", file.read_text(), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)]+)\)", text):
            if target.startswith(("http://", "https://")):
                continue
            path, _, anchor = target.partition("#")
            there = (file.parent / path).resolve() if path else file
            assert there.exists(), f"{document.name}: {target}"
            if anchor:
                assert anchor in _anchors(there.read_text()), f"{document.name}: {target}"
