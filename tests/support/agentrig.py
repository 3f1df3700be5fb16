"""Agents under test: in this process or as programs of their own, beside the whole scheduler side of `rig`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rainbow.settings import Settings
from rainbow_agents.agent import Agent
from rig import Rig, eventually, resources

TERMINAL = {"completed", "failed", "cancelled", "no-match", "unsatisfiable", "denied", "invalid", "expired", "lost"}


SMALL = resources()


def settings(
    rig: Rig, folder: Path, cluster: str, graph: dict[str, Any] | None = SMALL, *, url: str | None = None, **agent: Any
) -> Settings:
    """Settings of an agent of `cluster`, its graph in a file (None: it asks Flux). `url`: another way to the broker."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{cluster}-graph.json" if graph is not None else None
    if file is not None:
        file.write_text(json.dumps(graph))
    values = {"graph": file, "state_dir": folder / "state", "executor": "dry-run", "report_every": 2.0, "grace": 10.0}
    return Settings.model_validate(
        {
            "broker": {"url": url or rig.broker_url, "heartbeat": 4.0},
            "cluster": {"name": cluster},
            "agent": {**values, **agent},
            "token": rig.issue(f"register-{cluster}", "register", (cluster,)),
        }
    )


def shell(script: str, *, cores: int = 1, duration: float = 0, **system: Any) -> dict[str, Any]:
    """A V1 jobspec of one task."""
    return {
        "version": 1,
        "resources": [{"type": "slot", "label": "task", "count": 1, "with": [{"type": "core", "count": cores}]}],
        "tasks": [{"command": ["/bin/sh", "-c", script], "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {
            "system": {
                "duration": duration,
                "cwd": "/tmp",
                "environment": {"PATH": "/usr/local/bin:/usr/bin:/bin"},
                **system,
            }
        },
    }


class Agents:
    """Starts agents and ends them all."""

    def __init__(self, rig: Rig, folder: Path) -> None:
        self.rig = rig
        self.folder = folder
        self.running: list[Agent] = []
        self._programs: list[subprocess.Popen[bytes]] = []

    def start(self, cluster: str = "blue", *, taking: bool = True, **given: Any) -> Agent:
        """An agent in this process, taking jobs unless told otherwise. `parts` go to Agent, the rest to settings."""
        parts = given.pop("parts", {})
        agent = Agent(settings(self.rig, self.folder / "agents", cluster, **given), **parts)
        self.running.append(agent)
        agent.start()
        if taking:
            eventually(lambda: agent.state == "running" or agent.failure, 60)
            assert agent.failure is None, repr(agent.failure)
            self.known(cluster)
        return agent

    def known(self, cluster: str) -> dict[str, Any]:
        """The cluster as the registrar lists it, once it is alive."""

        def look() -> dict[str, Any] | None:
            listed = self.rig.rpc.call({"op": "clusters"})["clusters"]
            return next((c for c in listed if c["name"] == cluster and c["alive"]), None)

        return eventually(look, 60)

    def program(self, cluster: str = "blue", **given: Any) -> subprocess.Popen[bytes]:
        """An agent as a program of its own (for what kills it)."""
        made = settings(self.rig, self.folder / "agents", cluster, **given)
        config = self.folder / "agents" / f"{cluster}.yaml"
        data = {
            "broker": {"url": made.broker.url.get_secret_value(), "heartbeat": made.broker.heartbeat},
            "cluster": {"name": cluster},
            "agent": json.loads(made.agent.model_dump_json(exclude_none=True)),
            "token": made.token.get_secret_value() if made.token else None,
            "log_format": "json",
        }
        config.write_text(json.dumps(data))
        config.chmod(0o600)
        log = (self.folder / f"{cluster}-agent.log").open("ab")
        with log:
            process = subprocess.Popen(
                [sys.executable, "-m", "rainbow_agents.cli", "run", "--config", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONFAULTHANDLER": "1"},
            )
        self._programs.append(process)
        return process

    def log(self, cluster: str = "blue") -> str:
        return (self.folder / f"{cluster}-agent.log").read_text()

    def close(self) -> None:
        for process in self._programs:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self._programs:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for agent in self.running:
            agent.stop()


def ended(rig: Rig, ids: Iterable[str], timeout: float = 120) -> dict[str, dict[str, Any]]:
    """The records of these jobs, once all are over."""
    wanted = list(ids)

    def look() -> dict[str, dict[str, Any]] | None:
        found: dict[str, dict[str, Any]] = {}
        for start in range(0, len(wanted), 500):
            chunk = wanted[start : start + 500]
            for job, record in zip(chunk, rig.rpc.call({"op": "status", "ids": chunk})["jobs"], strict=True):
                if record is None or record["state"] not in TERMINAL:
                    return None
                found[job] = record
        return found

    return eventually(look, timeout, every=0.1)


def submit(rig: Rig, count: int, make: Callable[[int], dict[str, Any]], **fields: Any) -> list[str]:
    """Submit `count` jobs, all assigned; gives their ids."""
    sent = [rig.send(jobspec=make(n), **fields) for n in range(count)]
    answers = [rig.answer(correlation, 60) for correlation in sent]
    assert {a["status"] for a in answers} <= {"assigned", "held"}, [a for a in answers if a["status"] != "assigned"][:3]
    return [a["id"] for a in answers]
