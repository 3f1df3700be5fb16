"""The documentation site builds without a warning, and needs no other server."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from documents import ROOT


def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-c",
        "docs/site",
        "-d",
        str(tmp_path / "trees"),
    ]
    done = subprocess.run(
        [*command, "-b", "html", "docs", str(tmp_path / "site")], cwd=ROOT, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    built = {str(page.relative_to(tmp_path / "site").with_suffix("")) for page in pages}
    written = {str(page.relative_to(ROOT / "docs").with_suffix("")) for page in (ROOT / "docs").rglob("*.md")}
    assert written <= built
    for page in pages:
        loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)"', page.read_text())
        assert not loaded, f"{page.name} loads {loaded}"
        assert '<meta name="viewport"' in page.read_text()
