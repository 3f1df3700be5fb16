"""What the tests of the store contract share: records, and the fixtures."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rainbow.jobspec.request import Demand
from rainbow.models.cluster import ClusterRecord
from rainbow.models.job import JobEvent
from rainbow_workers.stores.base import Assignment, Store

Make = Callable[..., Store]

#: Text that means something to shells, globs, Lua patterns, Redis and JSON.
ODD = [
    "%",
    "%d",
    "*",
    "?",
    "[a-z]",
    "'",
    '"',
    "\\",
    "a b",
    " ",
    "\n",
    "{x}",
    "ü",
    "名",
    "\x00",
    "a:b",
    "..",
    "$1",
    "-1",
]


def cluster(name: str = "red", registration: str = "r1", **fields: Any) -> ClusterRecord:
    """A cluster record."""
    return ClusterRecord(name=name, registration=registration, identity="me-and-mine", summary=b"\x00\xff", **fields)


def assignment(id: str, attempt: int = 1, to: str = "red", **fields: Any) -> Assignment:
    """An assignment of a small job."""
    given: dict[str, Any] = {
        "user": "ann",
        "name": "hello",
        "demand": Demand(1, 4, 2),
        "at": 1000.0 + attempt,
        "submitted_at": 1000.0,
        "registration": "r1",
        "answer": {"status": "assigned", "cluster": to},
    }
    return Assignment(id=id, attempt=attempt, cluster=to, **{**given, **fields})


def event(id: str, state: Any, attempt: int = 1, at: float = 2000.0, **fields: Any) -> JobEvent:
    """An event of a job."""
    return JobEvent(id=id, state=state, attempt=attempt, at=at, **fields)


def new_id() -> str:
    """A fresh job id."""
    return str(uuid.uuid4())


def until(check: Callable[[], object], limit: float = 20.0) -> None:
    """Wait for what happens by time alone; the limit only guards against a hang."""
    end = time.monotonic() + limit
    while not check():
        assert time.monotonic() < end, "still not so"
        time.sleep(0.02)


class StoreFixtures:
    """Every sentence of `rainbow_workers.stores.base` as a test."""

    @pytest.fixture
    def make(self) -> Iterator[Make]:
        raise NotImplementedError("give the fixture `make`: it opens a store")

    @pytest.fixture
    def store(self, make: Make) -> Iterator[Store]:
        store = make()
        yield store
        store.close()

    @pytest.fixture
    def red(self, store: Store) -> Store:
        """A store with the cluster `red` in it."""
        store.clusters.put(cluster(), None)
        return store
