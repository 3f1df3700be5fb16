"""The Enrollments of a MemoryStore."""

from __future__ import annotations

from rainbow.models.cluster import Enrollment
from rainbow_workers.stores.memory_data import Data


class MemoryEnrollments:
    """See `rainbow_workers.stores.base.Enrollments`."""

    def __init__(self, data: Data) -> None:
        self._data = data

    def put(self, enrollment: Enrollment) -> None:
        with self._data.lock:
            self._data.enrollments[enrollment.cluster, enrollment.mark] = enrollment

    def get(self, cluster: str, mark: str, now: float) -> Enrollment | None:
        return next((e for e in self.all(now) if (e.cluster, e.mark) == (cluster, mark)), None)

    def all(self, now: float) -> list[Enrollment]:
        with self._data.lock:
            self._data.enrollments = {k: e for k, e in self._data.enrollments.items() if e.until > now}
            return list(self._data.enrollments.values())
