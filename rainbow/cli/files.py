"""The settings file as commands change it: whole sections are replaced, all else stays as it was written."""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rainbow.errors import InvalidSettings

Change = Callable[[dict[str, Any]], Mapping[str, Any]]


def in_force(config: Path | None) -> Path:
    """The settings file that a command saves into: the one in force, else a new one here."""
    from rainbow.settings import FILE_NAME, find

    return (find(config) or Path(FILE_NAME)).resolve()


def change(path: Path, change: Change) -> None:
    """Give `change` the sections of the file, and write those it returns (mode 0600).

    Comments and sections not returned stay. Two commands at once do not lose each other's change.
    """
    import yaml

    from rainbow.settings import read_document

    with _alone(path.parent):
        text = ""
        if path.exists():
            read_document(path)  # says what is wrong with a file that cannot be read
            text = path.read_text()
        old = yaml.safe_load(text) or {}
        new = dict(change(dict(old)))
        for name, value in new.items():
            text = _with_section(text, name, value)
        _check(path, text, {**old, **new})
        write_private(path, text)


def write_private(path: Path, text: str) -> None:
    """Write `path` with mode 0600, so that a reader sees the old text or the new."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One command at a time in a folder: a lock on the folder itself leaves no file behind."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _with_section(text: str, name: str, value: Any) -> str:
    """`text` with the top-level section `name` holding `value`, in the place where it was or at the end."""
    import yaml

    section = yaml.safe_dump({name: value}, sort_keys=False, allow_unicode=True, default_flow_style=False)
    lines = text.splitlines(keepends=True)
    start = next((i for i, line in enumerate(lines) if re.match(rf"['\"]?{re.escape(name)}['\"]?\s*:", line)), None)
    if start is None:
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += "\n"
        return "".join([*lines, section])
    end = start + 1
    while end < len(lines) and (not lines[end].strip() or lines[end][0] in " \t-"):
        end += 1
    while not lines[end - 1].strip():
        end -= 1
    return "".join([*lines[:start], section, *lines[end:]])


def _check(path: Path, text: str, wanted: Mapping[str, Any]) -> None:
    """Written by people, a file may be of a form (all in one line, say) that replacing sections does not fit."""
    import yaml

    try:
        fits = yaml.safe_load(text) == dict(wanted)
    except yaml.YAMLError:
        fits = False
    if not fits:
        raise InvalidSettings(f"{path} cannot be changed in place: begin each of its sections on a line of its own")
