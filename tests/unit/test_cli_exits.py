"""Whatever happens, a command ends with the right code and one plain line."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from rainbow import errors
from rainbow.cli import app, exits
from rainbow.cli.lazy import Entry, make_app
from rainbow.cli.options import Json
from rainbow.cli.render import output


class _Boom:
    """A command that raises what the test says."""

    def __init__(self) -> None:
        self.error: BaseException = RuntimeError("never set")

    def __call__(self, as_json: Json = False) -> None:
        raise self.error


@pytest.fixture
def boom(monkeypatch: pytest.MonkeyPatch) -> _Boom:
    command = _Boom()

    def raising(as_json: Json = False) -> None:
        raise command.error

    made = make_app()
    made.command("boom")(raising)
    monkeypatch.setattr(Entry, "load", lambda self, name: typer.main.get_command(made))
    monkeypatch.delenv("RAINBOW_DEBUG", raising=False)
    return command


def _classes(base: type[errors.RainbowError]) -> Iterator[type[errors.RainbowError]]:
    yield base
    for below in base.__subclasses__():
        yield from _classes(below)


_KINDS = sorted(set(_classes(errors.RainbowError)), key=lambda c: c.__name__)


@pytest.mark.parametrize("kind", _KINDS)
def test_every_error_of_ours_is_one_line_and_its_code(
    kind: type[errors.RainbowError], boom: _Boom, capsys: Any
) -> None:
    boom.error = kind("this happened\nand that: do this")
    assert exits.run(["jobs"]) == kind.exit_code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "rainbow: this happened and that: do this\n"


def test_with_json_an_error_is_a_document_too(boom: _Boom, capsys: Any) -> None:
    boom.error = errors.Denied("no token")
    assert exits.run(["jobs", "--json"]) == 3
    said = capsys.readouterr()
    assert json.loads(said.out) == {"error": {"code": "denied", "message": "no token"}}
    assert said.err == "rainbow: no token\n"
    assert output.as_json.get() is False  # nothing is left behind for the next command


def test_an_unexpected_error_is_one_line_that_names_the_way_to_see_more(boom: _Boom, capsys: Any) -> None:
    boom.error = ZeroDivisionError("division by zero")
    assert exits.run(["jobs"]) == 1
    said = capsys.readouterr()
    assert said.err == (
        "rainbow: unexpected ZeroDivisionError: division by zero (this is a bug; RAINBOW_DEBUG=1 shows where)\n"
    )


def test_debug_shows_where(boom: _Boom, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAINBOW_DEBUG", "1")
    boom.error = ZeroDivisionError("division by zero")
    assert exits.run(["jobs"]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_a_secret_in_an_error_is_not_shown(boom: _Boom, capsys: Any) -> None:
    boom.error = RuntimeError("cannot parse amqp://me:hunter22@host/v and eyJhbGciOiJI.eyJzdWIiOiJ4.c2lnbmF0dXJl")
    exits.run(["jobs"])
    said = capsys.readouterr()
    assert "hunter22" not in said.err
    assert "c2lnbmF0dXJl" not in said.err


def test_interrupted(boom: _Boom) -> None:
    boom.error = KeyboardInterrupt()
    assert exits.run(["jobs"]) == 130


def test_a_file_that_cannot_be_used_is_named(boom: _Boom, capsys: Any) -> None:
    boom.error = PermissionError(13, "Permission denied", "/etc/rainbow.yaml")
    assert exits.run(["jobs"]) == 2
    assert capsys.readouterr().err == "rainbow: /etc/rainbow.yaml: Permission denied\n"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["frob"], "no such command 'frob' (see `rainbow --help`)"),
        (["submt", "x"], "Did you mean 'submit'"),
        (["submit"], "say what to run"),
        (["submit", "-N", "two", "hostname"], "'-N' / '--nodes': must be a whole number"),
        (["submit", "-N", "0", "hostname"], "'-N' / '--nodes': must be at least 1"),
        (["submit", "--priority", "0", "hostname"], "'--priority': must be at least 1"),
        (["submit", "--id", "abc", "hostname"], "--id 'abc' is not a UUID"),
        (["clusters", "drian", "blue"], "no such command 'drian': did you mean 'drain'?"),
        (["submit", "--nope", "hostname"], "no such option: --nope"),
        (["submit", "--select-option", "a=b", "hostname"], "--select-option needs --select"),
        (["status"], "missing argument 'ID'"),
        (["status", "12"], "'12' is no job id"),
        (["wait", "12"], "'12' is no job id"),
        (["token"], "missing command (see `rainbow token --help`)"),
        (["register", "blue"], "either --nodes FILE or --R FILE"),
        (["jobs", "--state", "asleep"], "choose of active, ended, submitted"),
        (["clusters", "drain"], "missing argument 'CLUSTER'"),
        (["dead", "drop"], "or --all"),
        (["--config"], "requires"),
    ],
)
def test_wrong_use_is_exit_2_and_one_line(args: list[str], says: str, capsys: Any) -> None:
    assert exits.run(args) == 2
    said = capsys.readouterr()
    assert says in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_the_process_has_the_code_and_no_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rainbow.cli", "status", "nonsense"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr.startswith("rainbow: 'nonsense' is no job id")
    assert done.stderr.count("\n") == 1


def test_a_reader_that_goes_away_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "rainbow.cli", "--help"], stdout=write, stderr=subprocess.PIPE, text=True, timeout=60
    )
    os.close(write)
    assert done.returncode == 141
    assert done.stderr == ""


def test_ctrl_c_ends_quietly(tmp_path: Any) -> None:
    """A real signal, while a command waits for a registrar that is not there."""
    script = """
import os, signal, sys, threading, time
from rainbow import topology
from rainbow.brokers import ConnectOptions, connect
from rainbow.cli.exits import run

broker = connect(ConnectOptions(url="memory://quiet"))
broker.declare(topology.core())

def interrupt():
    while not broker.stats(topology.CONTROL_QUEUE).messages:  # until the question is asked
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
sys.exit(run(["clusters", "--timeout", "50"]))
"""
    env = {**os.environ, "RAINBOW_BROKER_URL": "memory://quiet", "RAINBOW_TOKEN": "x.y.z"}
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env=env, cwd=tmp_path
    )
    assert done.returncode == 130, done.stderr
    assert done.stdout == ""
    assert done.stderr == ""
    assert time.monotonic() - began < 45


def test_version(capsys: Any) -> None:
    from importlib.metadata import version

    assert exits.run(["--version"]) == 0
    assert capsys.readouterr().out == f"rainbow {version('rainbow-hpc')}\n"


def test_without_anything_help_is_shown(capsys: Any) -> None:
    assert exits.run([]) == 0
    assert "Usage: rainbow" in capsys.readouterr().out
    assert app.app is not None


@pytest.mark.parametrize("program", ["rainbow_agents.cli", "rainbow_workers.cli"])
def test_wrong_use_of_the_other_programs_is_one_line_too(program: str, monkeypatch: Any, capsys: Any) -> None:
    main = importlib.import_module(program).main
    monkeypatch.setattr(sys, "argv", ["program", "frob"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "frob" in said
    assert said.count("\n") == 1
