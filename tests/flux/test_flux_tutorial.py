"""The tutorial "Put your Flux on rainbow" beside a real Flux: its commands that need one, and the settings it shows."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rig import Rig, eventually

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial" / "put-your-flux-on-rainbow.md"


@pytest.fixture
def rig(amqp_url: str) -> Iterator[Rig]:
    with Rig(amqp_url, f"memory://{uuid.uuid4().hex}") as rig:
        yield rig


def blocks(fence: str) -> list[str]:
    """The bodies of the blocks that begin with this line."""
    return [part.split("\n```")[0] for part in TUTORIAL.read_text().split(f"```{fence}\n")[1:]]


def test_what_needs_a_flux_works_beside_one(rig: Rig, own_instance: Any, tmp_path: Path) -> None:
    instance = own_instance()
    [settings] = blocks("yaml file=blue/rainbow-config.yaml")
    shown = [line[2:] for line in blocks("console no-run")[0].splitlines() if line.startswith("$ ")]
    assert [shlex.split(line)[0] for line in shown] == ["flux", "rainbow-agent", "rainbow-agent"]
    beside_flux = settings.replace("executor: local", "executor: flux-cli").replace("  graph: blue.json", "")
    beside_flux = beside_flux.replace("amqp://rainbow:secret@mq.example.org/rainbow", rig.broker_url)
    folder = tmp_path / "blue"
    folder.mkdir()
    (folder / "rainbow-config.yaml").write_text(beside_flux)
    (folder / "rainbow-config.yaml").chmod(0o600)
    (tmp_path / "blue.token").write_text(rig.issue("agent-blue", "register", ("blue",)))
    (tmp_path / "blue.token").chmod(0o600)
    python_path = os.pathsep.join(p for p in sys.path if p)
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "FLUX_URI": instance.uri,
        "PYTHONPATH": python_path,
    }

    def run(command: str) -> subprocess.CompletedProcess[str]:
        words = shlex.split(command.replace("--executor auto", "--executor flux-cli"))
        return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)

    first = run(shown[0])
    assert first.returncode == 0, first.stderr
    checked = run(shown[1])
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert [line.split()[0] for line in checked.stdout.splitlines()] == ["ok"] * len(checked.stdout.splitlines())
    with (tmp_path / "agent.log").open("wb") as log:
        words = shlex.split(shown[2].replace("--executor auto", "--executor flux-cli"))
        agent = subprocess.Popen(words, cwd=folder, env=environment, stdout=log, stderr=log)
    try:

        def alive() -> bool:
            listed = rig.rpc.call({"op": "clusters"})["clusters"]
            return any(c["name"] == "blue" and c["alive"] for c in listed)

        eventually(alive, 60)
        answer = rig.submit(command=["hostname"], nodes=1, tasks=1, duration=60)
        record = rig.until(answer["id"], "completed", 60)
        assert record["cluster"] == "blue"
        assert record["output"].strip() == os.uname().nodename
        eventually(lambda: run("rainbow-agent health health.json").stdout.strip() == "blue: jobs are taken", 60)
    finally:
        agent.terminate()
        assert agent.wait(60) == 0, (tmp_path / "agent.log").read_text()[-2000:]
