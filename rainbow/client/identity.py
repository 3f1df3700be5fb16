"""The mark of the place that registers: the file `identity` in a cluster's state folder, made once.

The agent beside Flux uses the same file, so that a cluster registered by hand is its own as well.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from rainbow.errors import InvalidSettings
from rainbow.paths import make_folder


def identity(state_dir: Path) -> str:
    """The mark kept in `state_dir`, made if there is none. Raises InvalidSettings."""
    path = state_dir / "identity"
    try:
        make_folder(state_dir)
        mark = _read(path)
        return mark if mark is not None else _make(path)
    except OSError as exc:
        raise InvalidSettings(f"state folder {state_dir} cannot be used: {exc.strerror}") from None


def _read(path: Path) -> str | None:
    try:
        text = path.read_text().strip()
    except FileNotFoundError:
        return None
    return text if len(text) >= 8 else None


def _make(path: Path) -> str:
    mark = secrets.token_hex(16)
    temporary = path.with_name(f".identity.{mark}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(mark + "\n")
    try:
        os.link(temporary, path)  # an agent may start at the same moment: the first one to link its file wins
    except FileExistsError:
        return _read(path) or mark
    finally:
        temporary.unlink()
    return mark
