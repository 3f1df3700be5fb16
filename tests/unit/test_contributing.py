"""CONTRIBUTING.md names files, make targets and tests that are there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()

PATHS = sorted(
    {
        path
        for path in re.findall(r"(?:`|\()((?:rainbow|workers|agents|tests|docs)/[\w./-]+)", TEXT)
        if "NAME" not in path
    }
)
TARGETS = set(re.findall(r"`make ([a-z][\w-]*)", TEXT))


def test_there_is_something_to_check() -> None:
    assert len(PATHS) > 20
    assert {"lint", "test", "bench"} <= TARGETS


@pytest.mark.parametrize("path", PATHS)
def test_a_path_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_make_help_lists_every_target() -> None:
    listed = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names = {line.split()[0] for line in listed.stdout.splitlines()}
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    assert names == set(phony[1].split())
    assert names >= TARGETS


@pytest.mark.parametrize(("file", "match"), re.findall(r"pytest (tests/[\w/]+\.py) -k (\w+)`", TEXT))
def test_an_example_selects_a_test(file: str, match: str) -> None:
    assert re.search(rf"def test_\w*{match}", (ROOT / file).read_text())
