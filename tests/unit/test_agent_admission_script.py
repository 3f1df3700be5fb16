"""The admission rule `script`, with real programs, well-behaved and not."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from rainbow.errors import InvalidSettings
from rainbow.jobspec import read
from rainbow.jobspec.dialects.simple import simple
from rainbow.models.job import Dispatch
from rainbow.settings import AgentSettings
from rainbow_agents.intake.admission.policies import Load, Policy, Refusal
from rainbow_agents.intake.admission.script import Script

SPEC = read(simple(["x"], nodes=2, tasks=2, cores_per_task=4, duration=90, environment={"A": "b"}))


def job(**more: Any) -> Dispatch:
    given = {"user": "alice", "jobspec": SPEC.document, "submitted_at": 0, "assigned_at": 0, **more}
    return Dispatch(id="a", attempt=2, cluster="blue", **given)


@pytest.fixture
def program(tmp_path: Path) -> Any:
    def make(body: str) -> str:
        path = tmp_path / "admit"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return str(path)

    return make


def decide(command: str, **options: Any) -> Refusal | None:
    return Script(command, **options).check(job(), SPEC, Load(3, 4))


def test_it_is_told_everything_and_decides(program: Any, tmp_path: Path) -> None:
    os.environ["RAINBOW_TOKEN"] = "very-secret"
    try:
        assert (
            decide(
                program(f"cat > {tmp_path}/in; env > {tmp_path}/env; pwd > {tmp_path}/pwd; echo '{{\"admit\": true}}'")
            )
            is None
        )
    finally:
        del os.environ["RAINBOW_TOKEN"]
    asked = json.loads((tmp_path / "in").read_text())
    assert asked["cluster"] == "blue"
    assert (asked["job"]["user"], asked["job"]["attempt"], asked["job"]["jobspec"]) == ("alice", 2, SPEC.document)
    assert asked["demand"] == {"nodes": 2, "cores": 8, "gpus": 0}
    assert (asked["duration"], asked["load"]) == (90.0, {"queued": 3, "running": 4})
    assert "very-secret" not in (tmp_path / "env").read_text()
    assert (tmp_path / "pwd").read_text() == "/\n"


def test_its_no_comes_with_its_reason(program: Any) -> None:
    no = program("""echo '{"admit": false, "code": "busy", "detail": "tea time"}'""")
    assert decide(no) == Refusal("busy", "tea time")
    assert decide(program("""echo '{"admit": false}'""")) == Refusal("policy", "the site's admission script says no")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("exit 3", "failed with exit code 3"),
        ("kill -9 $$", "failed with exit code -9"),
        ("""echo '{"admit": true}'; exit 1""", "failed with exit code 1"),
        ("true", "did not answer with JSON"),
        ("echo yes", "did not answer with JSON"),
        ("echo '[1]'", "did not answer with"),
        ("""echo '{"admit": "true"}'""", "did not answer with"),
        ("""echo '{"admit": 1}'""", "did not answer with"),
        ("""echo '{"admit": false, "code": "whim"}'""", "gave no code"),
        ("head -c 9000000 /dev/zero | tr '\\\\0' '['", "over 65536 bytes"),
        ("exec 0<&-; echo '{'", "did not answer with JSON"),
    ],
)
def test_whatever_goes_wrong_keeps_the_job_out(program: Any, body: str, words: str) -> None:
    command = program(body)
    refusal = decide(command)
    assert refusal is not None
    assert refusal.code == "busy"
    assert words in refusal.detail
    kept = decide(command, on_error="policy")
    assert kept is not None
    assert kept.code == "policy"


def test_a_script_that_hangs_is_ended_with_all_it_started(program: Any, tmp_path: Path) -> None:
    rule = Script(program(f"echo x >> {tmp_path}/asked; sleep 300 & echo $! > {tmp_path}/pid; wait"), timeout=0.3)
    begun = time.monotonic()
    refusal = rule.check(job(), SPEC, Load(0, 0))
    assert refusal == Refusal("busy", "the site's admission script did not answer within 0.3 s")
    # Those behind it are not made to wait as well.
    for _ in range(50):
        assert rule.check(job(), SPEC, Load(0, 0)) == refusal
    assert time.monotonic() - begun < 5
    assert (tmp_path / "asked").read_text() == "x\n"
    pid = int((tmp_path / "pid").read_text())
    end = time.monotonic() + 10
    while _runs(pid) and time.monotonic() < end:
        time.sleep(0.01)
    assert not _runs(pid)


def test_after_the_pause_it_is_asked_again(program: Any, tmp_path: Path) -> None:
    now = [100.0]
    rule = Script(
        program(f"[ -e {tmp_path}/mended ] || exec sleep 60; echo '{{\"admit\": true}}'"),
        timeout=0.3,
        pause=10.0,
        clock=lambda: now[0] + time.monotonic(),
    )
    assert rule.check(job(), SPEC, Load(0, 0)) is not None
    (tmp_path / "mended").touch()
    assert rule.check(job(), SPEC, Load(0, 0)) is not None
    now[0] += 11
    assert rule.check(job(), SPEC, Load(0, 0)) is None


def test_it_is_found_by_name_and_wrong_options_are_named(program: Any) -> None:
    settings = AgentSettings.model_validate(
        {"admission": [{"name": "script", "options": {"command": [program("echo '{\"admit\": false}'")]}}]}
    )
    refusal = Policy.from_settings(settings).check(job(), SPEC, Load(0, 0))
    assert refusal is not None
    for options, words in (
        ({"command": "/no/such/program"}, "no program '/no/such/program'"),
        ({"command": ""}, "no program"),
        ({"command": "true", "timeout": 0}, "timeout"),
        ({"command": "true", "timeout": 100}, "timeout"),
        ({"command": "true", "on_error": "admit"}, "on_error"),
        ({"command": "true", "pause": -1}, "pause"),
        ({"command": "true", "colour": "red"}, "colour"),
    ):
        with pytest.raises(InvalidSettings, match=words):
            Policy.from_settings(AgentSettings.model_validate({"admission": [{"name": "script", "options": options}]}))


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
