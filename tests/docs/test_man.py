"""The manual pages: one for each command, and roff that groff reads without a warning."""

from __future__ import annotations

import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("man")
    runpy.run_path(str(ROOT / "docs" / "man.py"))["main"](made)
    return made


def test_each_command_has_a_page_with_its_options(folder: Path) -> None:
    from rainbow.cli.app import _COMMANDS

    names = {path.stem for path in folder.glob("*.1")}
    assert {"rainbow", "rainbow-scheduler", "rainbow-agent", "rainbow-agent-check", "rainbow-clusters-drain"} <= names
    assert {f"rainbow-{name}" for name in _COMMANDS} <= names
    page = (folder / "rainbow-submit.1").read_text()
    assert ".B \\-N, \\-\\-nodes" in page
    assert "rainbow submit \\-N 2 \\-t 10 hostname" in page


def test_groff_reads_them(folder: Path) -> None:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("groff is not installed")
    pages = sorted(map(str, folder.glob("*.1")))
    made = subprocess.run([groff, "-man", "-Tascii", "-ww", *pages], capture_output=True, text=True, check=False)
    assert made.returncode == 0
    assert made.stderr == ""
