"""Which resources the cluster has: from a graph file, else from Flux; and the subsystem files in a folder.

The agent folds the graph itself and registers the summary, so that a large graph never travels.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rainbow.errors import InvalidGraph, InvalidSettings, Unavailable
from rainbow.resources.graph.json_stream import Blocks
from rainbow.resources.readers.reader import read_graph
from rainbow.resources.readers.summary import Summary
from rainbow_agents.executors.base import Capacity

_SUFFIXES = (".json", ".json.gz", ".json.xz", ".yaml", ".yml")
#: Seconds for one answer of Flux.
_FLUX_TIMEOUT = 30.0


def subsystem_files(folder: Path | None) -> dict[str, Path]:
    """The graphs in `folder` by subsystem name: ``NAME-subsystem.json`` or ``NAME.json`` (also .gz, .xz, .yaml)."""
    if folder is None:
        return {}
    if not folder.is_dir():
        raise InvalidSettings(f"no folder {folder}: make it, or leave agent.subsystems out")
    found: dict[str, Path] = {}
    for file in sorted(folder.iterdir()):
        suffix = next((s for s in _SUFFIXES if file.name.endswith(s)), None)
        if suffix is None or file.name.startswith("."):
            continue
        name = file.name.removesuffix(suffix).removesuffix("-subsystem")
        if name in found:
            raise InvalidSettings(f"{found[name]} and {file} are both subsystem {name!r}: keep one")
        found[name] = file
    return found


def discover(graph: Path | None, subsystems: Path | None, known: Blocks | None = None) -> Summary:
    """The cluster, folded; a graph file that changed a little at a fraction of the cost, with what is `known` of it.

    Raises InvalidGraph, InvalidSettings, FluxUnreachable.
    """
    source: Path | Mapping[str, Any] = graph if graph is not None else flux_resources()
    if isinstance(source, Path) and not source.is_file():
        raise InvalidSettings(f"no graph file at {source}")
    return read_graph(source, subsystems=dict(subsystem_files(subsystems)), known=known)


def capacity(summary: Summary) -> Capacity:
    """The totals, for executors that count for themselves."""
    return Capacity(nodes=max(1, summary.nodes), cores=max(1, summary.cores), gpus=summary.gpus)


class FluxUnreachable(Unavailable):
    """Flux does not answer: is it installed, started, and is FLUX_URI set?"""

    code = "flux-unreachable"


def flux_resources() -> dict[str, Any]:
    """R of the Flux instance (RFC 20), from its KVS: as it was configured, drained and lost nodes included."""
    try:
        import flux.kvs

        import flux
    except ImportError:
        return _from_command()
    try:
        handle = flux.Flux()
        resources = flux.kvs.get(handle, "resource.R")
    except OSError as exc:
        raise FluxUnreachable(f"Flux does not answer ({exc}): start it, or set FLUX_URI") from None
    return _checked(resources)


def _from_command() -> dict[str, Any]:
    program = shutil.which("flux")
    if program is None:
        raise FluxUnreachable(
            "there is no graph file and no Flux here: set agent.graph (--graph) to a JGF or R file, "
            "or put flux on the PATH"
        )
    try:
        done = subprocess.run(  # noqa: S603
            [program, "kvs", "get", "resource.R"],
            capture_output=True,
            text=True,
            timeout=_FLUX_TIMEOUT,
            check=False,
            env=dict(os.environ),
        )
    except subprocess.TimeoutExpired:
        raise FluxUnreachable(f"`flux kvs get resource.R` did not answer within {_FLUX_TIMEOUT:g} s") from None
    if done.returncode != 0 and "not permitted" in done.stderr:
        raise FluxUnreachable(
            "this user may not read the resources of this Flux instance: run the agent as the user who owns it "
            "(`flux getattr security.owner` shows its uid)"
        )
    if done.returncode != 0:
        raise FluxUnreachable(f"`flux kvs get resource.R` failed: {done.stderr.strip()[:300]}")
    try:
        return _checked(json.loads(done.stdout))
    except ValueError:
        raise InvalidGraph("`flux kvs get resource.R` printed no JSON") from None


def _checked(resources: Any) -> dict[str, Any]:
    if not isinstance(resources, dict):
        raise InvalidGraph("Flux's resource.R is no mapping")
    return resources


__all__ = ["FluxUnreachable", "capacity", "discover", "flux_resources", "subsystem_files"]
