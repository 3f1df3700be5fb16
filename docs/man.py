"""Writes the manual pages, a page for each program and each command of `rainbow`, from the programs themselves.

``python docs/man.py FOLDER``; then ``man FOLDER/rainbow-submit.1``.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from typer.main import get_command

from rainbow.helptext import plain

sys.path.insert(0, str(Path(__file__).parent))

from generators.cli import argument_name


def pages() -> Iterator[tuple[str, str]]:
    """Give the name (``rainbow-submit``) and the text of each page."""
    from rainbow.cli.app import command
    from rainbow_agents.cli import app as agent
    from rainbow_workers.cli import app as scheduler

    for name, program in (
        ("rainbow", command()),
        ("rainbow-scheduler", plain(get_command(scheduler))),
        ("rainbow-agent", plain(get_command(agent))),
    ):
        yield from _pages(program, name)


def _pages(command: Any, path: str) -> Iterator[tuple[str, str]]:
    table: Mapping[str, Any] = getattr(command, "table", {})
    children = {
        name: table[name].load(name) if name in table else child
        for name, child in getattr(command, "commands", {}).items()
    }
    yield path.replace(" ", "-"), _page(command, path, children)
    for name, child in children.items():
        yield from _pages(child, f"{path} {name}")


def _page(command: Any, path: str, children: Mapping[str, Any]) -> str:
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    dashed = path.replace(" ", "-")
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    words = [path, "[OPTIONS]", *map(argument_name, arguments), *(["COMMAND"] if children else [])]
    out = [
        f'.TH "{dashed.upper()}" "1" "" "rainbow {version("rainbow-hpc")}" "rainbow"',
        ".SH NAME",
        f"{dashed} \\- {_text(paragraphs[0].rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {_text(' '.join(words))}",
        ".SH DESCRIPTION",
        *_prose(paragraphs),
    ]
    if options or any(getattr(a, "help", None) for a in arguments):
        out.append(".SH OPTIONS")
        for argument in arguments:
            if getattr(argument, "help", None):
                out += [".TP", f".B {_text(argument_name(argument))}", _text(argument.help)]
        for option in options:
            names = ", ".join([*option.opts, *option.secondary_opts])
            value = "" if getattr(option, "is_flag", False) else f" {option.metavar}"
            out += [".TP", f".B {_text(names + value)}", _text(option.help or "")]
    if children:
        out.append(".SH COMMANDS")
        for name, child in children.items():
            out += [".TP", f".BR {_text(f'{dashed}-{name}')} (1)", _text(child.get_short_help_str(limit=200))]
    out.append(".SH EXIT STATUS")
    out.append("0 done; 1 refused, failed or unplaceable; 2 wrong use; 3 denied; 4 broker or store out of reach;")
    out.append("5 no such thing; 124 timed out; 130 interrupted.")
    return "\n".join(out) + "\n"


def _prose(paragraphs: list[str]) -> Iterator[str]:
    for paragraph in paragraphs:
        lines = paragraph.splitlines()
        if lines and lines[0].strip() == "\b":  # kept line by line
            yield from (".PP", _text(lines[1].strip()) if len(lines) > 1 else "", ".nf", ".RS 4")
            yield from (_text(line.strip()) for line in lines[2:])
            yield from (".RE", ".fi")
        else:
            yield from (".PP", _text(" ".join(line.strip() for line in lines)))


def _text(text: str) -> str:
    """Return `text` with what roff would read otherwise escaped."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "")
    return f"\\&{text}" if text[:1] in (".", "'") else text


def main(folder: Path) -> None:
    """Write all pages into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages():
        (folder / f"{name}.1").write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/man"))
