"""Clusters on which a job would not start now, as their agents say: of which queues, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class ClosedClusters:
    """`reasons` are of jobs that name no queue: a stopped queue, an executor that is down. `queues` are those that are
    stopped or disabled, of which jobs may name one. Both by cluster."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}
        self.queues: dict[str, frozenset[str]] = {}

    def note(self, reports: Mapping[str, Mapping[str, Any]]) -> bool:
        """Take in what clusters report. Returns whether anything changed."""
        before = self.reasons, self.queues
        reasons = {**self.reasons, **{n: str(values.get("closed") or "") for n, values in reports.items()}}
        queues = {**self.queues, **{n: _queues(values) for n, values in reports.items()}}
        self.reasons = {n: reason for n, reason in reasons.items() if reason}
        self.queues = {n: names for n, names in queues.items() if names}
        return before != (self.reasons, self.queues)

    def drop(self, cluster: str) -> None:
        self.reasons.pop(cluster, None)
        self.queues.pop(cluster, None)

    def of(self, queue: str | None) -> Mapping[str, str]:
        """Why jobs that name `queue` (None: that name none) would not start now, by cluster."""
        if queue is None or not self.queues:
            return self.reasons
        # That another queue is closed is nothing to such a job.
        other = {n: why for n, why in self.reasons.items() if not _is_of(why, self.queues.get(n, ()))}
        return other | {
            n: f"queue {queue} is stopped or disabled" for n, names in self.queues.items() if queue in names
        }


def _queues(values: Mapping[str, Any]) -> frozenset[str]:
    texts = (str(values.get(key) or "") for key in ("queues_stopped", "queues_disabled"))
    return frozenset(name for text in texts for name in text.split(",") if name)


def _is_of(reason: str, queues: Iterable[str]) -> bool:
    return any(reason.startswith(f"queue {name} ") for name in queues)
