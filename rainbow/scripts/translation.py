"""What the readers of Slurm's, PBS's and LSF's options share: a table of options, and what it collects."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from rainbow.errors import InvalidInput
from rainbow.models.arrays import read_array
from rainbow.models.dependencies import read_dependencies
from rainbow.scripts.slots import Resources

NO_DEPENDENCIES = "job ids of another scheduler mean nothing here: write afterok:ID with the id of a job of rainbow"
NO_MAIL = "rainbow sends no mail: use `rainbow wait`"
NO_MEMORY = "Flux allocates nodes, cores and GPUs, not memory: ask for the cores or nodes that have it"
NO_EXPORT = "the environment of this machine does not go along: name the variables"
NO_SITE = "a setting of one site's scheduler"


@dataclass(slots=True)
class Translation:
    """What was asked for, as resources and options of ``flux batch``, with the variables that scripts expect.

    `refused` has a line for each option without a counterpart; `clusters` are names to choose from, `array` the indices
    of one. `lenient` asks to submit all the same.
    """

    resources: Resources = field(default_factory=Resources)
    words: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    clusters: list[str] = field(default_factory=list)
    array: str | None = None
    lenient: bool = False


Handler = Callable[[Translation, str], None]


def word(option: str) -> Handler:
    """The value goes to one option of Flux as it is."""

    def handle(made: Translation, value: str) -> None:
        made.words.append(f"{option}={value}")

    return handle


def dependency(made: Translation, value: str) -> None:
    """Jobs of rainbow that it waits for."""
    try:
        read_dependencies(value)
    except InvalidInput:
        raise Unsupported(NO_DEPENDENCIES) from None
    made.words.append(f"--dependency={value}")


def array(made: Translation, value: str) -> None:
    """The indices of a job array, which all schedulers write alike."""
    read_array(value)
    made.array = value


def refused(why: str) -> Handler:
    """The option is refused; `handle` says so with its value."""

    def handle(made: Translation, value: str) -> None:
        raise Unsupported(why)

    return handle


def ignored(made: Translation, value: str) -> None:
    """The option asks for what happens in any case."""


class Unsupported(Exception):
    """Why an option, or its value, has no counterpart."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InvalidInput(message)


class Table:
    """The options of one dialect. Keys are flags, separated by spaces; those in `flags` take no value."""

    def __init__(self, options: Mapping[str, Handler], flags: Mapping[str, Handler], prefix: str = "-") -> None:
        self._parser = _Parser(add_help=False, prefix_chars=prefix, allow_abbrev=True)
        self._handlers: dict[str, Handler] = {}
        for table, takes_value in ((options, True), (flags, False)):
            for names, handler in table.items():
                self._handlers[names] = handler
                action = "append" if takes_value else "append_const"
                extra = {} if takes_value else {"const": ""}
                self._parser.add_argument(*names.split(), dest=names, action=action, **extra)  # type: ignore[arg-type]

    def split(self, argv: Sequence[str]) -> tuple[list[str], list[str]]:
        """Part the words of a command line: options, then the script with its arguments. Raises InvalidInput."""
        parser = _Parser(parents=[self._parser], add_help=False)
        parser.add_argument("--exclusive", action="store_true")
        parser.add_argument("rest", nargs=argparse.REMAINDER)
        rest: list[str] = parser.parse_args(list(argv)).rest
        return list(argv[: len(argv) - len(rest)]), rest

    def apply(self, words: Sequence[str], made: Translation) -> None:
        """Translate one line of options into `made`.

        Raises:
            InvalidInput: an unknown option, or a value that cannot be read.
        """
        options, rest = self._parser.parse_known_args(list(words))
        if rest:
            made.refused.append(f"{' '.join(rest)}: not an option that rainbow knows")
        for names, given in vars(options).items():
            for value in given or ():
                flag = names.split()[-1]
                try:
                    self._handlers[names](made, value)
                except Unsupported as exc:
                    between = "" if not value else "=" if flag.startswith("--") else " "
                    made.refused.append(f"{flag}{between}{value}: {exc}")
