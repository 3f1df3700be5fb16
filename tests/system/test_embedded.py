"""`rainbow up`, `down` and `demo`, as a person uses them: nothing but this package and its bundled server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


class Shell:
    """The command line in a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("RAINBOW_")}
        self.environment |= {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config")}

    def run(self, *words: str, code: int = 0, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "rainbow.cli", *words],
            env=self.environment,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    def json(self, *words: str, code: int = 0) -> object:
        command, *rest = words
        return json.loads(self.run(command, "--json", *rest, code=code).stdout)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    subprocess.run(
        [sys.executable, "-m", "rainbow.cli", "down"],
        env=made.environment,
        cwd=tmp_path,
        capture_output=True,
        timeout=90,
    )


@pytest.mark.timeout(300)
def test_up_submit_down_up_and_what_was_there_is_there(shell: Shell) -> None:
    shell.run("down", code=5)
    shell.run("up", "--detach")
    second = shell.run("up", "--detach", code=1)
    assert "runs already" in second.stderr
    assert second.stderr.count("\n") == 1

    done = shell.run("submit", "--wait", "--", "sh", "-c", "echo out of $0; pwd >/dev/null", "rainbow")
    assert "out of rainbow" in done.stdout + done.stderr
    failed = shell.run("submit", "--wait", "--", "sh", "-c", "exit 7", code=1)
    assert "7" in failed.stdout + failed.stderr
    impossible = shell.run("submit", "-N", "2", "--wait", "hostname", code=1)
    assert "needs 2" in impossible.stdout + impossible.stderr

    held = shell.json("submit", "--hold", "600", "-N", "50", "hostname")
    assert isinstance(held, dict)
    before = shell.json("jobs")
    shell.run("down")
    shell.run("jobs", code=4)
    shell.run("up", "--detach")
    assert shell.json("jobs") == before
    status = shell.json("status", str(held["id"]))
    assert "held" in json.dumps(status)
    assert "local" in shell.run("clusters").stdout
    shell.run("submit", "--wait", "true")


@pytest.mark.timeout(300)
def test_the_demo_shows_what_it_says(shell: Shell) -> None:
    outcomes = shell.json("demo")
    assert isinstance(outcomes, list)
    assert [o["problems"] for o in outcomes] == [[]] * len(outcomes)
    by_title = {o["title"]: o for o in outcomes}
    refused = by_title["refused by its first cluster, runs on the second"]
    assert "aqua refused: user 'guest' may not run jobs here" in "; ".join(refused["why"])
    nowhere = by_title["more than anybody has"]["why"]
    assert len(nowhere) == 3
    assert all("needs 8" in why for why in nowhere)
    shown = shell.run("demo").stdout
    for word in ("training on 2 gpus", "checkpoint written to nvme", "aqua refused", "needs 8 nodes, has 4"):
        assert word in shown
