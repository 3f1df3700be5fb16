"""The documents, read: which blocks are commands, which are files, and which say that they are not run.

The convention, in README.md and docs/**/*.md:

- a block ``console`` is a session: a line ``$ …`` is a command, ``> …`` continues it, and what follows is its output.
  Output must be as shown, but for runs of blanks; ``...`` stands for anything, alone on a line for any lines.
  A command with no output shown may print anything. It must succeed, unless the next one is ``echo $?``;
- ``console until``: the block is repeated until its output is as shown (something takes a moment);
- ``console no-run``: not run; its first line says why, where readers see it too (``# not run by the tests: …``);
- ``… file=NAME`` (any language): the block is written to that file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_WHY = "# not run by the tests: "
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@dataclass(frozen=True)
class Command:
    text: str
    shown: tuple[str, ...] = ()


@dataclass(frozen=True)
class Block:
    """`no_run` is the reason why the commands are not run; `file` is where the body goes."""

    line: int
    language: str
    body: str
    until: bool = False
    no_run: str | None = None
    file: str | None = None
    commands: tuple[Command, ...] = ()


@dataclass(frozen=True)
class Document:
    name: str
    blocks: tuple[Block, ...] = field(default=())

    @property
    def runs(self) -> bool:
        return any(b.commands and b.no_run is None for b in self.blocks)


def all_documents() -> list[Document]:
    """README.md, and everything below docs/."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [read(file) for file in files]


def read(file: Path) -> Document:
    text = file.read_text()
    return Document(str(file.relative_to(ROOT)), tuple(_block(m, text) for m in _FENCE.finditer(text)))


def block_named(document: str, file: str) -> str:
    """The body of the block that a document shows as `file`."""
    found = [b.body for b in read(ROOT / document).blocks if b.file == file]
    assert len(found) == 1, f"{document} shows {file} {len(found)} times"
    return found[0]


def _block(match: re.Match[str], text: str) -> Block:
    language, *words = match["info"].split() or [""]
    indent = match["indent"]
    body = "".join(line.removeprefix(indent) for line in match["body"].splitlines(keepends=True))
    line = text.count("\n", 0, match.start()) + 1
    file = next((w.removeprefix("file=") for w in words if w.startswith("file=")), None)
    if language != "console":
        return Block(line, language, body, file=file)
    no_run = None
    if "no-run" in words:
        first, _, body = body.partition("\n")
        assert first.startswith(_WHY), f"line {line + 1}: a no-run block starts with {_WHY!r} and the reason"
        no_run = first.removeprefix(_WHY)
    return Block(line, language, body, until="until" in words, no_run=no_run, commands=tuple(_commands(body)))


def _commands(body: str) -> list[Command]:
    found: list[tuple[list[str], list[str]]] = []
    for line in body.splitlines():
        if line.startswith("$ "):
            found.append(([line[2:]], []))
        elif line.startswith("> ") and found and not found[-1][1]:
            found[-1][0].append(line[2:])
        else:
            assert found, f"a session starts with a command, not with {line!r}"
            found[-1][1].append(line)
    return [Command("\n".join(text), tuple(shown)) for text, shown in found]


def as_shown(command: Command, output: str) -> bool:
    """Is the output of a command what the document shows?"""
    if not command.shown:
        return True
    pattern = ""
    for line in command.shown:
        if line.strip() == "...":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += _line(line) + r"\n"
    printed = "".join(" ".join(line.split()) + "\n" for line in output.splitlines())
    return re.fullmatch(pattern, printed) is not None


def _line(line: str) -> str:
    parts = re.split(rf"(\.\.\.|{_UUID})", " ".join(line.split()))
    return "".join(r"[^\n]*" if p == "..." else _UUID if re.fullmatch(_UUID, p) else re.escape(p) for p in parts)
