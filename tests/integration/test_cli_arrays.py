"""Job arrays on the command line and over HTTP."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rainbow.errors import NotFound
from rainbow.models.ids import element_id
from rainbow.models.job import Dispatch
from running import Rainbow, Shell, alone, eventually, in_force, in_memory


@pytest.fixture
def rainbow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rainbow]:
    alone(monkeypatch, tmp_path)
    yield from in_force(in_memory(tmp_path), monkeypatch)


def fails_by_index(dispatch: Dispatch) -> list[dict[str, Any]]:
    assert dispatch.element is not None
    index = dispatch.element.index
    end = {"state": "failed", "returncode": index} if index else {"state": "completed", "returncode": 0}
    return [{"state": "accepted"}, {"state": "running"}, end]


def runs(dispatch: Dispatch) -> list[dict[str, Any]]:
    return [{"state": "accepted", "flux_id": "f1"}, {"state": "running"}]


def test_an_array_is_one_row_and_its_exit_code_the_largest(rainbow: Rainbow, sh: Shell) -> None:
    rainbow.cluster("blue", act=fails_by_index)
    said = sh("submit --wait --array 0-3:3 --name sweep true", code=3)
    assert said.out == ""
    array_id = said.err.split()[0]
    assert "held: array of 2 elements" in said.err
    assert f"rainbow: {array_id}  failed: 1 completed, 1 failed; exit 3" in said.err
    assert sh("jobs -q").out.split() == [array_id]
    assert "1 completed, 1 failed; exit 3" in sh("jobs").out
    assert sh(f"jobs --array {array_id[:8]} --sort index --format '{{index}} {{state}}'").out.splitlines() == [
        "0 completed",
        "3 failed",
    ]
    assert f"{array_id}[3]" in sh(f"jobs --array {array_id} -s failed").out
    status = sh(f"status {array_id}").out
    assert "0-3:3" in status
    assert "1 completed, 1 failed; exit 3" in status
    assert sh(f"status '{array_id[:8]}[3]' --json").json["returncode"] == 3
    assert f"{array_id}[3]" in sh("status '%sweep[3]'").out
    assert sh("wait '@-[3]'", code=1).out == f"{array_id}[3]  failed on blue: exit 3\n"
    assert sh("attach '@-[3]'", code=3).err.endswith("failed on blue: exit 3\n")
    assert "no job" in sh(f"status '{array_id}[1]'", code=5).err
    assert "an array has no output of its own: name an element" in sh(f"logs {array_id}", code=2).err
    assert "array of 2 elements" in sh(f"explain {array_id}").out


def test_elements_that_are_not_sent_yet(rainbow: Rainbow, sh: Shell) -> None:
    taken: list[Dispatch] = []

    def act(dispatch: Dispatch) -> list[dict[str, Any]]:
        taken.append(dispatch)
        return runs(dispatch)

    blue = rainbow.cluster("blue", act=act)
    array_id = sh("submit --array 1-1000%2 true").out.strip()
    eventually(lambda: "2 running" in sh(f"status {array_id}").out)
    assert sh(f"status '{array_id}[900]' --json").json["state"] == "submitted"
    assert sh(f"cancel '{array_id}[900]'").out.endswith("cancel requested (submitted)\n")
    with rainbow.client() as client:
        assert client.job(f"{array_id}[900]").status().id == element_id(array_id, 900)
        with pytest.raises(NotFound):
            client.job(f"{array_id}[1001]").status()
        follow = client.events([f"{array_id}[800]", f"{array_id}[1]"], timeout=60)
        assert next(follow).state == "running"
        assert sh(f"cancel {array_id}").out == f"{array_id}  cancel requested (running)\n"
        for dispatch in taken:
            blue.tell(dispatch, {"state": "cancelled"})
        last = {record.index: record.state for record in follow}
    assert last == {1: "cancelled", 800: "cancelled"}
    ended = sh(f"wait {array_id}", code=1).out
    assert "cancelled" in ended
    assert "1000 cancelled" in ended


def test_arrays_in_scripts_and_dry_runs(rainbow: Rainbow, sh: Shell, tmp_path: Path) -> None:
    rainbow.cluster("blue", act=runs)
    job = tmp_path / "job.sh"
    job.write_text("#!/bin/sh\n#SBATCH -n 1\n#SBATCH --array=1-4%2\n#SBATCH -o out-%A_%a.txt\ntrue\n")
    os.chdir(tmp_path)
    array_id = sh("batch job.sh").out.strip()
    assert sh(f"status {array_id} --json").json["indices"] == "1-4%2"
    said = sh("submit --dry-run --array 5-6 --script job.sh")
    assert "array of 2 elements: 5-6" in said.err
    path = said.json["attributes"]["system"]["shell"]["options"]["output"]["stdout"]["path"]
    assert path == "out-{{array.id}}_{{array.index}}.txt"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--array 1-", "no index or range"),
        ("--array 1-9:0", "the step"),
        ("--array 1-9%0", "%0"),
        ("--array 0-999999999", "at most 1000000 are taken"),
        ("--array 1-3 --satisfy-only", "array and satisfy_only do not go together"),
        ("--array 1-3 --dependency aftercorr:6f1c1f7e-3f0e-4c56-9a53-2f1f0f6c8a11", "write after:ID"),
    ],
)
def test_wrong_arrays_are_one_line(rainbow: Rainbow, sh: Shell, options: str, words: str) -> None:
    rainbow.cluster("blue", act=runs)
    said = sh(f"submit {options} true", code=2)
    assert words in said.err
