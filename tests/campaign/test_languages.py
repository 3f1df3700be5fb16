"""The examples of other languages in the how-to, run as they stand there, where the language's tools are."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from processes import Site

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "submit-from-any-language.md"


def example(name: str) -> str:
    (code,) = re.findall(rf"^```\w+ file={re.escape(name)}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return str(code)


def run(folder: Path, site: Site, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **site.environment(),
        "RAINBOW_BROKER_URL": site.shared["broker"]["url"],
        "RAINBOW_TOKEN": site.token("alice"),
        "HOME": str(folder),
    }
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False
    )


def test_go(site: Site, tmp_path: Path) -> None:
    modules = Path("/usr/share/gocode")
    if shutil.which("go") is None or not (modules / "src/github.com/rabbitmq/amqp091-go").is_dir():
        pytest.skip("Go and amqp091-go are not installed (Debian: golang-go golang-github-rabbitmq-amqp091-go-dev)")
    (tmp_path / "submit.go").write_text(example("submit.go"))
    build = ["env", f"GOPATH={modules}", "GO111MODULE=off", "go", "build", "-o", "submit", "submit.go"]
    built = run(tmp_path, site, *build)
    assert built.returncode == 0, built.stderr
    done = run(tmp_path, site, "./submit")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "assigned"


def test_node(site: Site, tmp_path: Path) -> None:
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed (Debian: {program}js)")
    installed = subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "amqplib"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "npm_config_fetch_retries": "1"},
    )
    if installed.returncode != 0:
        pytest.skip(f"npm finds no amqplib: {installed.stderr[-200:]}")
    (tmp_path / "submit.mjs").write_text(example("submit.mjs"))
    done = run(tmp_path, site, "node", "submit.mjs")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["status"] == "assigned"
    assert answer["cluster"] in ("blue", "green", "red")
