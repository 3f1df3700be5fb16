"""The console in a real browser: what people do with it, and whether everybody can. One browser for all of it.

It needs Chromium (Debian: `chromium`, or `chromium-headless-shell`) and, from the test group, playwright and axe.
RAINBOW_TEST_SCREENSHOTS names a folder for a picture of each page.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentrig import Agents
from manyjobs import fill
from rainbow import topology
from rainbow.settings import Settings
from rainbow.web import search
from rainbow_workers.stores.redis.ledger import LOOKED
from rig import Rig, eventually
from webserver import serve

sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: it is in the test group")
pictures = pytest.importorskip("pictures")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe: it is in the test group")

_WAIT_MS = 60_000


@pytest.fixture
def browser() -> Iterator[Any]:
    found = pictures.browser_program()
    if found is None:
        pytest.skip(f"no browser: install one of {', '.join(pictures.BROWSERS)}")
    with sync_api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"], timeout=_WAIT_MS)
        yield made
        made.close()


class Visitor:
    """Somebody with a browser window; what the browser complains about is kept."""

    def __init__(self, browser: Any, url: str, **window: Any) -> None:
        self.context = browser.new_context(base_url=url, **window)
        self.context.set_default_timeout(_WAIT_MS)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", lambda message: self._note(message.type, message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(text)

    def sign_in(self, token: str) -> None:
        self.page.goto("/login")
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Sign in").press("Enter")
        self.page.get_by_role("heading", name="Overview").wait_for()

    def examine(self, path: str, name: str) -> list[str]:
        """What is wrong with a page for those who see badly, have no mouse, or hold a phone."""
        self.page.goto(path, wait_until="domcontentloaded")
        self.page.get_by_role("main").wait_for()
        self.picture(name)
        found = axe.Axe().run(self.page).response["violations"]
        problems = [f"{path}: {v['id']}: {v['nodes'][0]['html'][:200]}" for v in found]
        if self.page.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
            problems.append(f"{path} is wider than the window")
        return problems

    def picture(self, name: str) -> None:
        folder = os.environ.get("RAINBOW_TEST_SCREENSHOTS")
        if folder:
            self.page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    name = f"memory://{uuid.uuid4().hex}"
    with Rig(name, name) as made:
        agents = Agents(made, tmp_path)
        try:
            agents.start("blue", executor="local")
            yield made
        finally:
            agents.close()


@pytest.mark.timeout(900)
def test_the_console_in_a_browser(browser: Any, rig: Rig, tmp_path: Path) -> None:
    rig.ring.save(tmp_path / "keys.json")
    given = {"broker": {"url": rig.broker_url}, "keyring": str(tmp_path / "keys.json"), "web": {"rate": 1000}}
    done = str(uuid.uuid4())
    rig.submit(id=done, name="a-short-job", command=["sh", "-c", "echo hello; echo oops >&2"])
    rig.submit(name="too-large", command=["true"], nodes=4000, hold=600)
    rig.publish(json.dumps({"token": rig.token, "colour": "red"}).encode())
    rig.until(done, "completed", 60)
    eventually(lambda: rig.broker.stats(topology.DEAD_QUEUE).messages, 60)
    for url in serve(Settings.model_validate(given)):
        admin = Visitor(browser, url, viewport={"width": 1280, "height": 900}, color_scheme="light")
        assert admin.examine("/login", "login") == []
        admin.sign_in(rig.issue("root", role="admin"))
        assert _everywhere(admin, done, "light") == []
        _keyboard(admin)
        _live(admin, rig)
        _jobspec(admin, done)
        _dead_letters(admin)
        assert admin.complaints == []
        phone = Visitor(browser, url, viewport={"width": 360, "height": 740}, color_scheme="dark")
        phone.sign_in(rig.token)
        assert _everywhere(phone, done, "phone-dark") == []
        assert phone.page.get_by_role("link", name="Dead letters").count() == 0
        assert phone.complaints == []
        admin.context.close()
        phone.context.close()


@pytest.mark.timeout(600)
def test_a_search_goes_on_in_the_page(
    browser: Any, redis_url: str, redis_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one answer does not reach is found while the page is open, and the page says how far it is."""
    monkeypatch.setattr(search, "PATIENCE", 0.0)
    with Rig(f"memory://{uuid.uuid4().hex}", redis_url, prefix=redis_prefix) as rig:
        oldest = fill(rig.store, LOOKED + 5_000, {0: "needle"})[0]
        for url in serve(Settings.model_validate({"broker": {"url": rig.broker_url}, "web": {"rate": 1000}})):
            alice = Visitor(browser, url, viewport={"width": 360, "height": 740})
            alice.sign_in(rig.token)
            page = alice.page
            page.goto("/jobs", wait_until="domcontentloaded")
            page.get_by_label("Text").fill("needle")
            page.get_by_label("Text").press("Enter")
            page.locator("tbody").get_by_text("needle").wait_for()
            page.get_by_text("Found.").wait_for()
            assert page.locator("tbody a").get_attribute("href") == f"/jobs/{oldest}"
            assert page.get_by_text("Go on").count() == 0
            assert axe.Axe().run(page).response["violations"] == []
            page.get_by_label("Text").fill("nothing like it")
            page.get_by_label("Text").press("Enter")
            page.get_by_text("Nothing was found.").wait_for()
            page.get_by_text("No jobs.").wait_for()
            assert alice.complaints == []
            alice.context.close()


def _everywhere(visitor: Visitor, job: str, kind: str) -> list[str]:
    pages = {
        "overview": "/",
        "clusters": "/clusters",
        "cluster": "/clusters/blue",
        "jobs": "/jobs",
        "job": f"/jobs/{job}",
        "waiting": "/waiting",
        "timeline": "/timeline?window=15m",
        "users": "/users",
        "dead": "/dead",
    }
    if not visitor.page.get_by_role("link", name="Dead letters").count():
        # A phone shows the same pages: those with the widest parts will do.
        pages = {name: pages[name] for name in ("overview", "cluster", "jobs", "job")}
    return [problem for name, path in pages.items() for problem in visitor.examine(path, f"{name}-{kind}")]


def _keyboard(visitor: Visitor) -> None:
    """The first stop of the tabulator leads past the navigation; then each link is reached in turn."""
    page = visitor.page
    page.goto("/", wait_until="domcontentloaded")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.id === 'main'")
    page.get_by_role("link", name="Jobs", exact=True).focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Jobs").wait_for()


def _live(visitor: Visitor, rig: Rig) -> None:
    """Output comes while the job runs; the cancel shows without loading the page again."""
    page, job = visitor.page, str(uuid.uuid4())
    rig.submit(id=job, command=["sh", "-c", "echo first line; sleep 600"])
    page.goto(f"/jobs/{job}", wait_until="domcontentloaded")
    page.get_by_text("first line", exact=True).wait_for()
    assert page.locator("dd .state").inner_text() == "running"
    page.get_by_role("button", name="Cancel the job").click()
    page.locator("dd .state.cancelled").wait_for()


def _jobspec(visitor: Visitor, job: str) -> None:
    """What was submitted is folded away until the keyboard, or a mouse, opens it."""
    page = visitor.page
    page.goto(f"/jobs/{job}", wait_until="domcontentloaded")
    spec = page.get_by_label("Jobspec")
    assert not spec.is_visible()
    page.locator("summary").focus()
    page.keyboard.press("Enter")
    spec.wait_for(state="visible")
    assert json.loads(spec.inner_text())["tasks"][0]["command"] == ["sh", "-c", "echo hello; echo oops >&2"]
    assert axe.Axe().run(page).response["violations"] == []


def _dead_letters(visitor: Visitor) -> None:
    page = visitor.page
    page.goto("/dead", wait_until="domcontentloaded")
    page.get_by_role("checkbox", name="Choose ").check()
    page.get_by_role("button", name="Drop for good").click()
    page.get_by_text("No dead letters.").wait_for()
