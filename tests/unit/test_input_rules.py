"""One rule for a kind of input, whichever door it comes through."""

from __future__ import annotations

import gzip
import json
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rainbow import codec, settings
from rainbow.client.submission import build, message
from rainbow.errors import InvalidInput, InvalidSettings, RainbowError, TimedOut
from rainbow.jobspec import read
from rainbow.jobspec.dialects.simple import simple
from rainbow.jobspec.flux.v1 import V1Translator
from rainbow.models.job import SubmitRequest
from rainbow.models.wire import parse

_V1: dict[str, Any] = {
    "version": 1,
    "resources": [{"type": "slot", "count": 1, "label": "a", "with": [{"type": "core", "count": 1}]}],
    "tasks": [{"command": ["true"], "slot": "a", "count": {"per_slot": 1}}],
    "attributes": {"system": {"duration": 0}},
}


def _request(**fields: Any) -> SubmitRequest:
    return parse(SubmitRequest, {"command": ["true"], **fields})


def test_numbers_in_an_environment_become_text_in_every_dialect_and_door() -> None:
    given = {"N": 4, "X": 0.5, "YES": True, "T": "text"}
    wanted = {"N": "4", "X": "0.5", "YES": "true", "T": "text"}
    assert _request(environment=given).environment == wanted
    assert build({"command": ["true"], "environment": given}).environment == wanted
    assert simple(["true"], environment=given)["attributes"]["system"]["environment"] == wanted  # type: ignore[arg-type]
    document = {**_V1, "attributes": {"system": {"duration": 0, "environment": given}}}
    for text in (document, json.dumps(document)):
        job = V1Translator().translate(read(text))[0]
        assert job.document["attributes"]["system"]["environment"] == wanted
    for bad in (None, ["a"], {"b": 1}):
        with pytest.raises(InvalidInput, match=r"environment.*BAD"):
            read({**_V1, "attributes": {"system": {"duration": 0, "environment": {"BAD": bad}}}})


def test_null_is_as_if_left_out_and_whole_floats_are_whole() -> None:
    nulls = dict.fromkeys(set(SubmitRequest.model_fields) - {"command", "nodes"})
    assert _request(nodes=2.0, **nulls) == _request(nodes=2)
    plain = {"command": ["true"], "nodes": 1.0, "priority": 3.0, "hold": None}
    for body, kind in ((codec.encode_json(plain), codec.JSON), (codec.encode_msgpack(plain), codec.MSGPACK)):
        data = codec.decode(body, kind)
        request = parse(SubmitRequest, data)
        assert (request.nodes, request.priority, request.hold) == (1, 3, 0.0)
    for bad in (1.5, "2", True):
        with pytest.raises(InvalidInput, match="field 'nodes': must be a whole number"):
            _request(nodes=bad)


def test_what_python_has_is_taken() -> None:
    at = datetime.now().replace(microsecond=0) + timedelta(hours=1)
    made = build(
        {
            "command": [Path("/bin/echo"), "a"],
            "cwd": Path("/tmp"),
            "duration": timedelta(minutes=2),
            "environment": {"N": 1},
            "expires": at,
        }
    )
    assert (made.command, made.cwd, made.duration) == (["/bin/echo", "a"], "/tmp", 120.0)
    assert made.expires == at.timestamp()
    assert json.loads(message(made, ["t"], None, max_bytes=10_000).body)["environment"] == {"N": "1"}


def test_a_time_names_its_zone_in_messages_and_is_local_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "PST8")
    time.tzset()
    try:
        assert build({"command": ["true"], "expires": "2030-01-01T00:00:00"}).expires == 1893484800.0
        assert build({"command": ["true"], "expires": "2030-01-01T00:00:00Z"}).expires == 1893456000.0
    finally:
        monkeypatch.undo()
        time.tzset()
    with pytest.raises(InvalidInput, match="field 'expires': needs a zone: add Z"):
        _request(expires="2030-01-01T00:00:00")
    with pytest.raises(InvalidInput, match="milliseconds"):
        _request(expires=1893456000000)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"id": "abc"}, "field 'id': must be a UUID"),
        ({"id": "00000000-0000-0000-0000-000000000000"}, "nil UUID"),
        ({"nodes": 0}, "field 'nodes': must be at least 1"),
        ({"priority": 32}, "field 'priority': must be at most 31"),
        ({"priority": 0}, "field 'priority': must be at least 1"),
        ({"command": 3}, "field 'command': must be a list"),
        ({"nodse": 3}, "unknown field 'nodse': did you mean 'nodes'?"),
        ({"zzz": 3}, "unknown field 'zzz'$"),
        ({"environment": "A=b"}, "field 'environment': must be a mapping"),
        ({"satisfy_only": "yes"}, "field 'satisfy_only': must be true or false"),
    ],
)
def test_what_is_wrong_is_said_in_plain_words(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as refused:
        _request(**fields)
    assert "Input should" not in str(refused.value)
    assert "Value error" not in str(refused.value)


def test_a_setting_that_is_misspelt_is_told_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("scheduler: {prefech: 3}\n")
    with pytest.raises(InvalidSettings, match=r"unknown field 'scheduler.prefech': did you mean 'prefetch'\?"):
        settings.load(tmp_path / "f.yaml", {})


@pytest.mark.parametrize(
    ("text", "kind"), [("010", "octal"), ("1:30", "base 60"), ("-07", "octal"), ("1:30.5", "base 60")]
)
def test_numbers_that_yaml_reads_otherwise_are_refused(text: str, kind: str) -> None:
    document = json.dumps(_V1).replace('"duration": 0', f'"duration": {text}').replace('"', "'")
    with pytest.raises(InvalidInput, match=kind):
        read(document)


def test_time_running_out_is_pythons_own_error() -> None:
    assert issubclass(TimedOut, TimeoutError)
    assert issubclass(TimedOut, RainbowError)
    assert str(TimedOut("not yet")) == "not yet"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (gzip.compress(b"{}"), "compressed with gzip"),
        (b"\x28\xb5\x2f\xfd{}", "compressed with zstd"),
        ("{}".encode("utf-16"), "is not UTF-8 but UTF-16"),
    ],
    ids=["gzip", "zstd", "utf-16"],
)
@pytest.mark.parametrize("kind", [codec.JSON, codec.MSGPACK])
def test_a_message_that_is_not_plain_is_named(body: bytes, words: str, kind: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        codec.decode(body, kind)


def test_a_byte_order_mark_is_no_part_of_a_message() -> None:
    text = codec.encode_json({"command": ["true"]}).decode()
    assert codec.decode(text.encode("utf-8-sig"), codec.JSON) == {"command": ["true"]}


def test_keys_that_are_misspelt_in_a_jobspec_are_told_the_nearest() -> None:
    text = json.dumps(_V1)
    slips = (('"%s": {', "count", "cuont"), ('"%s": 1, "label"', "count", "cuont"), ('"%s"', "tasks", "taks"))
    for where, right, wrong in slips:
        with pytest.raises(InvalidInput, match=f"unknown key '{wrong}'; did you mean '{right}'"):
            read(text.replace(where % right, where % wrong))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hostname -f", ["hostname", "-f"]),
        ("printf '%s' \"a b\"", ["printf", "%s", "a b"]),
        ("echo $X; id", ["sh", "-c", "echo $X; id"]),
        ("cat < in | sort > out", ["sh", "-c", "cat < in | sort > out"]),
        ("ls *.txt", ["sh", "-c", "ls *.txt"]),
        ("N=4 ./solve", ["sh", "-c", "N=4 ./solve"]),
        ("./solve --n=4", ["./solve", "--n=4"]),
    ],
)
def test_a_command_that_is_one_text_is_read_as_a_shell_reads_it(text: str, words: list[str]) -> None:
    assert simple(text)["tasks"][0]["command"] == words
    nextgen = {
        "version": 1,
        "resources": {"a": {"type": "core", "count": 1}},
        "tasks": [{"command": text, "resources": "a"}],
    }
    assert list(read(nextgen).tasks[0].command) == words


def test_a_command_that_cannot_be_read_is_named() -> None:
    for bad, why in (
        ("echo 'a", "quotes are not closed"),
        ("", "empty"),
        (["a", 1], "not text"),
        ("a\0", "NUL"),
        (3, "text"),
    ):
        with pytest.raises(InvalidInput, match=f"command: .*{why}"):
            simple(bad)  # type: ignore[arg-type]
