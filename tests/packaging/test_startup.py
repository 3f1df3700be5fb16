"""Starting costs little: what is imported when, and how long `rainbow --help` takes next to importing typer."""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

#: Everything that only some command needs.
HEAVY = ("pika", "pydantic", "redis", "yaml", "kombu", "msgpack", "jwt", "rich", "rainbow.client", "rainbow.settings")

_LOADED = """
import json, sys
from rainbow.cli.exits import run
code = run({args!r})
sys.stdout.flush()
print(json.dumps(sorted(m for m in {heavy!r} if m in sys.modules)), file=sys.stderr)
raise SystemExit(code)
"""


def _loaded(*args: str) -> list[str]:
    script = _LOADED.format(args=list(args), heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stderr.splitlines()[-1])
    return found


@pytest.mark.parametrize("args", [("--help",), ("-h",)])
def test_the_program_itself_imports_nothing_heavy(args: tuple[str, ...]) -> None:
    assert _loaded(*args) == []


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("--version",),
        ("submit", "--help"),
        ("jobs", "--help"),
        ("clusters", "--help"),
        ("clusters", "drain", "--help"),
        ("token", "-h"),
    ],
)
def test_help_of_a_command_imports_nothing_of_what_it_does(args: tuple[str, ...]) -> None:
    """But pydantic, with which newer releases of typer itself read options."""
    assert set(_loaded(*args)) <= {"pydantic"}


def test_importing_rainbow_imports_nothing_heavy() -> None:
    script = f"import sys, rainbow; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def _cpu(command: list[str]) -> float:
    """CPU seconds of one run: wall time says more about the neighbours than about us."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, timeout=120)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def test_help_costs_at_most_twice_an_import_of_typer() -> None:
    """Paired runs, one after the other, so that a busy machine slows both; the first pair only warms the caches."""
    program = Path(sys.executable).with_name("rainbow")
    ours = [str(program), "--help"] if program.exists() else [sys.executable, "-m", "rainbow.cli", "--help"]
    theirs = [sys.executable, "-c", "import typer"]
    pairs = [(_cpu(ours), _cpu(theirs)) for _ in range(10)][1:]
    ratio = statistics.median(a / b for a, b in pairs)
    assert ratio <= 2.0, f"rainbow --help costs {ratio:.2f} times an import of typer: {pairs}"
