"""A command as its words, whichever dialect or door it comes through."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

from rainbow.jobspec.problems import Path, invalid, shown

#: What only a shell understands: expansion, redirection, several commands, patterns.
_SHELL = re.compile(r"[$`;|&<>()*?\[~\n]|(?:^|\s)\w+=")


def read_words(command: Any, path: Path) -> list[str]:
    """Return the words of `command`: a sequence of texts as it is, one text as a shell reads it.

    A text with signs that only a shell understands is run by ``sh -c``; another one is split.

    Raises:
        InvalidJobspec: empty, no text, or with quotes that are not closed.
    """
    if isinstance(command, str):
        try:
            split = shlex.split(command)
        except ValueError:
            raise invalid(path, "the quotes are not closed; close them or write a list of words") from None
        words: Sequence[Any] = ["sh", "-c", command] if split and _SHELL.search(command) else split
    elif isinstance(command, list | tuple):
        words = command
    else:
        raise invalid(path, f"a list of texts, or one text, is needed, not {shown(command)}")
    if not words:
        raise invalid(path, "empty; write what to run")
    for word in words:
        if not isinstance(word, str):
            raise invalid(path, f"{shown(word)} is not text; quote it")
        if "\0" in word:
            raise invalid(path, "an argument has a NUL character, which no command can take")
    return list(words)
