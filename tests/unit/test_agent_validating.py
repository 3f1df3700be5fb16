"""When Flux's validator need not be asked: the parts that need no Flux. The rest is in tests/flux."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rainbow_agents.executors.flux.session.validating import plain, plain_process


@pytest.mark.parametrize(
    "config",
    [{}, {"ingest": {}}, {"ingest": {"batch-count": 4, "validator": {}}}, {"queues": {"batch": {}}, "policy": {}}],
)
def test_plain(config: dict[str, Any]) -> None:
    assert plain(config)


@pytest.mark.parametrize(
    "ingest",
    [
        {"validator": {"plugins": ["jobspec"]}},
        {"validator": {"args": ["--require-version=any"]}},
        {"validator": {"disable": True}},
        {"frobnicator": {"plugins": ["site"]}},
        {"frobnicator": {"disable": True}},
    ],
)
def test_a_site_that_said_anything_of_it_is_left_alone(ingest: dict[str, Any]) -> None:
    assert not plain({"ingest": ingest})


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Any]:
    started: list[subprocess.Popen[bytes]] = []
    file = tmp_path / "flux-job-validator.py"
    file.write_text("import sys\nprint(flush=True)\nsys.stdin.read()\n")

    def start(*words: str, name: str = "", **environment: str) -> int:
        command = [sys.executable, str(tmp_path / name) if name else str(file), *words]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("FLUX_")}
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**clean, **environment})
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process.pid

    yield start
    for process in started:
        process.communicate()


def test_a_process_is_known_by_arguments_and_environment(program: Any, tmp_path: Path) -> None:
    assert plain_process(program())
    assert not plain_process(program("--plugins", "jobspec,site"))
    assert not plain_process(program("--require-version=any"))
    assert not plain_process(program(FLUX_CLI_PLUGINPATH="/site"))
    assert not plain_process(program(FLUX_CLI_PLUGINPATH_OVERRIDE=""))
    (tmp_path / "other.py").write_text((tmp_path / "flux-job-validator.py").read_text())
    assert not plain_process(program(name="other.py"))


def test_a_process_of_another_host_is_not_known() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert not plain_process(ended.pid)
    assert not plain_process(os.getpid())
