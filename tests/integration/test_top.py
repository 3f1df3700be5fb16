"""`rainbow top` against running workers and an agent."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from agentrig import Agents, ended, shell, submit
from rainbow.cli.commands.top import _drawn, _View
from rainbow.client.overview import MOST_JOBS, rates
from rainbow.models.job import JobRecord
from rig import Rig


@pytest.fixture
def rig(amqp_url: str) -> Iterator[Rig]:
    with Rig(amqp_url, f"memory://{uuid.uuid4().hex}") as rig:
        yield rig


@pytest.fixture
def settings(rig: Rig, tmp_path: Path) -> Path:
    file = tmp_path / "rainbow-config.yaml"
    file.write_text(yaml.safe_dump({"broker": {"url": rig.broker_url}, "token": rig.issue("root", "admin")}))
    file.chmod(0o600)
    return file


def top(settings: Path, *options: str) -> str:
    command = [sys.executable, "-m", "rainbow.cli", "top", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=_environment(settings))
    assert done.returncode == 0, done.stderr
    return done.stdout


def _environment(settings: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(settings.parent), "RAINBOW_CONFIG": str(settings), "TERM": "xterm"}


def test_clusters_queues_and_rates(rig: Rig, settings: Path, tmp_path: Path) -> None:
    agents = Agents(rig, tmp_path)
    try:
        agents.start("blue")
        ended(rig, submit(rig, 3, lambda n: shell("true")))
        rig.register("by-hand")
        submit(rig, 2, lambda n: shell("true"), clusters=["by-hand"])
        seen: dict[str, Any] = json.loads(top(settings, "--once", "--json"))
        by_name = {c["name"]: c for c in seen["clusters"]}
        assert by_name["blue"]["status"] == "alive"
        assert (by_name["blue"]["nodes"], by_name["blue"]["nodes_free"], by_name["blue"]["queued"]) == (4, 4, 0)
        assert (by_name["by-hand"]["status"], by_name["by-hand"]["queued"]) == ("silent", 2)
        assert seen["queues"]["rainbow.dead"] == 0
        assert seen["rates"] == {"submitted": 5, "assigned": 5, "started": 3, "ended": 3, "at_least": False}
        lines = top(settings, "--once").splitlines()
        assert lines[0].split()[:3] == ["CLUSTER", "STATUS", "NODES"]
        assert [line.split()[:3] for line in lines[1:3]] == [["blue", "alive", "4/4"], ["by-hand", "silent", "-/4"]]
        assert "dead=0" in lines[-2]
        assert lines[-1] == "in the last minute  submitted=5 assigned=5 started=3 ended=3"
    finally:
        agents.close()


@pytest.mark.parametrize("ending", ["q", "interrupt"])
def test_on_a_terminal_it_is_drawn_anew_and_obeys_keys(rig: Rig, settings: Path, ending: str) -> None:
    rig.register("blue")
    rig.report("blue", nodes_free=4, cores_free=8)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "rainbow.cli", "top", "--interval", "0.2"]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env={**_environment(settings), "COLUMNS": "120"}
    )
    os.close(theirs)
    try:
        said = b""
        end = time.monotonic() + 60
        while said.count(b"in the last minute") < 3 and time.monotonic() < end:
            said += os.read(ours, 65536)
        assert said.count(b"in the last minute") >= 3
        assert b"blue" in said
        assert "░ 4/4".encode() in said
        assert "████".encode() in said, "cores in use"
        for key, shown in ((b"s", b"by pending"), (b"p", b"paused"), (b"p", b"q quit"), (b" ", b"in the last minute")):
            os.write(ours, key)
            said = b""
            while shown not in said and time.monotonic() < end:
                said += os.read(ours, 65536)
            assert shown in said
        if ending == "q":
            os.write(ours, b"q")
        else:
            process.send_signal(2)
        while True:
            try:
                if not os.read(ours, 65536):
                    break
            except OSError:  # the other end is closed
                break
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_rates_say_when_there_were_more_than_could_be_counted() -> None:
    def job(at: float) -> JobRecord:
        return JobRecord(id="j", state="completed", times={"submitted": at, "ended": at + 1})

    assert rates([job(990.0), job(900.0)], 1000.0) == {
        "submitted": 1,
        "assigned": 0,
        "started": 0,
        "ended": 1,
        "at_least": False,
    }
    assert rates([job(990.0)] * MOST_JOBS, 1000.0)["at_least"] is True
    assert rates([], 1000.0)["submitted"] == 0


@pytest.mark.parametrize(("columns", "bars", "nodes"), [(40, False, False), (80, False, True), (120, True, True)])
def test_a_narrow_terminal_gets_whole_words(columns: int, bars: bool, nodes: bool, monkeypatch: Any) -> None:
    names = ("nodes", "cores", "gpus", "nodes_free", "cores_free", "gpus_free", "queued", "pending", "running")
    cluster = {"name": "blue-cluster", "status": "throttled", "heard_at": None, **dict.fromkeys(names, 4.0)}
    seen = {"at": 0.0, "clusters": [cluster], "queues": {}, "rates": rates([], 1000.0)}
    monkeypatch.setenv("COLUMNS", str(columns))
    with io.StringIO() as out:
        Console(file=out, width=columns).print(_drawn(seen, _View()))
        said = out.getvalue()
    assert "blue-cluster" in said
    assert "throttled" in said
    assert ("░" in said, "NODES" in said) == (bars, nodes)
