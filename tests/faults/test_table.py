"""The table in README.md: every numbered fault has tests that exist and carry its number, or a reason why not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROWS = re.findall(r"^\| (S\d\d) \| ([^|]+) \| ([^|]+) \|$", (HERE / "README.md").read_text(), re.MULTILINE)
#: Of the list of faults that other projects met.
NUMBERS = [
    1,
    2,
    4,
    5,
    7,
    8,
    9,
    11,
    12,
    13,
    14,
    16,
    18,
    19,
    20,
    21,
    22,
    25,
    26,
    28,
    29,
    30,
    32,
    34,
    35,
    37,
    38,
    40,
    42,
    43,
]
NUMBERS += [45, 47, 48, 49, 51, 53, 54, 55, 57, 58, 59, 61]


def test_each_fault_has_its_row() -> None:
    assert [int(number[1:]) for number, _, _ in ROWS] == NUMBERS


@pytest.mark.parametrize(("number", "tests"), [(n, t) for n, _, t in ROWS], ids=[n for n, _, _ in ROWS])
def test_its_tests_exist(number: str, tests: str) -> None:
    named = re.findall(r"`([\w./]+\.py)::(\w+)`", tests)
    assert named or not tests.startswith("`"), tests
    for path, name in named:
        file = HERE.parent / path
        assert file.is_file(), path
        assert re.search(rf"^\s*def {name}\(", file.read_text(), re.MULTILINE), f"{path} has no {name}"
    assert named or "not a state of its own" in tests
