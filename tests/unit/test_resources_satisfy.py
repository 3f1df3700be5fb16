"""`rainbow satisfy`: one question, many rows, and what is printed."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from rainbow.cli.exits import run
from rainbow.resources.matching.satisfy import satisfy, satisfy_rows
from resource_texts import graph

JOB: dict[str, Any] = {
    "version": 1,
    "resources": {"a": {"type": "node", "count": 2, "with": [{"type": "core", "count": 4}]}},
}
WISHING: dict[str, Any] = {
    "version": 1,
    "resources": {"a": {"type": "node", "count": 1, "requires": [{"name": "io", "field": "type", "match": "shm"}]}},
}
IO: dict[str, Any] = {
    "graph": {
        "nodes": {"io0": {"metadata": {"type": "io"}}, "a": {"metadata": {"type": "shm"}}},
        "edges": [{"source": "1", "target": "a", "relation": "contains"}],
    }
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, document in {
        "blue.json": {"name": "blue", **graph("cluster(2xnode(4xcore))")},
        "tiny.json": graph("cluster(node(core))"),
        "job.json": JOB,
        "wishing.json": WISHING,
        "disk-subsystem.json": IO,
        "bad.json": {"version": 2},
        "bad-graph.json": {"graph": {}},
    }.items():
        (tmp_path / name).write_text(json.dumps(document))
    (tmp_path / "blue.json.xz").write_bytes(lzma.compress((tmp_path / "blue.json").read_bytes()))
    (tmp_path / "job.yaml").write_text("version: 1\nresources:\n  a: {type: node, count: 2}\n")
    return tmp_path


def test_one_question(folder: Path) -> None:
    assert satisfy(folder / "blue.json", (), folder / "job.json") == {
        "cluster": "blue",
        "match": True,
        "slots": 1,
        "unmet": [],
        "error": None,
    }
    refused = satisfy(folder / "tiny.json", (), folder / "job.yaml")
    assert refused["cluster"] == "tiny"
    assert refused["unmet"] == [{"code": "too-few-nodes", "detail": "needs 2 nodes, has 1", "path": "node[2]"}]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("blue.json", (), "bad.json"), "invalid-jobspec"),
        (("blue.json", (), "missing.json"), "invalid-jobspec"),
        (("bad-graph.json", (), "job.json"), "invalid-graph"),
        (("missing.json", (), "job.json"), "invalid-graph"),
        (("blue.json", ("missing.json",), "job.json"), "invalid-graph"),
        (("blue.json", (), "job.json", "V1"), "invalid-jobspec"),
        (("blue.json", (), "job.json", "V9"), "invalid"),
        (("blue.json", (), "job.json", None, "guess"), "invalid"),
        (("blue.json", (), "job.json", None, None, "power"), "invalid-graph"),
        ((None, (), "bad.json"), "invalid-jobspec"),
    ],
)
def test_invalid_input_is_an_answer(folder: Path, arguments: Any, code: str) -> None:
    where, subsystems, jobspec, *more = arguments
    answer = satisfy(where and folder / where, [folder / name for name in subsystems], folder / jobspec, *more)
    assert (answer["match"], answer["error"]["code"]) == (False, code)


def test_subsystems_by_name_and_by_themselves(folder: Path) -> None:
    file = folder / "disk-subsystem.json"
    for subsystems in ([file], [f"io={file}"], {"io": file}):
        assert satisfy(folder / "blue.json", subsystems, folder / "wishing.json")["match"]
    other = satisfy(folder / "blue.json", [f"disk={file}"], folder / "wishing.json")
    assert other["unmet"][0]["code"] == "missing-subsystem"


ROWS = [
    ({"graph": "blue.json", "subsystems": [], "jobspec": "job.json"}, "match"),
    ({"graph": "blue.json.xz", "jobspec": "job.yaml", "matcher": None}, "match"),
    ({"graph": "tiny.json", "subsystems": [], "jobspec": "job.json", "matcher": "fluxion"}, "no-match"),
    ({"graph": "blue.json", "subsystems": ["disk-subsystem.json"], "jobspec": "wishing.json"}, "match"),
    ({"graph": None, "subsystems": [], "jobspec": "job.json"}, "match"),
    ({"graph": None, "subsystems": [], "jobspec": "bad.json"}, "invalid"),
    ({"graph": "nothing", "subsystems": [], "jobspec": "job.json"}, "invalid"),
    ({"graph": "blue.json", "subsystems": "io", "jobspec": "job.json"}, "invalid"),
    ({"graph": "blue.json", "subsystems": [], "jobspec": 3}, "invalid"),
    ({"graph": "blue.json", "subsystems": [], "jobspec": "job.json", "dialect": 1}, "invalid"),
    ({}, "invalid"),
    ([], "invalid"),
    ("{not json", "invalid"),
    ("[" * 100_000, "invalid"),
    ({"graph": "blue.json", "subsystems": [], "jobspec": "job.json"}, "match"),
]


def said(answer: dict[str, Any]) -> str:
    return "invalid" if answer["error"] else "match" if answer["match"] else "no-match"


def rows_file(folder: Path) -> Path:
    lines = [row if isinstance(row, str) else json.dumps(row) for row, _ in ROWS]
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n\n")
    return folder / "rows.jsonl"


def test_rows_are_answered_in_order_and_a_bad_one_stops_nothing(folder: Path) -> None:
    assert [said(answer) for answer in satisfy_rows(rows_file(folder))] == [expected for _, expected in ROWS]


def test_rows_on_the_command_line(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_file(folder)
    moved = tmp_path / "elsewhere" / "rows.jsonl"
    moved.parent.mkdir()
    moved.write_text(rows.read_text())
    assert run(["satisfy", "--rows", str(moved), "--base", str(folder), "--json"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [said(json.loads(line)) for line in printed] == [expected for _, expected in ROWS]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--graph", "blue.json", "--jobspec", "job.json"], 0, "blue: match (1 at once)"),
        (["--graph", "blue.json", "-N", "2", "-n", "4", "-c", "2"], 0, "blue: match"),
        (["--graph", "blue.json", "-n", "9"], 1, "needs 9 slots with that, has 8 [too-few-slots]"),
        (["--graph", "tiny.json", "--jobspec", "job.json"], 1, "node[2] > core[4]: needs 4 cores in one node"),
        (["--graph", "tiny.json", "--jobspec", "bad.json"], 2, "invalid: "),
        (["--graph", "bad-graph.json", "--jobspec", "job.json"], 2, "graph.nodes is missing"),
        (["--jobspec", "job.json"], 0, "the jobspec is valid"),
        (["--graph", "blue.json"], 2, "give --jobspec"),
        (["--graph", "blue.json", "--subsystem", "disk-subsystem.json", "--jobspec", "wishing.json"], 0, "match"),
    ],
)
def test_exit_codes_and_words(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    words: str,
) -> None:
    monkeypatch.chdir(folder)
    assert run(["satisfy", *arguments]) == code
    printed = capsys.readouterr()
    assert words in printed.out + printed.err
    if code == 2:
        assert printed.out == ""


def test_json_is_one_document(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for graph_file, jobspec, code in (
        ("blue.json", "job.json", 0),
        ("tiny.json", "job.json", 1),
        ("blue.json", "bad.json", 2),
    ):
        assert (
            run(["satisfy", "--graph", str(folder / graph_file), "--jobspec", str(folder / jobspec), "--json"]) == code
        )
        answer = json.loads(capsys.readouterr().out)
        assert set(answer) == {"cluster", "match", "slots", "unmet", "error"}
        assert (answer["error"] is not None) == (code == 2)
