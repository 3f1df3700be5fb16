"""Folders of the user who runs this process, and the user's name.

A process may run with a uid that has no passwd entry (containers, an LDAP outage) or without `HOME`: `~` is then `/`,
and the name is ``uid-1234``. Folders follow the XDG Base Directory Specification.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import pwd
from collections.abc import Mapping
from pathlib import Path

from rainbow.errors import InvalidSettings


def home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return `HOME`, else the home of the passwd entry, else ``/``."""
    named = environ.get("HOME")
    if named and os.path.isabs(named):
        return Path(named)
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir or "/")
    except (KeyError, OSError):
        return Path("/")


def expand(path: str | Path) -> Path:
    """Return `path` with a leading ``~`` or ``~user`` replaced. An unknown user stays as written."""
    text = os.fspath(path)
    if text == "~" or text.startswith("~/"):
        return home() / text[2:]
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def user_name() -> str:
    """Return the login name (`LOGNAME`, `USER`, else the passwd entry), or ``uid-1234`` where there is none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return f"uid-{os.getuid()}"


def config_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for settings of all programs: `XDG_CONFIG_HOME`, else ``~/.config``."""
    return _xdg(environ, "XDG_CONFIG_HOME", ".config")


def data_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for data: `XDG_DATA_HOME`, else ``~/.local/share``."""
    return _xdg(environ, "XDG_DATA_HOME", ".local/share")


def state_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for state: `XDG_STATE_HOME`, else ``~/.local/state``."""
    return _xdg(environ, "XDG_STATE_HOME", ".local/state")


def make_folder(folder: Path) -> None:
    """Make `folder` and what is missing above it, for its owner alone whatever the umask; what is there stays."""
    if folder.is_dir():
        return
    if folder != folder.parent:
        make_folder(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)


def private_folder(folder: Path) -> None:
    """Make `folder` as `make_folder` does, and see that nobody else may write into it.

    Raises:
        InvalidSettings: others may.
    """
    make_folder(folder)
    status = folder.stat()
    if status.st_mode & 0o022 or status.st_uid not in (os.getuid(), 0):
        raise InvalidSettings(
            f"others may write into {folder}, and so take what is run from it: `chmod go-w {folder}`, or choose "
            "another folder"
        )


def check_socket(url: str) -> None:
    """Refuse the URL of a Unix socket in a folder that another user made in a place open to all, such as ``/tmp``.

    A server behind such a socket could be that user's, and would be given tokens.

    Raises:
        InvalidSettings: the folder belongs to another user.
    """
    scheme, _, rest = url.partition("://")
    if scheme.rpartition("+")[2] not in ("unix", "socket"):
        return
    folder = Path(rest.partition("?")[0]).parent
    try:
        above, status = folder.parent.stat(), folder.lstat()
    except OSError:  # there is no server: connecting says so
        return
    if above.st_mode & 0o002 and status.st_uid not in (os.getuid(), 0):
        raise InvalidSettings(f"{folder} belongs to another user, who made it in a place open to all: choose another")


def _xdg(environ: Mapping[str, str], name: str, default: str) -> Path:
    # The specification says that a relative path is to be ignored.
    named = environ.get(name)
    return Path(named) if named and os.path.isabs(named) else home(environ) / default
