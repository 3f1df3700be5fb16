"""compspec's own programs describe what spack installed; a job that requires it goes to the cluster that has it.

The packages come from the registry, into a virtual environment of their own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from running import Rainbow, alone

PACKAGES = (
    "compspec==0.1.15",
    "compspec-containment==0.0.14",
    "compspec-modules==0.0.13",
    "compspec-spack==0.0.13",
    "jobspec==0.1.15",
)
RED = Path(__file__).resolve().parents[2] / "rainbow" / "demo" / "data" / "red.json"
JOB = """
version: 1
resources:
  ior: {{type: node, count: 1, requires: [{need}], with: [{{type: core, count: 1}}]}}
tasks:
- {{command: [bash, -c, "spack load ior && ior"], resources: ior}}
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compspec") / "venv"
    pip = (str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check", *PACKAGES)
    for command in ((sys.executable, "-m", "venv", str(folder)), pip):
        done = subprocess.run(command, capture_output=True, text=True, timeout=280)
        if done.returncode:
            pytest.skip(f"compspec cannot be installed: {done.stderr.strip()[-200:]}")
    return folder / "bin"


@pytest.fixture
def rainbow(
    amqp_url: str, redis_url: str, redis_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Rainbow]:
    alone(monkeypatch, tmp_path)
    made = Rainbow(tmp_path, amqp_url, redis_url, redis_prefix)
    made.write_config({"token": made.token("submit")})
    yield made
    made.end()


def _install(root: Path, name: str, version: str, program: str) -> None:
    """A package as spack leaves it: its files, its manifest and its spec."""
    prefix = root / "opt" / "spack" / "linux-debian12-x86_64_v3" / "gcc-12.2.0" / f"{name}-{version}-abcdef"
    (prefix / ".spack").mkdir(parents=True)
    (prefix / "bin").mkdir()
    (prefix / "bin" / program).write_text("#!/bin/sh\n")
    (prefix / ".spack" / "install_manifest.json").write_text(json.dumps({str(prefix / "bin" / program): {}}))
    target = {"name": "x86_64_v3", "vendor": "generic"}
    arch = {"platform": "linux", "platform_os": "debian12", "target": target}
    spec = {"spec": {"_meta": {"version": 4}, "nodes": [{"name": name, "version": version, "arch": arch}]}}
    (prefix / ".spack" / "spec.json").write_text(json.dumps(spec))


def _extracted(programs: Path, folder: Path, versions: dict[str, str]) -> Path:
    """What `compspec extract` finds in a tree with these packages."""
    for name, version in versions.items():
        _install(folder / "spack", name, version, name)
    file = folder / "spack-subsystem.json"
    command: list[str | Path] = [programs / "compspec", "extract", "--outfile", file, "spack", folder / "spack"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return file


def test_a_package_and_its_version_choose_the_cluster(programs: Path, rainbow: Rainbow, tmp_path: Path) -> None:
    # On old, it is another package that has the version asked for.
    installed = {"old": {"ior": "3.3.0", "openmpi": "4.1.6"}, "new": {"ior": "4.0.0", "openmpi": "3.1.6"}}
    for name, versions in installed.items():
        graph = json.loads(_extracted(programs, tmp_path / name, versions).read_text())
        with rainbow.client() as client:
            client.register(name, identity=f"compspec {name}", graph=json.loads(RED.read_text()))
            assert client.set_subsystem(name, "spack", graph) == ["spack"]

    def asked(need: str) -> list[str]:
        with rainbow.client() as client:
            return sorted(client.satisfy(jobspec=JOB.format(need=need)).clusters)

    package = "name: spack, field: name, match: ior"
    assert asked(f"{{{package}}}") == ["new", "old"]
    assert asked(f"{{{package}, attribute: version, min: '4'}}") == ["new"]
    assert asked(f"{{{package}, attribute: version, value: 3.3.0}}") == ["old"]
    assert asked(f"{{{package}, attribute: version, min: '4.1'}}") == []
    assert asked("{name: spack, field: type, match: package, attribute: name, value: openmpi}") == ["new", "old"]
    assert asked("{name: spack, field: type, match: binary, attribute: name, value: lammps}") == []
    with rainbow.client() as client:
        answer = client.submit(jobspec=JOB.format(need=f"{{{package}, attribute: version, min: '4'}}")).wait_answer(30)
    assert (answer.status, answer.cluster) == ("assigned", "new")


def test_jobspec_s_own_reader_takes_what_rainbow_takes(programs: Path, tmp_path: Path) -> None:
    need = "{name: spack, field: name, match: ior, attribute: version, min: '4'}"
    (tmp_path / "job.yaml").write_text(JOB.format(need=need))
    read = "import sys; from jobspec.core import Jobspec; Jobspec(sys.argv[1])"
    command: list[str | Path] = [programs / "python", "-c", read, tmp_path / "job.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
