"""From what a caller says of a job to the message."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rainbow import topology
from rainbow.client.submission import build, message
from rainbow.errors import InvalidInput, TooLarge


def sent(fields: dict[str, Any], tokens: list[str] | None = None) -> dict[str, Any]:
    made = message(build(fields), tokens or ["t"], "reply", max_bytes=1 << 20)
    body: dict[str, Any] = json.loads(made.body)
    return body


def test_the_message_is_what_the_contract_says() -> None:
    made = message(build({"command": ["hostname"]}), ["t"], "here", max_bytes=1 << 20)
    body = json.loads(made.body)
    assert (made.exchange, made.routing_key, made.content_type) == (topology.SUBMIT, "submit", "application/json")
    assert made.message_id == made.correlation_id == body["id"] == str(uuid.UUID(body["id"]))
    assert made.reply_to == "here"
    assert made.mandatory
    assert body == {"version": 1, "id": body["id"], "token": "t", "command": ["hostname"]}


def test_what_is_left_out_is_not_sent_and_what_is_given_is() -> None:
    body = sent(
        {
            "id": "6F1C1F7E-3f0e-4c56-9a53-2f1f0f6c8a11",
            "command": ("a", "b"),
            "nodes": 2,
            "name": None,
            "clusters": ("blue", "@gpu"),
            "match": "range",
            "selection": {"name": "first", "options": {"a": (1, 2)}},
            "environment": {"A": "b"},
            "expires": datetime(2030, 1, 1, tzinfo=UTC),
            "priority": 1,
            "hold": 1.5,
        }
    )
    del body["token"], body["version"]
    assert body == {
        "id": "6f1c1f7e-3f0e-4c56-9a53-2f1f0f6c8a11",
        "command": ["a", "b"],
        "nodes": 2,
        "clusters": ["blue", "@gpu"],
        "match": {"name": "range"},
        "selection": {"name": "first", "options": {"a": [1, 2]}},
        "environment": {"A": "b"},
        "expires": 1893456000.0,
        "priority": 1,
        "hold": 1.5,
    }


def test_several_tokens_go_into_tokens() -> None:
    assert sent({"command": "x"}, ["a", "b"])["tokens"] == ["a", "b"]
    assert "token" not in sent({"command": "x"}, ["a", "b"])
    with pytest.raises(InvalidInput, match="at most 256"):
        sent({"command": "x"}, [str(i) for i in range(257)])


def test_each_gets_an_id_of_its_own() -> None:
    assert build({"command": "x"}).id != build({"command": "x"}).id


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "jobspec or command"),
        ({"command": "x", "jobspec": "y"}, "jobspec or command"),
        ({"command": []}, "command is empty"),
        ({"command": "x", "nodes": 0}, "nodes"),
        ({"command": "x", "nodes": "2"}, "nodes"),
        ({"command": "x", "nodes": True}, "nodes"),
        ({"command": "x", "colour": 1}, "unknown field 'colour'"),
        ({"command": "x", "id": "7"}, "UUID"),
        ({"command": "x", "priority": 32}, "priority"),
        ({"command": "x", "expires": "tomorrow"}, "RFC 3339"),
        ({"command": "x", "expires": float("nan")}, "RFC 3339"),
        ({"jobspec": "y", "nodes": 2}, "nodes belong"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        build(fields)


def test_jobspecs_come_as_mapping_text_or_file(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("version: 1\n")
    assert sent({"jobspec": file})["jobspec"] == sent({"jobspec": "version: 1\n"})["jobspec"] == "version: 1\n"
    assert sent({"jobspec": {"version": 1}})["jobspec"] == {"version": 1}
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match="not UTF-8"):
        build({"jobspec": file})
    with pytest.raises(InvalidInput, match="Is a directory"):
        build({"jobspec": tmp_path})


def test_too_large_is_refused_here_and_the_limit_named(tmp_path: Path) -> None:
    with pytest.raises(TooLarge, match="at most 1000 are taken"):
        message(build({"command": ["x" * 2000]}), ["t"], None, max_bytes=1000)
    file = tmp_path / "job.yaml"
    file.write_text("#" * 2000)
    with pytest.raises(TooLarge, match="may have 1000"):
        build({"jobspec": file}, max_bytes=1000)
