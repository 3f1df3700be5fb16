"""Help: of every command, with an example that is a command; and nothing heavier than typer to show the list."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from rainbow.cli import app, exits
from rainbow.cli.app import command
from rainbow_agents.cli import main as agent_main


def _all() -> Iterator[list[str]]:
    for name, entry in app._COMMANDS.items():
        loaded = entry.load(name)
        yield [name]
        for below in getattr(loaded, "commands", {}):
            yield [name, below]


ALL = list(_all())


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_help_has_an_example(words: list[str], capsys: Any) -> None:
    assert exits.run([*words, "--help"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"Usage: rainbow {' '.join(words)}")
    assert "Example" in said
    assert not re.search(r"\[\[|<(str|int|float|path|list)|range>", said)
    assert exits.run([*words, "-h"]) == 0


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_examples_name_options_that_exist(words: list[str], capsys: Any) -> None:
    exits.run([*words, "--help"])
    for line in capsys.readouterr().out.splitlines():
        if not line.strip().startswith("rainbow "):
            continue
        parts = shlex.split(line.strip().replace("$(", "").replace(")", ""))[1:]
        found: Any = command()
        context = found.make_context("rainbow", [], resilient_parsing=True)
        while parts and hasattr(found, "commands"):
            name, below, _ = found.resolve_command(context, parts[:1])
            if name is None:
                break
            found = below
            parts = parts[1:]
        if hasattr(found, "default"):
            found = found.commands[found.default]
        known = {o for p in found.params for o in (*p.opts, *p.secondary_opts)}
        for word in parts:
            if word.startswith("-"):
                assert word in known, f"{line.strip()!r}: {word} is no option of {found.name}"


@pytest.mark.parametrize("name", sorted(app._COMMANDS))
def test_the_line_in_the_list_is_what_the_command_does(name: str) -> None:
    """The list is printed without loading a command; both must say something of the command's own."""
    assert app._COMMANDS[name].help.endswith(".")
    assert app._COMMANDS[name].load(name).help


@pytest.mark.parametrize("words", [w for w in ALL if w[0] not in ("up", "down", "demo", "web")], ids=" ".join)
def test_every_command_speaks_json_and_takes_a_config(words: list[str], capsys: Any) -> None:
    exits.run([*words, "--help"])
    said = capsys.readouterr().out
    if "COMMAND [ARGS]" in said:
        return
    assert "--json" in said
    if words[0] != "satisfy":  # offline: it has no settings
        assert "--config" in said


def test_completion_lists_commands_and_options(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def complete(line: str) -> str:
        monkeypatch.setenv("_RAINBOW_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - (0 if line.endswith(" ") else 1)))
        with pytest.raises(SystemExit):
            exits.run([])
        return str(capsys.readouterr().out)

    assert "submit" in complete("rainbow sub")
    assert "clusters" in complete("rainbow cl")
    assert "--jobspec" in complete("rainbow submit --jobs")
    assert "drain" in complete("rainbow clusters dr")


def test_the_commands_of_the_agent_are_completed_too(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_RAINBOW_AGENT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "rainbow-agent ch")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit):
        agent_main()
    assert capsys.readouterr().out.split() == ["check"]
