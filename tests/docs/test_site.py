"""The documentation site builds without a warning, and needs no other server."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

from documents import ROOT

#: A link to elsewhere in Markdown or reStructuredText, or a bare one in angle brackets; not what stands in code.
_LINK = re.compile(r"\]\((https?:[^)\s]*)\)|<(https?:[^>\s]*)>|^\[[^]]+\]: (https?:\S+)", re.MULTILINE)
_CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def test_links_to_elsewhere_are_well_formed() -> None:
    """`make links` tries them; here nothing is fetched."""
    found: dict[str, str] = {}
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for groups in _LINK.findall(_CODE.sub("", page.read_text())):
            found["".join(groups)] = page.name
    assert len(found) > 5, "links are not found where this test looks"
    for link, page in found.items():
        parts = urlsplit(link)
        assert parts.scheme == "https", f"{page}: {link} is not encrypted"
        assert re.fullmatch(r"([a-z0-9-]+\.)+[a-z]{2,}", parts.netloc), f"{page}: {link} has no plain host name"
        assert re.fullmatch(r"[!-~]+", link), f"{page}: {link} has characters that must be escaped"
        assert not link.endswith((".", ",", ";", ":")), f"{page}: {link} ends with punctuation"


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
