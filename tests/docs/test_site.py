"""The documentation site builds without a warning, and needs no other server."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from docs.documents import ROOT
from pictures import BROWSERS, browser_program

#: A link to elsewhere in Markdown or reStructuredText, or a bare one in angle brackets; not what stands in code.
_LINK = re.compile(r"\]\((https?:[^)\s]*)\)|<(https?:[^>\s]*)>|^\[[^]]+\]: (https?:\S+)", re.MULTILINE)
_CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def test_links_to_elsewhere_are_well_formed() -> None:
    """`make links` tries them; here nothing is fetched."""
    found: dict[str, str] = {}
    for file in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for groups in _LINK.findall(_CODE.sub("", file.read_text())):
            found["".join(groups)] = file.name
    assert len(found) > 5, "links are not found where this test looks"
    for link, page in found.items():
        parts = urlsplit(link)
        assert parts.scheme == "https", f"{page}: {link} is not encrypted"
        assert re.fullmatch(r"([a-z0-9-]+\.)+[a-z]{2,}", parts.netloc), f"{page}: {link} has no plain host name"
        assert re.fullmatch(r"[!-~]+", link), f"{page}: {link} has characters that must be escaped"
        assert not link.endswith((".", ",", ";", ":")), f"{page}: {link} ends with punctuation"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built without a warning."""
    folder = tmp_path_factory.mktemp("site")
    options = ["-q", "-W", "--keep-going", "-c", "docs/site", "-d", str(folder / "trees"), "-b", "html"]
    command = [sys.executable, "-m", "sphinx", *options, "docs", str(folder / "html")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_the_site_builds_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    built = {str(page.relative_to(site).with_suffix("")) for page in pages}
    written = {str(page.relative_to(ROOT / "docs").with_suffix("")) for page in (ROOT / "docs").rglob("*.md")}
    assert written <= built
    for page in pages:
        loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)"', page.read_text())
        assert not loaded, f"{page.name} loads {loaded}"


def test_the_site_is_readable_on_a_phone(site: Path) -> None:
    """No page is wider than the screen: what is wide scrolls by itself."""
    sync_api = pytest.importorskip("playwright.sync_api")
    program = browser_program()
    if program is None:
        pytest.skip(f"no browser: install one of {', '.join(BROWSERS)}")
    wide: dict[str, int] = {}
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"], timeout=120_000)
        page = browser.new_context(viewport={"width": 390, "height": 800}).new_page()
        for file in sorted(site.rglob("*.html")):
            page.goto(file.as_uri())
            width = page.evaluate("document.documentElement.scrollWidth")
            if width > 390:
                wide[file.name] = width
        browser.close()
    assert not wide
