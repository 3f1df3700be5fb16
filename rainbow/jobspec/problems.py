"""How a refused jobspec is worded: one line that names the place, what is there, and what should be."""

from __future__ import annotations

from typing import Any, TypeAlias

from rainbow.errors import InvalidJobspec

Path: TypeAlias = "str | tuple[Path, str | int]"
"""Where in a document: a text such as ``resources[0].count``, or a pair of the place around and a key or index.

Pairs cost next to nothing to make; they are only spelled out when something is wrong.
"""


def invalid(path: Path, problem: str) -> InvalidJobspec:
    """The error for `problem` at `path`; the caller raises it."""
    place = spelled(path)
    return InvalidJobspec(f"jobspec: {place}: {problem}" if place else f"jobspec: {problem}")


def spelled(path: Path) -> str:
    """A path as text: ``resources[0].count``."""
    parts: list[str] = []
    while not isinstance(path, str):
        path, key = path
        parts.append(f"[{key}]" if isinstance(key, int) else f".{key}")
    return "".join([path, *reversed(parts)]).removeprefix(".")


def shown(value: Any) -> str:
    """A value as an error quotes it: short, and never more than a hint of something large."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and len(value) > 60:
        value = f"{value[:57]}..."
    return repr(value)
