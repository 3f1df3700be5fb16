"""An embedded instance: its folder, its settings, and its processes from start to end."""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rainbow import topology
from rainbow.embedded import server
from rainbow.embedded.processes import Child, end, started_at
from rainbow.errors import Conflict, NotFound, RainbowError, TimedOut
from rainbow.paths import expand, private_folder, user_name
from rainbow.security.tokens import KeyRing, issue
from rainbow.settings import FILE_NAME

_YEAR = 365 * 86400.0


@dataclass(frozen=True)
class AgentPlan:
    """A cluster to run an agent for.

    `graph` is a JGF or R file; `subsystems` a folder; `settings` go into its `agent` section.
    """

    cluster: str
    graph: Path
    subsystems: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


class Instance:
    """Everything below `data_dir`. One process at a time runs it."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = expand(data_dir).resolve()
        self.config = self.data_dir / FILE_NAME
        self._run_file = self.data_dir / "run.json"
        self._ring_file = self.data_dir / "keys.json"
        self._server: Any = None
        self._children: list[Child] = []

    # -- the folder -----------------------------------------------------------------------------------------

    def prepare(self, agents: list[AgentPlan]) -> None:
        """Make folder, key ring, tokens and settings files. What is there stays as it is."""
        private_folder(self.data_dir)
        if not self._ring_file.exists():
            KeyRing.generate().save(self._ring_file)
        ring = KeyRing.load(self._ring_file)
        if not self.config.exists():
            token = issue(ring, sub=user_name(), role="admin", ttl=10 * _YEAR)
            self._write(self.config, {**self._shared(), "token": token})
        for plan in agents:
            folder = self._agent_dir(plan.cluster)
            private_folder(folder)
            token_file = folder / "register-token"
            if not token_file.exists():
                token = issue(
                    ring, sub=f"agent-{plan.cluster}", role="register", clusters=[plan.cluster], ttl=10 * _YEAR
                )
                _write_private(token_file, token + "\n")
            self._write(folder / FILE_NAME, self._agent_settings(plan, folder, token_file))

    def _shared(self) -> dict[str, Any]:
        return {
            "broker": {"url": server.broker_url(self.data_dir)},
            "store": {"url": server.store_url(self.data_dir)},
            "keyring": str(self._ring_file),
            "data_dir": str(self.data_dir),
            "staging": {"places": {"here": {"name": "folder", "options": {"path": str(self.data_dir / "staging")}}}},
        }

    def _agent_settings(self, plan: AgentPlan, folder: Path, token_file: Path) -> dict[str, Any]:
        agent: dict[str, Any] = {
            "executor": "local",
            "graph": str(plan.graph),
            "state_dir": str(folder / "state"),
            "health_file": str(folder / "health.json"),
            **plan.settings,
        }
        if plan.subsystems is not None:
            agent["subsystems"] = str(plan.subsystems)
        return {
            **{key: self._shared()[key] for key in ("broker", "staging")},
            "cluster": {"name": plan.cluster},
            "token_file": str(token_file),
            "agent": agent,
        }

    def _agent_dir(self, cluster: str) -> Path:
        return self.data_dir / "agents" / topology.check_cluster_name(cluster)

    @staticmethod
    def _write(file: Path, settings: Mapping[str, Any]) -> None:
        import yaml

        _write_private(file, yaml.safe_dump(dict(settings), sort_keys=False))

    # -- processes --------------------------------------------------------------------------------------------

    def start(self, agents: list[AgentPlan], timeout: float = 60.0, *, web: str | None = None) -> str | None:
        """Start server, workers and agents, and wait until every cluster is registered and alive.

        Returns the URL of the web console, which is started where `web` names an address. Raises Conflict when the
        instance runs already.
        """
        running = self.running()
        if running is not None:
            raise Conflict(f"rainbow runs already in {self.data_dir} (process {running}): `rainbow down` ends it")
        self._sweep()
        self._server = server.start(self.data_dir)
        self._note()
        try:
            self._child("scheduler", "rainbow_workers.cli", self.config)
            self._await_registrar(timeout)
            began = time.time()
            for plan in agents:
                self._child(f"agent-{plan.cluster}", "rainbow_agents.cli", self._agent_dir(plan.cluster) / FILE_NAME)
            self._await_clusters({p.cluster for p in agents}, began, timeout)
            return None if web is None else self._serve_web(web, timeout)
        except BaseException:
            self.stop()
            raise

    def _child(self, name: str, module: str, config: Path, *arguments: str) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("RAINBOW_")}
        environment["RAINBOW_CONFIG"] = str(config)
        self._children.append(Child(name, [module, *arguments], self.data_dir / "logs" / f"{name}.log", environment))
        self._note()

    def check(self) -> None:
        """Raise RainbowError when a process ended that should run."""
        for child in self._children:
            child.check()
        if self._server is not None and not self._server.is_running():
            raise RainbowError(f"the embedded server ended (see {self.data_dir}/store/valkey.log)")

    def stop(self) -> None:
        """End agents first, then workers, then the server, which writes its data out. Idempotent."""
        for child in reversed(self._children):
            child.stop()
        self._children.clear()
        if self._server is not None:
            self._server.stop(timeout=20.0)
            self._server = None
            server.forget(self.data_dir)
        self._run_file.unlink(missing_ok=True)

    def _await_registrar(self, timeout: float) -> None:
        from rainbow.client import Client
        from rainbow.settings import load

        deadline = time.monotonic() + timeout
        with Client(settings=load(self.config, {})) as client:
            while True:
                self.check()
                try:
                    client.ping(timeout=2.0)
                except RainbowError:
                    if time.monotonic() > deadline:
                        raise TimedOut(f"the workers did not answer within {timeout:g} s") from None
                    time.sleep(0.1)
                else:
                    return

    def _serve_web(self, listen: str, timeout: float) -> str:
        """Start the web console and wait until it says that it is up. Returns its URL."""
        log = self.data_dir / "logs" / "web.log"
        before = log.stat().st_size if log.exists() else 0
        self._child("web", "rainbow.cli", self.config, "web", "--listen", listen)
        deadline = time.monotonic() + timeout
        while True:
            said = log.read_bytes()[before:].decode(errors="replace")
            if found := re.search(r"^rainbow web is up: (\S+)$", said, re.MULTILINE):
                return found[1]
            self.check()
            if time.monotonic() > deadline:
                raise TimedOut(f"the web console did not start within {timeout:g} s (see {log})")
            time.sleep(0.1)

    def _await_clusters(self, names: set[str], began: float, timeout: float) -> None:
        from rainbow.client import Client
        from rainbow.settings import load

        deadline = time.monotonic() + timeout
        with Client(settings=load(self.config, {})) as client:
            while True:
                self.check()
                # Heard of since this start: what an earlier run left behind does not count.
                alive = {c.name for c in client.clusters() if c.alive and (c.state_at or 0.0) >= began}
                if names <= alive:
                    return
                if time.monotonic() > deadline:
                    missing = ", ".join(sorted(names - alive))
                    raise TimedOut(f"no agent of {missing} came up within {timeout:g} s (see {self.data_dir}/logs)")
                time.sleep(0.1)

    # -- from outside -----------------------------------------------------------------------------------------

    def _note(self) -> None:
        """Leave our mark, so that `rainbow down` ends this process and no other."""
        children = {c.name: {"pid": c.process.pid, "started": started_at(c.process.pid)} for c in self._children}
        me = {"pid": os.getpid(), "started": started_at(os.getpid())}
        _write_private(self._run_file, json.dumps({"supervisor": me, "children": children}, indent=2) + "\n")

    def running(self) -> int | None:
        """The id of the process that runs this instance."""
        try:
            noted = json.loads(self._run_file.read_text())["supervisor"]
            pid, mark = int(noted["pid"]), noted["started"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return pid if started_at(pid) == mark and pid != os.getpid() else None

    def down(self) -> None:
        """End the instance, whichever process runs it, and what one left behind that was killed.

        Raises NotFound when there is none.
        """
        pid = self.running()
        if pid is not None:
            end(pid, json.loads(self._run_file.read_text())["supervisor"]["started"])
        elif not self._sweep():
            raise NotFound(f"no rainbow runs in {self.data_dir}")

    def _sweep(self) -> bool:
        """End children and server of a supervisor that was killed. False when there are none."""
        try:
            children = json.loads(self._run_file.read_text())["children"]
        except (OSError, ValueError, KeyError, TypeError):
            children = {}
        ended = [end(int(noted["pid"]), str(noted["started"])) for noted in reversed(list(children.values()))]
        ended.append(server.shut_down(self.data_dir))
        server.forget(self.data_dir)
        self._run_file.unlink(missing_ok=True)
        return any(ended)


def local_graph(data_dir: Path, cluster: str) -> Path:
    """An R (RFC 20) of this machine: one node with the cores this process may use. Returns its file."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    resources = {
        "version": 1,
        "execution": {
            "R_lite": [{"rank": "0", "children": {"core": f"0-{cores - 1}" if cores > 1 else "0"}}],
            "nodelist": [os.uname().nodename or "localhost"],
            "starttime": 0,
            "expiration": 0,
        },
    }
    file = data_dir / f"{cluster}-R.json"
    private_folder(file.parent)
    file.write_text(json.dumps(resources, indent=2) + "\n")
    return file


def _write_private(file: Path, text: str) -> None:
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(text)
    temporary.replace(file)
