"""docs/explanation/security.md names a test for what it says, and each of them exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "explanation" / "security.md").read_text()
#: Sections whose statements are not claims about what is enforced.
PLAIN = ("Trust", "Limits", "Advice")


def _tests() -> set[str]:
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        found.update(re.findall(r"^\s*def (test_\w+)", path.read_text(), re.MULTILINE))
    return found


def test_each_test_it_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", TEXT))
    assert len(named) > 40
    assert named - _tests() == set()


def test_each_statement_names_a_test() -> None:
    for section in re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]:
        title = section.splitlines()[0]
        if title.startswith(PLAIN):
            continue
        for item in re.findall(r"^- .*?(?=^- |^$|\Z)", section, re.MULTILINE | re.DOTALL):
            assert "`test_" in item, f"{title}: {item[:80]}"
