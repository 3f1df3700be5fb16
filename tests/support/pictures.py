"""Pictures of the console and of `rainbow top` for the documents: ``make pictures`` writes ``docs/pictures``.

A rainbow in this process with three clusters, whose agents run the jobs of a few users for real, and the browser that
the tests use.
"""

from __future__ import annotations

import html
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from agentrig import Agents
from rainbow.client import Client
from rainbow.settings import Settings
from rig import Rig, resources
from webserver import serve

BROWSERS = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome")
_CLUSTERS = {"blue": resources(4, 8), "green": resources(2, 16, 4), "red": resources(2, 4)}
_USERS = {"alice": "physics", "bob": "physics", "carol": "biology"}


def browser_program() -> str | None:
    """The path of an installed browser."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def _work(rig: Rig) -> str:
    """Jobs of three users; the id of the first, which has ended."""
    rng = random.Random(4)
    names = ("relax", "sweep", "train", "post", "mesh")
    first = ""
    for number in range(36):
        user = rng.choice(list(_USERS))
        token = rig.issue(user, accounts=(_USERS[user],))
        with Client(broker=rig.submitter, token=token, timeout=60) as client:
            length = rng.choice((0.5, 1, 2, 4, 8))
            ends = "; exit 1" if number % 12 == 5 else ""
            job = client.submit(
                name=f"{rng.choice(names)}-{number}",
                command=["sh", "-c", f"echo step {number} of the sweep; sleep {length}{ends}"],
                nodes=1,
                cores_per_task=rng.choice((2, 4, 8)),
                hold=3600,
            )
            first = first or job.id
        time.sleep(0.25)
    with Client(broker=rig.submitter, token=rig.issue("alice", accounts=("physics",)), timeout=60) as client:
        long = client.submit(name="train-long", command=["sh", "-c", "echo epoch 1 of 40; sleep 120"], hold=3600)
        after = client.submit(name="collect", command=["true"], dependency=f"afterok:{long.id}")
        wide = client.submit(name="wide", command=["true"], nodes=64, hold=3600)
        for job in (after, wide):
            assert job.answer.status == "held"
        return first


def main(folder: Path) -> None:
    program = browser_program()
    if program is None:
        raise SystemExit(f"no browser: install one of {', '.join(BROWSERS)}")
    folder.mkdir(exist_ok=True)
    name = f"memory://{uuid.uuid4().hex}"
    with tempfile.TemporaryDirectory() as home, Rig(name, name) as rig:
        agents = Agents(rig, Path(home))
        rig.ring.save(Path(home) / "keys.json")
        given = {"broker": {"url": name}, "keyring": f"{home}/keys.json", "web": {"rate": 1000, "burst": 1000}}
        try:
            for cluster, graph in _CLUSTERS.items():
                agents.start(cluster, graph=graph, executor="local")
            job = _work(rig)
            admin = rig.issue("root", role="admin")
            for url in serve(Settings.model_validate(given)):
                with sync_playwright() as playwright:
                    browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
                    _take(browser, url, admin, job, folder)
                    _top(browser, url, admin, Path(home), folder)
                    browser.close()
        finally:
            agents.close()


def _take(browser: Any, url: str, token: str, job: str, folder: Path) -> None:
    for kind, window in {
        "": {"viewport": {"width": 1100, "height": 700}, "color_scheme": "light"},
        "-phone": {"viewport": {"width": 380, "height": 760}, "color_scheme": "dark"},
    }.items():
        context = browser.new_context(base_url=url, **window)
        page = context.new_page()
        page.goto("/login")
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", name="Overview").wait_for()
        paths = {"overview": "/", "waiting": "/waiting", "timeline": "/timeline?window=1m", "job": f"/jobs/{job}"}
        for name, path in paths.items():
            if kind and name != "overview":
                continue
            page.goto(path, wait_until="domcontentloaded")
            page.get_by_role("main").wait_for()
            if name == "job":
                page.locator("summary").click()
            page.screenshot(path=str(folder / f"{name}{kind}.png"), full_page=name == "job")
        context.close()


def _top(browser: Any, url: str, token: str, home: Path, folder: Path) -> None:
    """The command as a terminal shows it."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAINBOW_")}
    environment |= {"HOME": str(home), "RAINBOW_BROKER_URL": url, "RAINBOW_TOKEN": token, "COLUMNS": "120"}
    command = ["script", "-qec", f"stty cols 120 rows 24; {sys.executable} -m rainbow.cli top -i 1", "/dev/null"]
    shown = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    time.sleep(8)
    assert shown.stdin is not None
    out, _ = shown.communicate(b"q", 60)
    text = out.decode().rpartition("\x1b[H")[2].partition("\x1b[?")[0]
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")
    page = browser.new_page(viewport={"width": 1100, "height": 320})
    style = "margin:0;padding:16px;background:#0d1117;color:#e6edf3;font:15px/1.4 monospace"
    page.set_content(f'<body style="{style}"><pre style="margin:0">{html.escape(plain)}</pre>')
    page.screenshot(path=str(folder / "top.png"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
