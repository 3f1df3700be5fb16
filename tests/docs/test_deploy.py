"""docs/deploy and compose.yaml: units that systemd reads, a rabbitmq.conf that RabbitMQ takes, commands that exist."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml

from docs.documents import ROOT
from servers import NoServer, Run, end_group, start_rabbit

DEPLOY = ROOT / "docs" / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
HARDENED = {"NoNewPrivileges": "yes", "ProtectSystem": "strict", "CapabilityBoundingSet": "", "PrivateTmp": "yes"}


def _unit(file: Path) -> configparser.SectionProxy:
    parser = configparser.RawConfigParser(strict=False, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(file.read_text())
    return parser["Service"]


@pytest.mark.parametrize("file", UNITS, ids=lambda f: f.name)
def test_units_run_unprivileged_and_hardened(file: Path) -> None:
    service = _unit(file)
    assert service["User"] not in ("root", "")
    assert {key: service[key] for key in HARDENED} == HARDENED
    assert service["RestartPreventExitStatus"].split() == ["2", "3"]


@pytest.mark.parametrize("file", UNITS, ids=lambda f: f.name)
def test_units_start_commands_that_exist(file: Path) -> None:
    words = shlex.split(_unit(file)["ExecStart"])
    name = Path(words[0]).name
    options = [w for w in words[1:] if w.startswith("--")]
    commands = [w for w in words[1:] if re.fullmatch("[a-z]+", w)]
    shown = _help(name, *commands)
    assert all(option in shown for option in options)


@pytest.mark.parametrize("file", UNITS, ids=lambda f: f.name)
def test_systemd_reads_the_units(file: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not here")
    name = file.name.replace("@", "@blue")
    # Where the program is differs from machine to machine; systemd wants to see one.
    text = file.read_text().replace("/opt/rainbow/bin/", f"{Path(sys.executable).parent}/")
    (tmp_path / name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / name)], capture_output=True, text=True, check=False
    )
    told = [line for line in done.stderr.splitlines() if name in line]
    assert not told


def test_rabbitmq_takes_the_sample(test_run: Run) -> None:
    config = "".join(
        line
        for line in (DEPLOY / "rabbitmq.conf").read_text().splitlines(keepends=True)
        if not line.startswith("listeners.")
    )
    folder = Path(tempfile.mkdtemp(prefix="sample-rabbitmq-", dir=test_run.folder))
    try:
        server = start_rabbit(folder, config=config)
    except NoServer as exc:
        if os.environ.get("RAINBOW_TEST_REQUIRE") == "1":
            raise
        pytest.skip(str(exc))
    try:
        assert "67108864" in server.eval("application:get_env(rabbit, max_message_size).")
    finally:
        end_group(server.group, server.started)


def _help(program: str, *commands: str) -> str:
    done = subprocess.run(
        [str(Path(sys.executable).parent / program), *commands, "--help"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert done.returncode == 0, f"{program} {' '.join(commands)}: {done.stderr}"
    return done.stdout


def _compose_commands() -> list[list[str]]:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"].values()
    found = [s["command"] for s in services if "command" in s]
    found += [s["healthcheck"]["test"][1:] for s in services if "healthcheck" in s]
    script = (DEPLOY / "compose-keys").read_text().replace('"$RAINBOW_KEYRING"', "keys")
    found += [shlex.split(m) for m in re.findall(r"\b(rainbow [a-z]+ [^>\n]*)", script)]
    return [words for words in found if words[0].startswith("rainbow")]


@pytest.mark.parametrize("words", _compose_commands(), ids=" ".join)
def test_commands_of_compose_exist(words: list[str]) -> None:
    commands = []
    for word in words[1:]:
        if not re.fullmatch("[a-z]+", word):
            break
        commands.append(word)
    shown = _help(words[0], *commands)
    assert all(word in shown for word in words if word.startswith("--"))


def test_compose_keys_makes_a_ring_and_tokens_once(tmp_path: Path) -> None:
    """The script as it is, in folders of the test."""
    script = (DEPLOY / "compose-keys").read_text()
    for path in ("/etc/rainbow-tokens", "/tmp/unused.yaml"):
        script = script.replace(path, f"{tmp_path}/{Path(path).name}")
    (tmp_path / "rainbow-tokens").mkdir()
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "RAINBOW_KEYRING": str(tmp_path / "keys.json"),
        "RAINBOW_BROKER_URL": "amqp://rainbow:secret@rabbitmq:5672/rainbow",
    }
    made = []
    for _ in range(2):
        subprocess.run(["sh", "-c", script], env=environment, cwd=tmp_path, check=True, capture_output=True)
        made.append([f.read_text() for f in sorted(tmp_path.rglob("*")) if f.is_file()])
    assert made[0] == made[1]
    assert (tmp_path / "keys.json").stat().st_mode & 0o777 == 0o600
    assert sorted(f.name for f in (tmp_path / "rainbow-tokens").iterdir()) == ["red", "tiny"]
