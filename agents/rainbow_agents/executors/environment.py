"""The environment that a job gets where its jobspec says nothing: minimal, and never the agent's own."""

from __future__ import annotations

import os
import pwd
from functools import cache

from rainbow.paths import home, user_name
from rainbow_agents.executors.base import SubmissionKey

PATH = "/usr/local/bin:/usr/bin:/bin"


@cache
def _user() -> tuple[str, str]:
    """Home and name of who runs this; looked up once, since that may go over a network."""
    try:
        user = pwd.getpwuid(os.getuid())
    except (KeyError, OSError):  # a container, or a directory service that is away
        return str(home()), user_name()
    return user.pw_dir, user.pw_name


def minimal(mark: SubmissionKey, path: str = PATH) -> dict[str, str]:
    """`PATH`, `HOME`, `USER`, `LANG`, and which job this is."""
    folder, user = _user()
    return {
        "PATH": path,
        "HOME": folder,
        "USER": user,
        "LANG": "C.UTF-8",
        "RAINBOW_JOB_ID": mark.id,
        "RAINBOW_ATTEMPT": str(mark.attempt),
    }
