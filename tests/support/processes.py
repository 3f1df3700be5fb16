"""The real programs as processes, on servers and folders of the test: started, killed and ended by their own id."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import yaml

from rainbow.client import Client
from rainbow.errors import RainbowError
from rainbow.security import scopes
from rainbow.security.tokens import KeyRing, Role, issue
from rig import eventually, resources


class Site:
    """A rainbow in a folder: key ring, settings files, and the programs that were started from them.

    With a `vhost`, the tokens say what they open there: with `ring`, the one that a RabbitMQ verifies them with.
    """

    def __init__(
        self,
        folder: Path,
        amqp_url: str,
        redis_url: str,
        prefix: str,
        *,
        ring: KeyRing | None = None,
        vhost: str | None = None,
        **sections: Any,
    ) -> None:
        self.folder = folder
        self.vhost = vhost
        self.ring = ring or KeyRing.generate()
        self.ring.save(folder / "keys.json")
        self.shared = {
            "broker": {"url": amqp_url},
            "store": {"url": redis_url, "prefix": prefix},
            "keyring": str(folder / "keys.json"),
            **sections,
        }
        self.config = self.write("rainbow-config", {**self.shared, "token": self.token("root", "admin")})
        self.running: list[subprocess.Popen[bytes]] = []

    def token(self, sub: str, role: Role = "submit", *clusters: str, ttl: float = 86_400) -> str:
        names = clusters or ("*",)
        scope = scopes.for_token(role, names, self.vhost)
        return issue(self.ring, sub=sub, role=role, clusters=names, ttl=ttl, scope=scope)

    def settings_of(self, sub: str, role: Role = "submit", *clusters: str) -> Path:
        """A settings file for somebody with a token and nothing else."""
        return self.write(
            sub,
            {
                **{key: self.shared[key] for key in ("broker", "staging") if key in self.shared},
                "token": self.token(sub, role, *clusters),
                "keyring": str(self.folder / "none.json"),
            },
        )

    def write(self, name: str, settings: Mapping[str, Any]) -> Path:
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(dict(settings)))
        file.chmod(0o600)
        return file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.running:
            process.terminate()
        for process in self.running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def start(
        self, name: str, *arguments: str, config: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        with open(self.folder / f"{name}.log", "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *arguments, "--config", str(config or self.config)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={**self.environment(), **(env or {})},
                start_new_session=True,
            )
        self.running.append(process)
        return process

    @staticmethod
    def environment() -> dict[str, str]:
        return {k: v for k, v in os.environ.items() if not k.startswith("RAINBOW_")}

    def cli(self, *args: str, config: Path | None = None, code: int = 0) -> subprocess.CompletedProcess[str]:
        """`rainbow ARGS` with a settings file (else the administrator's), run to its end."""
        done = subprocess.run(
            [sys.executable, "-m", "rainbow.cli", *args],
            env={**self.environment(), "RAINBOW_CONFIG": str(config or self.config)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, (args, done.returncode, done.stdout, done.stderr)
        return done

    def scheduler(self, *only: str, name: str = "scheduler") -> subprocess.Popen[bytes]:
        return self.start(name, "rainbow_workers.cli", *(w for worker in only for w in ("--only", worker)))

    def agent(
        self,
        cluster: str,
        graph: dict[str, Any] | None = None,
        *,
        env: Mapping[str, str] | None = None,
        **agent: Any,
    ) -> subprocess.Popen[bytes]:
        file = self.folder / f"{cluster}.json"
        file.write_text(json.dumps(graph or resources()))
        settings: dict[str, Any] = {
            **{key: self.shared[key] for key in ("broker", "log_level", "staging") if key in self.shared},
            "cluster": {"name": cluster},
            "token": self.token(f"agent-{cluster}", "register", cluster),
            "agent": {
                "graph": str(file),
                "state_dir": str(self.folder / f"state-{cluster}"),
                "executor": "dry-run",
                "options": {"log": str(self.starts_file(cluster))},
                **agent,
            },
        }
        config = self.write(f"agent-{cluster}", settings)
        return self.start(f"agent-{cluster}", "rainbow_agents.cli", config=config, env=env)

    def starts_file(self, cluster: str) -> Path:
        return self.folder / f"starts-{cluster}"

    def starts(self, clusters: Sequence[str]) -> list[tuple[str, int]]:
        """Every start of a job that really happened: (id, attempt)."""
        found = []
        for cluster in clusters:
            file = self.starts_file(cluster)
            for line in file.read_text().splitlines() if file.exists() else []:
                job_id, attempt = line.split()
                found.append((job_id, int(attempt)))
        return found

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        self.running.remove(process)

    def served(self, client: Client, clusters: int) -> None:
        """Wait until so many clusters are alive."""

        def alive() -> bool:
            try:
                return sum(c.alive for c in client.clusters()) == clusters
            except RainbowError:
                return False

        eventually(alive, 120, every=0.2)

    def kill_schedulers(
        self,
        schedulers: dict[str, subprocess.Popen[bytes]],
        chance: random.Random,
        *,
        times: int = 4,
        down: tuple[float, float],
        up: tuple[float, float],
    ) -> None:
        """So many times kill one of them, with its recorder, start it again after a while, and let it run a while."""
        for _ in range(times):
            name = chance.choice(sorted(schedulers))
            self.kill(schedulers[name])
            time.sleep(chance.uniform(*down))
            schedulers[name] = self.scheduler(name=name)
            time.sleep(chance.uniform(*up))

    def logs(self) -> str:
        return "\n".join(f"--- {f.name}\n{f.read_text()[-3000:]}" for f in sorted(self.folder.glob("*.log")))
