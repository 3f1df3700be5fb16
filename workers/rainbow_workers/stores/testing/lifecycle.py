"""Enrollments, and the store as a whole: closing and warnings."""

from __future__ import annotations

from rainbow.models.cluster import Enrollment
from rainbow_workers.stores.base import Store
from rainbow_workers.stores.testing.kit import Make, StoreFixtures, cluster


class LifecycleContract(StoreFixtures):
    """Enrollments, and the store as a whole: closing and warnings."""

    def test_an_enrollment_comes_back(self, store: Store) -> None:
        one = Enrollment(code="AB-12", cluster="red", mark="m%", place="login1", asked_at=1.0, until=100.0)
        store.enrollments.put(one)
        assert store.enrollments.get("red", "m%", 50.0) == one
        assert store.enrollments.get("red", "other", 50.0) is None
        assert store.enrollments.get("blue", "m%", 50.0) is None
        approved = one.model_copy(update={"status": "approved", "decided_at": 2.0, "by": "admin"})
        store.enrollments.put(approved)
        assert store.enrollments.all(50.0) == [approved]

    def test_enrollments_run_out(self, store: Store) -> None:
        for mark, end in (("a", 100.0), ("b", 200.0)):
            store.enrollments.put(Enrollment(code=mark, cluster="red", mark=mark, asked_at=1.0, until=end))
        assert sorted(e.mark for e in store.enrollments.all(99.0)) == ["a", "b"]
        assert store.enrollments.get("red", "a", 100.0) is None
        assert [e.mark for e in store.enrollments.all(100.0)] == ["b"]

    def test_data_stays_when_a_store_is_closed(self, make: Make) -> None:
        first = make()
        first.clusters.put(cluster(), None)
        first.close()
        first.close()
        second = make()
        assert list(second.clusters.changes(0).clusters) == ["red"]
        second.close()

    def test_warnings_are_lines(self, store: Store) -> None:
        assert all(isinstance(line, str) and line and "\n" not in line for line in store.warnings())
