"""What the events of agents say of all jobs together, counted for the metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import get_args

from rainbow.models.job import TERMINAL, JobEvent, RejectCode
from rainbow_workers.stores.base import Recorded

#: Upper bounds, in seconds, of how long jobs wait for their start; one more bucket has no bound.
BOUNDS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
_CODES = frozenset(get_args(RejectCode))


class Seen:
    """Counts since the start. One recorder writes them; reading needs no lock.

    Attributes:
        refusals: Dispatches that agents refused, by code.
        ends: Jobs that ended on clusters, by state.
        accepted: Dispatches that agents accepted, by attempt: 1, 2, or 3 and more.
        waits: How many jobs started on each cluster, and for how many seconds they had waited in all.
        buckets: Jobs that started, by how long they had waited (see BOUNDS).
    """

    def __init__(self) -> None:
        self.refusals: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        self.accepted: Counter[str] = Counter()
        self.waits: dict[str, tuple[int, float]] = {}
        self.buckets = [0] * (len(BOUNDS) + 1)

    def note(
        self, events: Sequence[JobEvent], recorded: Sequence[Recorded], submitted: Mapping[tuple[str, int], float]
    ) -> None:
        """Count the events that changed something; `submitted` is when jobs were, by id and attempt."""
        for event, result in zip(events, recorded, strict=True):
            if not result.applied:
                continue
            if event.state == "rejected":
                self.refusals[event.code if event.code is not None and event.code in _CODES else "other"] += 1
            elif event.state == "accepted":
                self.accepted[str(event.attempt) if event.attempt < 3 else "3+"] += 1
            elif event.state in TERMINAL and event.cluster is not None:
                self.ends[event.state] += 1
            at = submitted.get((event.id, event.attempt)) if event.state == "running" else None
            if at is not None and event.cluster is not None:
                waited = max(0.0, event.at - at)
                count, total = self.waits.get(event.cluster, (0, 0.0))
                self.waits[event.cluster] = count + 1, total + waited
                self.buckets[bisect_left(BOUNDS, waited)] += 1
