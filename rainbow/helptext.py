"""Help of the command lines, however the installed typer draws it: what a value is, and arguments as they are typed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, get_args


def plain(command: Any) -> Any:
    """Return `command` with plain help, also of the commands below it.

    Values are ``N``, ``PATH`` and ``TEXT``; arguments are named by their metavar alone (``[ID...]``).
    """
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            shown = str(parameter.metavar or parameter.name.upper())
            parameter.get_usage_pieces = partial(_usage, shown)
            parameter.get_help_record = partial(_record, shown, parameter.get_help_record)
        elif parameter.metavar is None and not getattr(parameter, "is_flag", False):
            parameter.metavar = _value_of(parameter)
    for below in getattr(command, "commands", {}).values():
        plain(below)
    return command


def _usage(shown: str, ctx: Any) -> list[str]:
    return [shown]


def _record(shown: str, record: Any, ctx: Any) -> tuple[str, str] | None:
    found = record(ctx)
    return found and (shown, found[1])


def _value_of(option: Any) -> str:
    kind = getattr(getattr(option, "type_descriptor", None), "annotation", None)
    choices = getattr(getattr(option, "type", None), "choices", None) or get_args(kind)
    if choices and all(isinstance(c, str) for c in choices):
        return "|".join(choices)
    if kind in (int, float) or getattr(getattr(option, "type", None), "name", "").startswith(("int", "float")):
        return "N"
    return "PATH" if kind is Path else "TEXT"
