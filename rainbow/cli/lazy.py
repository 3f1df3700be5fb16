"""A group whose commands are imported when used: help and completion need only the table of names and lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from rainbow.helptext import plain


@dataclass(frozen=True, slots=True)
class Entry:
    """A command: ``module:attribute`` of its function or `typer.Typer`, and its line in the help of the program."""

    where: str
    help: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def load(self, name: str) -> Any:
        module, _, attribute = self.where.partition(":")
        target = getattr(import_module(module), attribute)
        if not isinstance(target, typer.Typer):
            app = make_app()
            app.command(name, context_settings=dict(self.settings))(target)
            target = app
        command = plain(get_command(target))
        command.name = name
        return command


def make_app(**settings: Any) -> typer.Typer:
    """A Typer with plain help (rich would double the time of ``--help``) and without its own tracebacks."""
    settings.setdefault("context_settings", {"help_option_names": ["-h", "--help"]})
    settings.setdefault("add_completion", False)
    return typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, **settings)


class LazyGroup(TyperGroup):
    """Commands stand in `table`; what lists them sees a stub with the line of help, what runs one loads it."""

    table: ClassVar[Mapping[str, Entry]] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, entry in self.table.items():
            self.add_command(TyperCommand(name, help=entry.help, rich_markup_mode=None))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and name in self.table:
            command = self.table[name].load(name)
        return name, command, rest


class DefaultGroup(TyperGroup):
    """A group that is also a command: ``clusters`` and ``clusters blue`` mean ``clusters show …``."""

    default: ClassVar[str] = "show"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        if not named and (words := [a for a in args if not a.startswith("-")])[1:] and words[0] == args[0]:
            near = get_close_matches(words[0], self.commands, 1)
            if near:
                raise typer.BadParameter(f"no such command {words[0]!r}: did you mean {near[0]!r}?", ctx)
        completing = ctx.resilient_parsing and not args  # of the commands of the group itself
        if not named and not completing:
            args = [self.default, *args]
        return super().parse_args(ctx, args)
