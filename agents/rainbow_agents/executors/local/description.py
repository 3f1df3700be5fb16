"""From a job to ``job.json``, which the runner reads; or why it cannot run here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rainbow_agents.executors.base import Work
from rainbow_agents.executors.local import plain


class Unfit(Exception):
    """Why a job cannot run here."""


class Describer:
    """`output_bytes` kept of each stream, `kill_after` seconds, `max_tasks` of a job, `path` of its environment."""

    def __init__(self, *, output_bytes: int, kill_after: float, max_tasks: int, path: str) -> None:
        self._output_bytes = output_bytes
        self._kill_after = kill_after
        self._max_tasks = max_tasks
        self._path = path

    def describe(self, work: Work, files: Path) -> dict[str, Any]:
        """The content of ``job.json``; `files` is the folder of what the job brings. Raises Unfit."""
        try:
            units = [plain.unit(work, u.document, files, self._path, self._max_tasks) for u in work.units]
        except ValueError as exc:
            raise Unfit(str(exc)) from None
        return {
            "mark": work.mark.as_dict(),
            "name": work.name,
            "user": work.user,
            "demand": [work.demand.nodes, work.demand.cores, work.demand.gpus],
            "units": units,
            "output_bytes": self._output_bytes,
            "kill_after": self._kill_after,
        }


def time_limit(units: Sequence[Mapping[str, Any]]) -> float | None:
    """The time limit of a job of these units, which run one after the other; None when one has none."""
    durations = [float(unit.get("duration") or 0.0) for unit in units]
    return sum(durations) if durations and all(durations) else None


__all__ = ["Describer", "Unfit", "time_limit"]
