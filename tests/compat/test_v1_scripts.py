"""The scripts of rainbow v1 (`python/v1/examples/flux`), unchanged, against the program `rainbow-gateway`.

They are in v1's repository only, not in its package: RAINBOW_V1_REPOSITORY names a clone of it where GitHub cannot be
reached. v1 has two clients, and neither of them bears all of the scripts: `register.py`, `register-subsystem.py` and
`update-state.py` run with the one beside them, `submit-job.py` and `submit-jobspec.py` with the registry's package,
`receive-jobs.py` with both. The others fail before they ask anything, whatever the server.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from running import Rainbow, alone, eventually

pytest.importorskip("grpc", reason="the extra gateway is not installed")

REPOSITORY = os.environ.get("RAINBOW_V1_REPOSITORY", "https://github.com/converged-computing/rainbow")
COMMIT = "075ee23188841acf106677f6fd4074b1330980c7"
PACKAGES = ["rainbow-scheduler==0.0.16", "jobspec==0.1.15"]
#: Of the fourth of v1's experiments, as it is.
SPACK = """
version: 1
resources:
  spack-resources: {count: 1, type: node, with: [{count: 10, type: core}]}
tasks:
- {name: build, command: [spack, install, ior], resources: spack-resources}
- name: ior
  command: [bash, -c, "spack load ior\\n\\nior -b 10g -O summaryFormat=json\\n"]
  depends_on: [build]
  resources: spack-resources
"""

Script = Callable[..., subprocess.CompletedProcess[str]]


class V1(NamedTuple):
    """v1's scripts, and its two clients: the one beside them and the registry's."""

    scripts: Path
    beside: str
    package: str


def _run(*command: str, cwd: Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=cwd)
    if done.returncode:
        pytest.skip(f"{' '.join(command[-3:])}: {done.stderr.strip()[-200:]}")


@pytest.fixture(scope="module")
def v1(tmp_path_factory: pytest.TempPathFactory) -> V1:
    folder = tmp_path_factory.mktemp("v1")
    _run("git", "clone", "-q", "--no-checkout", REPOSITORY, "clone", cwd=folder)
    _run("git", "checkout", "-q", COMMIT, cwd=folder / "clone")
    command = (sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--disable-pip-version-check", "--target")
    _run(*command, "package", *PACKAGES, cwd=folder)
    _run(*command, "jobspec", PACKAGES[1], cwd=folder)
    python = folder / "clone" / "python" / "v1"
    return V1(python / "examples" / "flux", f"{python}:{folder / 'jobspec'}", str(folder / "package"))


@pytest.fixture
def rainbow(
    amqp_url: str, redis_url: str, redis_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Rainbow]:
    alone(monkeypatch, tmp_path)
    monkeypatch.delenv("RAINBOW_KEYRING")
    made = Rainbow(tmp_path, amqp_url, redis_url, redis_prefix)
    made.write_config({"token": made.token("submit", "gateway")})
    yield made
    made.end()


@pytest.fixture
def host(rainbow: Rainbow) -> Iterator[str]:
    command = [str(Path(sys.executable).parent / "rainbow-gateway"), "--config", str(rainbow.config)]
    with subprocess.Popen([*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("rainbow-gateway is up: "), line
        yield line.split()[3]
        process.terminate()


@pytest.fixture
def script(v1: V1, host: str, tmp_path: Path) -> Script:
    """Run a script of v1 with the client at `path`, by the settings file that v1's `register.py` writes."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAINBOW_")}

    def run(name: str, *arguments: str, path: str = v1.beside) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(v1.scripts / name), "--config-path", "v1.yaml", *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=120, env={**environment, "PYTHONPATH": path}, cwd=tmp_path
        )

    return run


def _good(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def _register(rainbow: Rainbow, script: Script, host: str) -> None:
    secret = rainbow.token("register", "root", ("keebler",))
    told = _good(script("register.py", "--cluster", "keebler", "--host", host, "--secret", secret))
    assert "The token you will need to submit jobs to this cluster is ey" in told


def test_a_cluster_s_side(rainbow: Rainbow, script: Script, v1: V1, host: str) -> None:
    _register(rainbow, script, host)
    assert "already exists" in _again(rainbow, script, host)
    assert "REGISTER_SUCCESS" in _good(script("register-subsystem.py", "--cluster", "keebler", "--host", host))
    assert "UPDATE_STATE_SUCCESS" in _good(script("update-state.py", "--cluster", "keebler", "--host", host))
    with rainbow.client() as client:
        seen = client.cluster("keebler")
    assert (seen.subsystems, seen.state["cost_per_node_hour"]) == (["io"], 3)
    # These three with the registry's client: it reads a settings file that they do not give it, and asks nothing.
    for name in ("register.py", "register-subsystem.py", "update-state.py"):
        done = script(name, "--cluster", "keebler", "--host", host, path=v1.package)
        assert "ValueError: This functionality requires a <instance>.config_file" in done.stderr


def _again(rainbow: Rainbow, script: Script, host: str) -> str:
    secret = rainbow.token("register", "root", ("keebler",))
    arguments = ("register.py", "--cluster", "keebler", "--host", host, "--secret", secret)
    return _good(script(*arguments, "--config-path", "another.yaml"))


def test_jobs(rainbow: Rainbow, script: Script, v1: V1, host: str, tmp_path: Path) -> None:
    path = v1.package
    _register(rainbow, script, host)
    # With the client beside it, which lacks an attribute that it reads.
    assert "AttributeError: 'MemoryBackend' object has no attribute 'use_ssl'" in script("submit-job.py", "true").stderr
    answer = _good(script("submit-job.py", "--nodes", "1", "echo", "hostname", path=path))
    assert re.search(r"SatisfyResponse\(.*cluster='keebler', .*total_matches=1", answer)
    (tmp_path / "jobspec-spack.yaml").write_text(SPACK)
    answer = _good(script("submit-jobspec.py", "jobspec-spack.yaml", path=path))
    assert re.search(r"SatisfyResponse\(.*cluster='keebler', .*total_matches=1", answer)
    for client, command in ((v1.package, '["echo", "hostname"]'), (v1.beside, '["spack", "install", "ior"]')):
        received = _good(script("receive-jobs.py", "--max-jobs", "1", path=client))
        assert "Status: REQUEST_JOBS_SUCCESS\nReceived 1 jobs to accept..." in received
        assert command in received
    assert "There are no jobs to receive." in _good(script("receive-jobs.py", path=path))
    with rainbow.client() as seen:
        eventually(lambda: {j.state for j in seen.jobs()} == {"accepted"}, 60)


def test_a_cluster_s_token_is_needed(rainbow: Rainbow, script: Script, v1: V1, host: str, tmp_path: Path) -> None:
    _register(rainbow, script, host)
    config = yaml.safe_load((tmp_path / "v1.yaml").read_text())
    config["clusters"][0]["token"] = config["cluster"]["secret"] = "rainbow"
    (tmp_path / "v1.yaml").write_text(yaml.safe_dump(config))
    assert "status=3" in script("submit-job.py", "echo", "hostname", path=v1.package).stdout
    assert "Issue with requesting jobs" in _good(script("receive-jobs.py"))
    with rainbow.client() as client:
        assert list(client.jobs()) == []


@pytest.mark.flux
@pytest.mark.skipif(shutil.which("flux") is None, reason="there is no flux on PATH")
def test_a_flux_receives_and_submits(rainbow: Rainbow, script: Script, v1: V1, host: str, tmp_path: Path) -> None:
    """`receive-jobs-and-submit.py` in a Flux instance: v1's transformer submits what was received."""
    _register(rainbow, script, host)
    (tmp_path / "touch.yaml").write_text(
        "version: 1\nresources:\n  one: {count: 1, type: node, with: [{count: 1, type: core}]}\n"
        f"tasks:\n- {{name: t, command: [touch, {tmp_path}/ran], resources: one}}\n"
    )
    _good(script("submit-jobspec.py", "touch.yaml", path=v1.package))
    program = [sys.executable, str(v1.scripts / "receive-jobs-and-submit.py"), "--config-path", "v1.yaml"]
    inside = ["flux", "start", "sh", "-c", f"{' '.join(program)} && flux queue drain"]
    environment = {**os.environ, "PYTHONPATH": v1.package}
    done = subprocess.run(inside, capture_output=True, text=True, timeout=240, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "ran").exists()
