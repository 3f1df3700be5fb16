"""What only Fluxion has: an R with a scheduling graph."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from agentrig import Agents, shell
from fluxrig import SCHEDULER
from rig import Rig

CONFIG = """
[sched-fluxion-resource]
load-allowlist = "cluster,rack,node,core"
load-format = "jgf"
"""


def one_rack(cores: int) -> dict[str, Any]:
    """A cluster of one rack, with this host in it, as Fluxion's `ion-R` writes a graph."""
    host = socket.gethostname()
    nodes: list[dict[str, Any]] = []
    edges: list[dict[str, str]] = []

    def vertex(kind: str, name: str, number: int, rank: int, path: str, parent: str | None) -> tuple[str, str]:
        identity, path = str(len(nodes)), f"{path}/{name}"
        metadata = {"type": kind, "basename": kind, "name": name, "id": number, "uniq_id": len(nodes), "rank": rank}
        metadata |= {"exclusive": False, "unit": "", "size": 1, "paths": {"containment": path}}
        nodes.append({"id": identity, "metadata": metadata})
        if parent is not None:
            edges.append({"source": parent, "target": identity})
        return identity, path

    cluster, path = vertex("cluster", "cluster0", 0, -1, "", None)
    rack, path = vertex("rack", "rack0", 0, -1, path, cluster)
    node, path = vertex("node", host, -1, 0, path, rack)
    for number in range(cores):
        vertex("core", f"core{number}", number, 0, path, node)
    return {"graph": {"nodes": nodes, "edges": edges}}


@pytest.mark.skipif(SCHEDULER != "fluxion", reason="needs Fluxion: RAINBOW_FLUX_SCHEDULER=fluxion")
@pytest.mark.usefixtures("flux_bindings")
def test_racks_of_the_scheduling_graph_are_registered(rig: Rig, agents: Agents, own_instance: Any) -> None:
    own_instance(cores=4, config=CONFIG, scheduling=one_rack(4))
    agents.start(executor="flux", graph=None)
    totals = agents.known("blue")["totals"]
    assert (totals["rack"], totals["node"], totals["core"]) == (1, 1, 4)
    job = rig.submit(jobspec=shell("echo here", cores=4))
    assert rig.until(job["id"], "completed", 60)["output"] == "here\n"
