"""The Dependencies of a MemoryStore."""

from __future__ import annotations

from collections.abc import Sequence

from rainbow.models.job import JobRecord
from rainbow_workers.stores.base import Dependent, Progress
from rainbow_workers.stores.memory_data import Data


class MemoryDependencies:
    """See `rainbow_workers.stores.base.Dependencies`."""

    def __init__(self, data: Data) -> None:
        self._data = data

    def await_(self, dependents: Sequence[Dependent]) -> list[list[Progress | None]]:
        with self._data.lock:
            self._data.expire()
            return [[self._await(d, other) for other in d.after] for d in dependents]

    def _await(self, dependent: Dependent, other: str) -> Progress | None:
        data = self._data
        job = data.jobs.get(other)
        record = job.record if job is not None else None
        waiting = data.awaited.get(other, set())
        if record is None:
            ended = data.ends.get(other) if dependent.id in waiting else None
            return Progress(ended, started=True, ended=True) if ended is not None else None
        if record.user != dependent.user:
            return None
        data.awaited.setdefault(other, set()).add(dependent.id)
        if record.terminal:
            data.ends[other] = record.state
        return Progress(record.state, "running" in record.times, record.terminal)

    def forget(self, dependents: Sequence[Dependent]) -> None:
        with self._data.lock:
            for dependent in dependents:
                for other in dependent.after:
                    waiting = self._data.awaited.get(other, set())
                    waiting.discard(dependent.id)
                    if not waiting:
                        self._data.awaited.pop(other, None)
                        self._data.ends.pop(other, None)

    def moved(self, since: str, timeout: float, *, arrays: bool = False) -> tuple[str, list[str]]:
        data = self._data
        moved = data.moved_arrays if arrays else data.moved
        with data.lock:
            newest = moved[-1][0] if moved else 0
            if not since:
                return str(newest), []
            data.relief.wait_for(lambda: bool(moved) and moved[-1][0] > int(since), timeout)
            found = [(number, id) for number, id in moved if number > int(since)]
        return (str(found[-1][0]) if found else since), [id for _, id in found]


def note(data: Data, old: JobRecord, new: JobRecord) -> None:
    """A record has changed: tell of it what `Dependencies.moved` promises. With the lock of `data`."""
    awaited = new.id in data.awaited
    if not (new.terminal or new.state == "running"):
        return
    if awaited and new.terminal:
        data.ends[new.id] = new.state
    if awaited or (new.terminal and old.state == "held"):
        data.moved.append((data.moved[-1][0] + 1 if data.moved else 1, new.id))
        data.relief.notify_all()
