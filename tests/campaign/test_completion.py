"""Completion in bash, zsh and fish as they are: what is typed and Tab, at a terminal."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from processes import Site

LIMIT = 30.0
START = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(_RAINBOW_COMPLETE=source_bash rainbow)"'),
    "zsh": (
        ["zsh", "-f", "-i"],
        'autoload -U compinit; compinit -u -D; eval "$(_RAINBOW_COMPLETE=source_zsh rainbow)"',
    ),
}


class Terminal:
    """A shell at a terminal of its own."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: Path) -> None:
        self._screen, theirs = pty.openpty()
        self._process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=environment, start_new_session=True
        )
        os.close(theirs)
        self._seen = ""

    def type(self, keys: str) -> None:
        os.write(self._screen, keys.encode())

    def until(self, text: str) -> None:
        """Read until `text` is on the screen, and forget what was there."""
        end = time.monotonic() + LIMIT
        while text not in self._seen:
            ready, _, _ = select.select([self._screen], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"no {text!r} within {LIMIT:g} s: {self._seen!r}"
            self._seen += os.read(self._screen, 65536).decode(errors="replace")
        self._seen = ""

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._screen)


@pytest.fixture
def environment(site: Site, tmp_path: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    settings = str(site.settings_of("alice"))
    return {**site.environment(), "RAINBOW_CONFIG": settings, "PATH": path, "HOME": str(tmp_path), "TERM": "vt100"}


@pytest.fixture(params=["bash", "zsh"])
def terminal(request: pytest.FixtureRequest, environment: dict[str, str], tmp_path: Path) -> Iterator[Terminal]:
    command, setup = START[request.param]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    made = Terminal(command, environment, tmp_path)
    made.type(f"PS1='> '; {setup}; echo rea''dy\n")
    made.until("ready\r\n")
    yield made
    made.close()


def test_names_are_completed(terminal: Terminal) -> None:
    for typed, words in (
        ("rainbow clusters dr\tbl\t", "[rainbow][clusters][drain][blue]"),
        ("rainbow jobs --state runn\t", "[rainbow][jobs][--state][running]"),
    ):
        terminal.type(f"{typed}\x01printf '[%s]' \x05\n")  # Ctrl-A and Ctrl-E: to the start and the end of the line
        terminal.until(words)


def test_fish(environment: dict[str, str], tmp_path: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")

    def proposed(typed: str) -> list[str]:
        script = f'_RAINBOW_COMPLETE=source_fish rainbow | source; complete -C "{typed}"'
        done = subprocess.run(
            ["fish", "--no-config", "-c", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return [line.split("\t")[0] for line in done.stdout.splitlines()]

    assert proposed("rainbow clusters drain b") == ["blue"]
    assert proposed("rainbow submit --cluster ") == ["blue", "green", "red"]
    assert "drain" in proposed("rainbow clusters ")
    assert proposed("rainbow jobs --state runn") == ["running"]
