"""A store with more jobs than one answer looks at."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from rainbow.jobspec.request import Demand
from rainbow_workers.stores.base import Assignment, Store


def fill(store: Store, count: int, named: Mapping[int, str]) -> list[str]:
    """Assign jobs of alice to the cluster blue; their ids, oldest first. `named` has the names of some of them."""
    ids: list[str] = []
    for start in range(0, count, 1000):
        batch = [_job(at, named.get(at, f"run-{at}")) for at in range(start, min(count, start + 1000))]
        store.jobs.assign(batch, 0)
        ids += [a.id for a in batch]
    return ids


def _job(at: int, name: str) -> Assignment:
    return Assignment(
        id=str(uuid.uuid4()),
        attempt=1,
        cluster="blue",
        user="alice",
        name=name,
        demand=Demand(),
        at=1000.0 + at,
        submitted_at=1000.0 + at,
        answer={},
    )
