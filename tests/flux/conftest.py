"""A real Flux instance for tests marked `flux`: started from the `flux` on PATH, on this machine alone."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fluxrig import SCHEDULER

SCHEDULERS = {
    "": "",
    "simple": '[modules.alternatives]\nsched = "sched-simple"\nfeasibility = "sched-simple"',
    "fluxion": '[modules.alternatives]\nsched = "sched-fluxion-qmanager"\nfeasibility = "sched-fluxion-feasibility"',
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.flux)


class Instance:
    """One running instance. `folder` is its state; started again on it, it keeps its jobs and their ids. With `nodes`
    it has as many that it only pretends to have, and to run jobs on (``attributes.system.exec.test.run_duration``).
    `environment` is the broker's, besides this process's; `scheduling` the graph that Fluxion finds in R."""

    def __init__(
        self,
        folder: Path,
        cores: int = 8,
        config: str = "",
        *,
        keep: bool = False,
        nodes: int | None = None,
        environment: Mapping[str, str] | None = None,
        scheduling: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder = folder
        self._keep = keep
        self._environment = dict(environment or {})
        folder.mkdir(parents=True, exist_ok=True)
        host = socket.gethostname()
        lite = {"rank": "0", "children": {"core": f"0-{cores - 1}"}}
        resources: dict[str, Any] = {
            "version": 1,
            "execution": {"R_lite": [lite], "nodelist": [host], "starttime": 0.0, "expiration": 0.0},
        }
        if scheduling is not None:
            resources["scheduling"] = scheduling
        (folder / "R.json").write_text(json.dumps(resources))
        real = f'[resource]\nnoverify = true\npath = "{folder}/R.json"'
        pretended = f'[fake-resources]\nnnodes = {nodes}\ncores-per-node = {cores}\nhost-prefix = "node"'
        settings = (
            f'{pretended if nodes else real}\n[kvs]\ncheckpoint-period = "1s"\n{SCHEDULERS[SCHEDULER]}\n{config}\n'
        )
        (folder / "config.toml").write_text(settings)
        self.process: subprocess.Popen[bytes] | None = None
        self.uri = ""
        self.start()

    def start(self) -> None:
        for name in ("uri", "stop"):
            (self.folder / name).unlink(missing_ok=True)
        script = f"flux getattr local-uri > {self.folder}/uri.new; mv {self.folder}/uri.new {self.folder}/uri; "
        script += f"while [ ! -e {self.folder}/stop ]; do sleep 0.2; done"
        state = ["-Sstatedir=" + str(self.folder / "kept")] if self._keep else []
        (self.folder / "kept").mkdir(exist_ok=True)
        with (self.folder / "flux.log").open("ab") as log:
            self.process = subprocess.Popen(
                ["flux", "start", f"--config-path={self.folder}/config.toml", *state, "sh", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**{k: v for k, v in os.environ.items() if not k.startswith("FLUX_")}, **self._environment},
            )
        end = time.monotonic() + 120
        while not (self.folder / "uri").exists():
            assert self.process.poll() is None, (self.folder / "flux.log").read_text()[-2000:]
            assert time.monotonic() < end, "Flux did not start"
            time.sleep(0.05)
        self.uri = (self.folder / "uri").read_text().strip()

    def broker(self) -> int:
        """The process id of the broker."""
        return int(self.command("getattr", "broker.pid"))

    def command(self, *words: str) -> str:
        done = subprocess.run(
            ["flux", *words],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
            env={**os.environ, "FLUX_URI": self.uri},
        )
        return done.stdout.strip()

    def stop(self) -> None:
        if self.process is not None:
            (self.folder / "stop").touch()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None


def _need_flux() -> None:
    if shutil.which("flux") is None:
        pytest.skip("there is no flux on the PATH")


@pytest.fixture(scope="session")
def flux_instance() -> Iterator[Instance]:
    """One instance for all tests that leave it as it was."""
    _need_flux()
    folder = Path(tempfile.mkdtemp(prefix="rainbow-flux-"))
    instance = Instance(folder)
    yield instance
    instance.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def flux_uri(flux_instance: Instance, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("FLUX_URI", flux_instance.uri)
    return flux_instance.uri


@pytest.fixture
def own_instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Instance]]:
    """Makes instances of this test alone, to be stopped, frozen and killed; FLUX_URI names the last one."""
    _need_flux()
    made: list[Instance] = []

    def make(name: str = "one", **options: object) -> Instance:
        instance = Instance(Path(tempfile.mkdtemp(prefix=f"rainbow-flux-{name}-")), **options)  # type: ignore[arg-type]
        made.append(instance)
        monkeypatch.setenv("FLUX_URI", instance.uri)
        return instance

    yield make
    for instance in made:
        instance.stop()
        shutil.rmtree(instance.folder, ignore_errors=True)


@pytest.fixture
def flux_bindings() -> None:
    """Flux's Python bindings importable in this process; skipped, saying why, where they are not."""
    _need_flux()
    if "flux" not in sys.modules:
        shown = subprocess.run(["flux", "env", "printenv", "PYTHONPATH"], capture_output=True, text=True, timeout=60)
        sys.path.extend(p for p in shown.stdout.strip().split(":") if p and p not in sys.path)
        importlib.invalidate_caches()
    try:
        import flux.job  # noqa: F401
    except ImportError as exc:
        pytest.skip(f"Flux's bindings cannot be imported by this Python: {exc}")
