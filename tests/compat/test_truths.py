"""Questions with known answers (most of them decided by Fluxion itself), asked as `rainbow satisfy --rows` does."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rainbow.resources.matching.satisfy import Questions, satisfy_rows

pytestmark = pytest.mark.shared

SHARED = Path(os.environ.get("RAINBOW_SHARED", Path(__file__).resolve().parents[2].parent / "shared"))
DATA = SHARED / "data"


@pytest.fixture(autouse=True)
def _present() -> None:
    if not DATA.is_dir():
        pytest.skip(f"no shared data at {SHARED} (set RAINBOW_SHARED)")


def _rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / "truths.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def answers() -> list[dict[str, Any]]:
    return list(satisfy_rows(DATA / "truths.jsonl")) if DATA.is_dir() else []


def _said(answer: dict[str, Any]) -> str:
    return "invalid" if answer["error"] else "match" if answer["match"] else "no-match"


def test_every_row_has_its_expected_answer(answers: list[dict[str, Any]]) -> None:
    rows = _rows()
    assert len(answers) == len(rows) > 300
    wrong = [
        (row["graph"], row["jobspec"], row["expect"], answer)
        for row, answer in zip(rows, answers, strict=True)
        if _said(answer) != row["expect"]
    ]
    assert wrong == []


def test_a_no_says_why(answers: list[dict[str, Any]]) -> None:
    for answer in answers:
        if answer["error"] is not None:
            assert answer["error"]["code"].startswith("invalid")
            assert answer["error"]["message"]
        elif answer["match"]:
            assert answer["unmet"] == []
        else:
            assert answer["slots"] == 0
            assert answer["unmet"][0]["code"]
            assert answer["unmet"][0]["detail"]


def test_the_walk_says_what_fluxion_said() -> None:
    asked = Questions()
    wrong = []
    for row in _rows():
        said = row.get("checked_with_fluxion")
        if said is None or row["graph"] is None:
            continue
        named = [(None, DATA / path) for path in row["subsystems"]]
        jobspec = DATA / row["jobspec"]
        answer = asked.ask(DATA / row["graph"], named, jobspec, row.get("dialect"), "fluxion", row.get("dominant"))
        if _said(answer) != said.split("(")[0]:
            wrong.append((row["graph"], row["jobspec"], said, answer))
    assert wrong == []
