"""The `rainbow-agent` program: what it says and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from agentrig import Agents, settings
from rainbow.errors import InvalidSettings
from rainbow_agents.check import examine
from rig import Rig, eventually


def program(*words: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it with an environment of its own, in a folder without settings."""
    return subprocess.run(
        [sys.executable, "-m", "rainbow_agents.cli", *words],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("words", "environment", "code", "line"),
    [
        ((), {}, 2, "which cluster is this"),
        (("--cluster", "a/b"), {}, 2, "cannot name a cluster"),
        (("--cluster", "blue"), {}, 3, "nothing to register cluster blue with"),
        (("run", "--config", "none.yaml"), {}, 2, "no settings file at none.yaml"),
        (("--cluster", "blue", "--executor", "none"), {"RAINBOW_TOKEN": "t"}, 2, "no executors plugin named 'none'"),
        (
            ("--cluster", "blue", "--graph", "g"),
            {"RAINBOW_TOKEN": "t", "RAINBOW_AGENT_EXECUTOR": "local"},
            2,
            "no graph",
        ),
        (("health", "h.json"), {}, 5, "no health file"),
    ],
)
def test_one_plain_line_and_a_code(
    words: tuple[str, ...], environment: dict[str, str], code: int, line: str, tmp_path: Path
) -> None:
    url = {"RAINBOW_BROKER_URL": "memory://cli"}
    done = program(*words, folder=tmp_path, **url, **environment)
    assert done.returncode == code, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("rainbow-agent: ")
    assert line in last
    assert "Traceback" not in done.stderr


def test_help_is_quick_to_read(tmp_path: Path) -> None:
    done = program("--help", folder=tmp_path)
    assert done.returncode == 0
    for word in ("run", "check", "health", "Example"):
        assert word in done.stdout


def test_check_says_what_is_right(rig: Rig, tmp_path: Path) -> None:
    findings = examine(lambda: settings(rig, tmp_path, "blue"))
    assert all(f.ok for f in findings), findings
    assert {"settings", "identity", "resources", "executor", "broker", "registrar"} <= {f.what for f in findings}


@pytest.mark.parametrize(
    ("changes", "what", "words"),
    [
        ({"graph_file": "missing.json"}, "resources", "no graph file"),
        ({"options": {"colour": 1}}, "executor", "no option 'colour'"),
        ({"admission": [{"name": "none"}]}, "identity and policy", "no admission plugin"),
    ],
)
def test_check_says_what_is_wrong(rig: Rig, tmp_path: Path, changes: dict[str, Any], what: str, words: str) -> None:
    file = changes.pop("graph_file", None)
    made = settings(rig, tmp_path, "blue", **changes)
    if file is not None:
        made = made.model_copy(update={"agent": made.agent.model_copy(update={"graph": tmp_path / file})})
    wrong = [f for f in examine(lambda: made) if not f.ok]
    assert wrong[0].what == what
    assert words in wrong[0].detail
    assert wrong[0].exit_code != 0


def test_check_says_that_the_name_is_anothers(rig: Rig, tmp_path: Path) -> None:
    rig.register("blue")
    [wrong] = [f for f in examine(lambda: settings(rig, tmp_path, "blue")) if not f.ok]
    assert (wrong.what, wrong.exit_code) == ("name", 1)
    assert "cluster blue is registered by somebody else" in wrong.detail


def test_check_without_settings() -> None:
    def broken() -> Any:
        raise InvalidSettings("rainbow-config.yaml is not YAML (line 3)")

    (finding,) = examine(broken)
    assert (finding.ok, finding.exit_code) == (False, 2)


def test_check_without_registrar_or_broker(rig: Rig, tmp_path: Path) -> None:
    rig.service.stop()
    findings = examine(lambda: settings(rig, tmp_path, "blue"), within=0.5)
    assert [(f.what, f.ok) for f in findings][-1] == ("registrar", False)
    away = settings(rig, tmp_path, "blue", url="amqp://guest:secret@127.0.0.1:9/none")
    findings = examine(lambda: away, within=0.5)
    assert [(f.what, f.ok) for f in findings][-1] == ("broker", False)
    assert "secret" not in findings[-1].detail


def test_runs_reloads_and_stops(amqp_url: str, tmp_path: Path) -> None:
    """A program of its own: health file, SIGHUP, SIGTERM with code 0, no secret in its log."""
    with Rig(amqp_url, f"memory://{uuid.uuid4()}") as rig:
        agents = Agents(rig, tmp_path)
        file = tmp_path / "health.json"
        process = agents.program(health_file=str(file))
        try:
            agents.known("blue")

            def healthy() -> bool:
                return file.exists() and program("health", str(file), folder=tmp_path).returncode == 0

            eventually(healthy, 60)
            process.send_signal(signal.SIGHUP)
            eventually(lambda: "settings read again" in agents.log(), 30)
            process.terminate()
            assert process.wait(30) == 0
            assert not file.exists()
            token = json.loads((tmp_path / "agents" / "blue.yaml").read_text())["token"]
            kept = json.loads((tmp_path / "agents" / "state" / "blue" / "registration.json").read_text())
            for secret in (token, kept["secret"], *kept["keys"].values()):
                assert secret not in agents.log()
        finally:
            agents.close()
