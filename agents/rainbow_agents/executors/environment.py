"""The environment that a job gets where its jobspec says nothing: minimal, and never the agent's own."""

from __future__ import annotations

import os
import pwd
from functools import cache

from rainbow_agents.executors.base import Mark

PATH = "/usr/local/bin:/usr/bin:/bin"


@cache
def _user() -> tuple[str, str]:
    """Home and name of who runs this; looked up once, since that may go over a network."""
    user = pwd.getpwuid(os.getuid())
    return user.pw_dir, user.pw_name


def minimal(mark: Mark, path: str = PATH) -> dict[str, str]:
    """`PATH`, `HOME`, `USER`, `LANG`, and which job this is."""
    home, user = _user()
    return {
        "PATH": path,
        "HOME": home,
        "USER": user,
        "LANG": "C.UTF-8",
        "RAINBOW_JOB_ID": mark.id,
        "RAINBOW_ATTEMPT": str(mark.attempt),
    }
