"""`rainbow bulksubmit` fills inputs into a template as ``flux bulksubmit`` does."""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from running import Shell


@pytest.fixture
def sh(capsys: Any) -> Shell:
    return Shell(capsys)


def made(sh: Shell, *words: str) -> list[Any]:
    return [json.loads(line) for line in sh(shlex.join(["bulksubmit", "--dry-run", *words])).out.splitlines()]


@pytest.mark.parametrize(
    ("words", "commands"),
    [
        (["echo", "{}", ":::", "a", "b"], [["echo", "a"], ["echo", "b"]]),
        (["echo", "{0}-{1}", ":::", "a", "b", ":::", "1", "2"], [["echo", f"{x}-{y}"] for x in "ab" for y in "12"]),
        (["echo", "{0}{1}", ":::", "a", "b", ":::+", "1", "2"], [["echo", "a1"], ["echo", "b2"]]),
        (["echo", "{seq}", "{seq1}", ":::", "a", "b"], [["echo", "0", "1"], ["echo", "1", "2"]]),
        (["x", "{.%}", "{./}", "{./%}", "{.//}", ":::", "/d/f.in"], [["x", "/d/f", "f.in", "f", "/d"]]),
        ([":::", "echo one", "hostname"], ["echo one", "hostname"]),
        (["true", ":::", "a", "b"], [["true"], ["true"]]),
        (["awk", "{print $1}", ":::", "a"], [["awk", "{print $1}"]]),
    ],
)
def test_inputs_are_filled_in(sh: Shell, words: list[str], commands: list[Any]) -> None:
    assert [job["command"] for job in made(sh, *words)] == commands


def test_other_fields_are_filled_in_and_copies_made(sh: Shell) -> None:
    options = ["-n", "2", "-t", "1", "--name", "run-{}-{cc}", "--env", "N={0}", "--cwd", "/w/{}", "--cc", "1,3"]
    jobs = made(sh, *options, "prog", ":::", "a")
    assert jobs == [
        {
            "tasks": 2,
            "duration": 60.0,
            "command": ["prog"],
            "name": f"run-a-{copy}",
            "cwd": "/w/a",
            "environment": {"N": "a", "FLUX_JOB_CC": copy},
        }
        for copy in ("1", "3")
    ]


def test_inputs_come_from_files_and_standard_input(sh: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inputs").write_text("a b\n\nc\n")
    assert [j["command"] for j in made(sh, "x", "{}", "::::", str(tmp_path / "inputs"))] == [["x", "a b"], ["x", "c"]]
    monkeypatch.setattr("sys.stdin", io.StringIO("one\ntwo\n"))
    assert [job["command"] for job in made(sh, "x", "{}")] == [["x", "one"], ["x", "two"]]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["x", "{1}", ":::", "a"], "{1}: there is no such input"),
        (["x", "{cc}", ":::", "a"], "{cc} needs --cc"),
        (["x", ":::+", "a"], "goes along with a list before it"),
        (["x", "::::", "/nowhere/at/all"], "/nowhere/at/all cannot be read: No such file"),
        (["--cc", "x", "true", ":::", "a"], "idset"),
    ],
)
def test_wrong_templates_are_exit_2_and_submit_nothing(sh: Shell, words: list[str], says: str) -> None:
    said = sh(shlex.join(["bulksubmit", *words]), code=2)
    assert says in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""
