"""The agent's state folder: made private, and errors of its disk said in one line with what to do."""

from __future__ import annotations

import errno
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rainbow.errors import InvalidSettings
from rainbow.paths import make_folder

#: What to do where locks do not work.
NO_LOCKS = (
    "its file system has no locks that work (NFS often has none), or another program keeps it open: set "
    "agent.state_dir to a folder on a local disk"
)


@contextmanager
def private_folder(folder: Path) -> Iterator[Path]:
    """Make `folder` (0700), and turn errors of what is done with it into one line.

    Raises:
        InvalidSettings: The folder cannot be used.
    """
    try:
        make_folder(folder)
        yield folder
    except OSError as exc:
        if exc.errno in (errno.ENOLCK, errno.EOPNOTSUPP):
            raise InvalidSettings(f"state folder {folder} cannot be used: {NO_LOCKS}") from None
        raise InvalidSettings(
            f"state folder {folder} cannot be used: {exc.strerror or exc}: see that it is on a writable disk that is "
            f"not full and belongs to user {os.getuid()}, or set agent.state_dir to another folder"
        ) from None


def write_private(path: Path, text: str) -> None:
    """Write `path` (0600) so that a reader sees the old text or the new, also after a power cut. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def write_once(path: Path, text: str) -> str:
    """Write `path` unless it is there, and return what it holds: of several that do this at once, the first wins."""
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        pass
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    write_private(temporary, text + "\n")
    try:
        os.link(temporary, path)
    except FileExistsError:
        return path.read_text().strip()
    finally:
        temporary.unlink()
    return text
