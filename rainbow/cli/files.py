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

Change = Callable[[dict[str, Any]], Mapping[str, Any]]


def in_force(config: Path | None) -> Path:
    """The settings file that a command saves into: the one in force, else a new one here."""
    from rainbow.settings import FILE_NAME, find

    return (find(config) or Path(FILE_NAME)).resolve()


def change(path: Path, change: Change) -> Path:
    """Give `change` the sections of the file, and write those it returns (mode 0600). Returns the path.

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
        whole = {**old, **new}
        if not _holds(text, whole):
            # Of a form (JSON, say) in which sections cannot be replaced one by one; there are no comments to lose.
            text = _section(whole)
        write_private(path, text)
    return path


def write_picture(path: Path, text: str) -> None:
    """Write a file that a command was told to make. Raises InvalidInput where it cannot."""
    from rainbow.errors import InvalidInput

    try:
        path.write_text(text, encoding="utf-8")
    except OSError as exc:
        raise InvalidInput(f"{path} cannot be written: {exc.strerror or exc}") from None


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
    section = _section({name: value})
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


def _section(value: Mapping[str, Any]) -> str:
    import yaml

    text: str = yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True, default_flow_style=False)
    return text


def _holds(text: str, wanted: Mapping[str, Any]) -> bool:
    import yaml

    try:
        return bool(yaml.safe_load(text) == wanted)
    except yaml.YAMLError:
        return False
