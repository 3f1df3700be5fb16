"""What a command prints reaches every kind of stdout: terminals, pipes, old encodings, full disks, closed ones."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rainbow.cli.render import output

_PRINT = """
import sys
from rainbow.cli import exits
from rainbow.cli.lazy import Entry, make_app
import typer
from rainbow.cli.render import output
from rainbow.cli.options import Json

def show(as_json: Json = False, done: bool = False) -> None:
    if as_json:
        output.document({"name": "日本語"})
    elif done:
        output.result("6f1c1f7e")
    else:
        output.table(("name", "state"), [("日本語", "failed"), ("failed", "completed")], empty="none")
        output.raw(bytes(range(256)))

app = make_app()
app.command("show")(show)
Entry.load = lambda self, name: typer.main.get_command(app)
raise SystemExit(exits.run(["jobs", *sys.argv[1:]]))
"""


def _run(*args: str, stdout: Any = subprocess.PIPE, **environment: str) -> subprocess.CompletedProcess[bytes]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG", "PYTHON"))} | environment
    return subprocess.run(
        [sys.executable, "-c", _PRINT, *args], stdout=stdout, stderr=subprocess.PIPE, env=env, timeout=60
    )


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii"])
def test_every_encoding_gets_the_whole_table_and_the_bytes_as_they_were(encoding: str) -> None:
    done = _run(PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.endswith(bytes(range(256)))
    text = done.stdout[:-256].decode(encoding)
    assert ("日本語" if encoding == "utf-8" else "\\u65e5\\u672c\\u8a9e") in text
    head, *rows = text.splitlines()
    assert len(rows) == 2
    if encoding != "utf-8":  # whose wide characters take two columns
        assert {row.rindex(state) for row, state in zip(rows, ("failed", "completed"), strict=True)} == {
            head.index("STATE")
        }


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_json_is_json_in_every_encoding(encoding: str) -> None:
    import json

    done = _run("--json", PYTHONIOENCODING=encoding)
    assert json.loads(done.stdout.decode(encoding)) == {"name": "日本語"}


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_is_one_line_and_exit_1() -> None:
    with open("/dev/full", "wb") as full:
        done = _run("--json", stdout=full)
    assert done.returncode == 1
    assert done.stderr == b"rainbow: standard output cannot be written: No space left on device\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_what_was_done_is_said_on_stderr_then_and_is_no_failure() -> None:
    with open("/dev/full", "wb") as full:
        done = _run("--done", stdout=full)
    assert done.returncode == 0
    assert done.stderr == b"6f1c1f7e\nrainbow: standard output cannot be written: No space left on device\n"


@pytest.mark.parametrize(("args", "code"), [((), 1), (("--json",), 1), (("--done",), 0)])
def test_a_closed_stdout_is_said(args: tuple[str, ...], code: int) -> None:
    command = ["bash", "-c", 'exec "$0" -c "$1" "${@:2}" >&-', sys.executable, _PRINT, *args]
    done = subprocess.run(command, stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == code
    assert done.stderr.splitlines()[-1].startswith(b"rainbow: standard output cannot be written")
    assert done.stderr.count(b"\n") == 2 - code


def _on_a_terminal(**environment: str) -> str:
    outer, inner = pty.openpty()
    env = {"TERM": "xterm", "LC_ALL": "C.UTF-8"} | environment
    process = subprocess.Popen([sys.executable, "-c", _PRINT], stdout=inner, stderr=inner, env=os.environ | env)
    os.close(inner)
    got = b""
    try:
        while more := os.read(outer, 4096):
            got += more
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(outer)
    assert process.wait(60) == 0
    return got.decode("utf-8", "replace")


def test_on_a_terminal_the_column_has_the_colour_not_the_word() -> None:
    lines = _on_a_terminal().splitlines()
    assert lines[0].startswith("\x1b[1mNAME\x1b[0m")
    assert lines[1].startswith("日本語  \x1b[31mfailed\x1b[0m")
    assert lines[2].startswith("failed  \x1b[32mcompleted\x1b[0m")


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colour_is_no_escape_at_all(environment: dict[str, str]) -> None:
    assert "\x1b" not in _on_a_terminal(**environment).split("completed")[0]


def test_wide_characters_and_long_names_keep_the_columns(capsys: Any) -> None:
    rows = [("1", "日本語", "x"), ("2", "n" * 300, "y"), ("3", "e\u0301", "z")]
    output.table(("id", "name", "detail"), rows, empty="", narrow=("name",))
    lines = capsys.readouterr().out.splitlines()
    assert {output.width(line[: line.rindex(last)]) for line, last in zip(lines[1:], "xyz", strict=True)} == {38}


def test_long_text_elsewhere_is_whole(capsys: Any) -> None:
    output.table(("id", "detail"), [("i" * 40, "d" * 300)], empty="")
    assert capsys.readouterr().out.splitlines()[1] == f"{'i' * 40}  {'d' * 300}"


def test_times_have_their_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "PST8")
    time.tzset()
    try:
        assert output.stamp(1_000_000_000) == "2001-09-08T17:46:40-08:00"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_raw_bytes_go_where_there_is_no_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    output.raw(b"caf\xc3\xa9 \xff")
    assert stream.getvalue() == "café \ufffd"


def test_flags_are_shown_as_they_are_typed(capsys: Any, tmp_path: Path) -> None:
    output.fields({"open": True, "shut": False})
    assert capsys.readouterr().out.split() == ["open", "true", "shut", "false"]
    assert output.listing({"a": True, "b": 1.0}) == "a=true b=1"
