"""The table in README.md: every numbered fault has tests that exist and carry its number, or a reason why not."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROWS = re.findall(r"^\| (S\d\d) \| ([^|]+) \| ([^|]+) \|$", (HERE / "README.md").read_text(), re.MULTILINE)
#: Of the list of faults that other projects met.
NUMBERS = (
    "S01 S02 S04 S05 S07 S08 S09 S11 S12 S13 S14 S16 S18 S19 S20 S21 S22 S25 S26 S28 S29 S30 S32 S34 S35 S37 S38 S40 "
    "S42 S43 S45 S47 S48 S49 S51 S53 S54 S55 S57 S58 S59 S61"
)


def test_each_fault_has_its_row() -> None:
    assert " ".join(number for number, _, _ in ROWS) == NUMBERS


@pytest.mark.parametrize(("number", "tests"), [(n, t) for n, _, t in ROWS], ids=[n for n, _, _ in ROWS])
def test_its_tests_exist(number: str, tests: str) -> None:
    named = re.findall(r"`([\w./]+\.py)::(\w+)`", tests)
    assert named or tests.startswith("does not apply: "), tests
    assert tests.count("`") == 2 * len(named) or not named, tests
    for path, name in named:
        file = HERE.parent / path
        assert file.is_file(), path
        found = [n for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.FunctionDef) and n.name == name]
        assert found, f"{path} has no {name}"
        assert number in (ast.get_docstring(found[0]) or ""), f"{name} does not say that it is {number}"
