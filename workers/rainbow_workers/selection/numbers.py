"""The numbers of one cluster and one job that formulas know by name."""

from __future__ import annotations

from typing import Any

from rainbow_workers.selection.base import Fleet, JobView


def numbers(name: str, fleet: Fleet, job: JobView) -> dict[str, Any]:
    """The job's parameters, the state of cluster `name` as reported, its totals, and what is free less reservations."""
    load = fleet.load(name)
    return {
        **{k: v for k, v in job.parameters.items() if isinstance(v, bool | int | float | str)},
        **fleet.values(name),
        "nodes_total": load.total.nodes,
        "cores_total": load.total.cores,
        "gpus_total": load.total.gpus,
        "nodes_free": load.free.nodes,
        "cores_free": load.free.cores,
        "gpus_free": load.free.gpus,
    }
