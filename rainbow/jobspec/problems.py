"""How a refused jobspec is worded: one line that names the place, what is there, and what should be."""

from __future__ import annotations

from typing import Any

from rainbow.errors import InvalidJobspec


def invalid(path: str, problem: str) -> InvalidJobspec:
    """The error for `problem` at `path` (such as ``resources[0].count``); the caller raises it."""
    return InvalidJobspec(f"jobspec: {path}: {problem}" if path else f"jobspec: {problem}")


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
