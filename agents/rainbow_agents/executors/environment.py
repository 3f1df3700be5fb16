"""The environment that a job gets where its jobspec says nothing: minimal, and never the agent's own."""

from __future__ import annotations

import os
import pwd

from rainbow_agents.executors.base import Mark

PATH = "/usr/local/bin:/usr/bin:/bin"


def minimal(mark: Mark, path: str = PATH) -> dict[str, str]:
    """`PATH`, `HOME`, `USER`, `LANG`, and which job this is."""
    user = pwd.getpwuid(os.getuid())
    return {
        "PATH": path,
        "HOME": user.pw_dir,
        "USER": user.pw_name,
        "LANG": "C.UTF-8",
        "RAINBOW_JOB_ID": mark.id,
        "RAINBOW_ATTEMPT": str(mark.attempt),
    }
