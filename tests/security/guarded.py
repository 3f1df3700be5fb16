"""All of rainbow behind the door: workers, agents, clients, each with nothing but a token to enter the broker with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from rainbow.client import Client
from rainbow.security.tokens import KeyRing
from rainbow.settings import Settings
from rainbow_agents.agent import Agent
from rainbow_workers.cli import build
from rainbow_workers.service import WORKERS
from security.doors import Door
from servers import wait_until


def resources(nodes: int = 4, cores: int = 4, host: str = "n") -> dict[str, Any]:
    """An R (RFC 20) of equal nodes."""
    return {
        "version": 1,
        "execution": {
            "R_lite": [{"rank": f"0-{nodes - 1}", "children": {"core": f"0-{cores - 1}"}}],
            "nodelist": [f"{host}[0-{nodes - 1}]"],
        },
    }


class Guarded:
    """Workers in this process, as `rainbow-scheduler` builds them; agents and clients as the settings make them."""

    def __init__(self, door: Door, redis_url: str, prefix: str, folder: Path, **scheduler: Any) -> None:
        self.door = door
        self.folder = folder
        self.keyring = folder / "keys.json"
        door.ring.save(self.keyring)
        self.base: dict[str, Any] = {
            "broker": {"url": door.open_url, "oauth": True},
            "store": {"url": redis_url, "prefix": prefix},
            "keyring": str(self.keyring),
        }
        settings = Settings.model_validate({**self.base, "scheduler": {"retry_after": 1.0, **scheduler}})
        self.broker, self.store, self.service = build(settings, WORKERS, declare=True)
        self.service.start()
        self.agents: dict[str, Agent] = {}

    # -- agents ------------------------------------------------------------------------------------------------

    def agent(self, cluster: str, token: str | None = None, *, start: bool = True, **more: Any) -> Agent:
        agent = Agent(self.agent_settings(cluster, token or self.door.token("register", cluster), **more))
        if start:
            self.run(cluster, agent)
        return agent

    def run(self, cluster: str, agent: Agent) -> None:
        agent.start()
        self.agents[cluster] = agent
        wait_until(lambda: agent.health().ok or agent.failure, 60, what=f"agent of {cluster} runs")

    def agent_settings(self, cluster: str, token: str | None, **more: Any) -> Settings:
        graph = self.folder / f"{cluster}.json"
        graph.write_text(json.dumps(resources(host=cluster)))
        return Settings.model_validate(
            {
                **self.base,
                "cluster": {"name": cluster},
                **({"token": token} if token else {}),
                "agent": {
                    "executor": "local",
                    "graph": str(graph),
                    "state_dir": str(self.folder / "agents"),
                    "report_every": 1.0,
                    **more,
                },
            }
        )

    # -- clients -----------------------------------------------------------------------------------------------

    def client(self, token: str, timeout: float = 30.0) -> Client:
        return Client(settings=Settings.model_validate(self.base), token=token, timeout=timeout, name="test")

    def cli(self, *args: str, token: str | None = None, code: int = 0) -> subprocess.CompletedProcess[str]:
        """`rainbow ARGS` as a process of its own, its token in the environment."""
        config = self.folder / "rainbow-config.yaml"
        config.write_text(json.dumps(self.base))
        done = subprocess.run(
            [sys.executable, "-m", "rainbow.cli", *args],
            env={**os.environ, "RAINBOW_CONFIG": str(config), **({"RAINBOW_TOKEN": token} if token else {})},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, (args, done.returncode, done.stdout, done.stderr)
        return done

    # -- keys --------------------------------------------------------------------------------------------------

    def rotate(self, keep: int = 2) -> KeyRing:
        """As an operator does: prepare a key, tell RabbitMQ, rotate, tell it which keys are gone."""
        self.cli("token", "rotate", code=2)
        self.cli("token", "rotate", "--prepare")
        self.cli("token", "rotate", code=3)
        self.tell_broker()
        self.cli("token", "rotate", "--keep", str(keep))
        self.tell_broker()
        return KeyRing.load(self.keyring)

    def tell_broker(self) -> None:
        advanced = str(Path(self.door.server.folder) / "advanced.config")
        self.cli("broker", "setup", "--oauth-config", advanced, "--dry-run")
        self.door.server.eval(self.cli("broker", "reload-keys", advanced).stdout.strip())

    def close(self) -> None:
        for agent in self.agents.values():
            agent.stop(5)
        self.service.stop(5)
        failed = self.service.failed()
        self.broker.close()
        self.store.close()
        assert failed is None, failed


class Stream:
    """Jobs submitted one after the other by a thread, until told to stop."""

    def __init__(self, client: Client, every: float = 0.25) -> None:
        self._client = client
        self._every = every
        self._stop = threading.Event()
        self.ids: list[str] = []
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._every):
                self.ids.append(self._client.submit(command=["true"], duration=60).id)
        except BaseException as exc:
            self.failure = exc

    def end(self, timeout: float = 60.0) -> list[str]:
        """The states of all jobs, once all have ended."""
        self._stop.set()
        self._thread.join(30)
        if self.failure is not None:
            raise self.failure
        return [record.state for record in self._client.wait(self.ids, timeout=timeout)]
