"""A cluster that comes from Flux's R, with subsystems from a folder whose edges name its nodes by host."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from agentrig import Agents
from rig import Rig, eventually


def spack(version: str) -> dict[str, Any]:
    """A compiler on this host, as compspec writes such graphs."""
    metadata = {"type": "compiler", "name": "gcc", "version": version, "size": 1}
    root = {"type": "spack", "basename": "spack", "name": "spack0", "size": 1}
    return {
        "graph": {
            "directed": True,
            "nodes": {
                "spack0": {"label": "spack0", "metadata": root},
                "spack1": {"label": "gcc", "metadata": metadata},
            },
            "edges": [
                {"source": "spack0", "target": "spack1", "relation": "contains"},
                {"source": socket.gethostname(), "target": "spack0", "relation": "contains"},
            ],
        }
    }


def wanting(version: str) -> dict[str, Any]:
    """A job for a node with a compiler of at least this version."""
    need = {"name": "spack", "field": "version", "min": version}
    return {
        "version": 1,
        "resources": {
            "built": {"type": "node", "count": 1, "requires": [need], "with": [{"type": "core", "count": 1}]}
        },
        "tasks": [{"command": ["/bin/echo", "built"], "resources": "built"}],
    }


def test_subsystems_of_flux_s_nodes(rig: Rig, agents: Agents, flux_uri: str, tmp_path: Path) -> None:
    folder = tmp_path / "subsystems"
    folder.mkdir()
    file = folder / "spack-subsystem.json"
    file.write_text(json.dumps(spack("10.2")))
    agent = agents.start(executor="flux-cli", graph=None, subsystems=folder)
    assert agents.known("blue")["subsystems"] == ["spack"]
    answer = rig.submit(jobspec=wanting("10"))
    assert rig.until(answer["id"], "completed", 60)["output"] == "built\n"
    refused = rig.submit(jobspec=wanting("12"))
    assert refused["status"] != "assigned"
    # Read again when told to (SIGHUP): a newer compiler was installed.
    file.write_text(json.dumps(spack("12.1")))
    agent.reload(agent.settings)
    assert eventually(lambda: rig.submit(jobspec=wanting("12"))["status"] == "assigned", 60, every=1.0)
