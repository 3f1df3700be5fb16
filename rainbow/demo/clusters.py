"""The demo's clusters: graphs and subsystems of other projects (see SOURCES.md), unchanged.

red     3 nodes of 12 cores, with an `io` subsystem (nvme, shm) on each
tiny    2 nodes of 36 cores and 2 gpus
aqua    4 nodes of 2 cores, with an `mpi` subsystem; its admin lets only user `demo` in
"""

from __future__ import annotations

import shutil
from importlib.resources import as_file, files
from pathlib import Path

from rainbow.embedded.instance import AgentPlan

#: The user that aqua lets in, and one that it does not.
MEMBER, GUEST = "demo", "guest"


def plans(folder: Path) -> list[AgentPlan]:
    """The demo's agents, with their files copied to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with as_file(files("rainbow.demo") / "data") as data:
        for name in ("red", "tiny", "aqua"):
            shutil.copyfile(data / f"{name}.json", folder / f"{name}.json")
        for cluster, subsystem in (("red", "io"), ("aqua", "mpi")):
            inside = folder / f"{cluster}-subsystems"
            inside.mkdir(exist_ok=True)
            shutil.copyfile(data / f"{cluster}-{subsystem}.json", inside / f"{subsystem}-subsystem.json")
    return [
        AgentPlan("red", folder / "red.json", folder / "red-subsystems"),
        AgentPlan("tiny", folder / "tiny.json"),
        AgentPlan("aqua", folder / "aqua.json", folder / "aqua-subsystems", {"allowed_users": [MEMBER]}),
    ]
