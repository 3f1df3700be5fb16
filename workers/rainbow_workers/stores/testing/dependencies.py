"""Who waits for whom."""

from __future__ import annotations

from rainbow_workers.stores.base import Dependent, Progress, Store
from rainbow_workers.stores.testing.kit import Make, StoreFixtures, event, new_id, until


class DependenciesContract(StoreFixtures):
    """Who waits for whom."""

    def test_how_far_a_job_is(self, store: Store) -> None:
        one, two, other = new_id(), new_id(), new_id()
        store.jobs.record([event(one, "held", 0, user="ann"), event(other, "held", 0, user="bob")])
        asked = [Dependent(two, "ann", [one, other, new_id()]), Dependent(new_id(), "ann", [])]
        assert store.dependencies.await_(asked) == [[Progress("held", False, False), None, None], []]
        store.jobs.record([event(one, "running", user="ann")])
        assert store.dependencies.await_(asked)[0][0] == Progress("running", True, False)
        store.jobs.record([event(one, "failed", user="ann")])
        assert store.dependencies.await_(asked)[0][0] == Progress("failed", True, True)

    def test_starts_and_ends_of_awaited_jobs_are_told(self, store: Store) -> None:
        one, two, alone = new_id(), new_id(), new_id()
        store.jobs.record([event(i, "held", 0, user="ann") for i in (one, two, alone)])
        since, nothing = store.dependencies.moved("", 0.0)
        assert nothing == []
        store.dependencies.await_([Dependent(new_id(), "ann", [one, two])])
        store.jobs.record([event(i, "running", user="ann") for i in (one, alone)])
        store.jobs.record([event(i, "completed", user="ann") for i in (one, two, alone)])
        moved: list[str] = []

        def told() -> bool:
            nonlocal since
            since, more = store.dependencies.moved(since, 0.1)
            moved.extend(more)
            return len(moved) >= 3

        until(told)
        assert moved == [one, one, two]
        store.jobs.record([event(one, "completed", user="ann")])
        assert store.dependencies.moved(since, 0.01) == (since, [])

    def test_a_job_that_ends_while_it_waits_is_told(self, store: Store) -> None:
        one, two, three = new_id(), new_id(), new_id()
        since, _ = store.dependencies.moved("", 0.0)
        store.jobs.record([event(one, "held", 0, code="dependency"), event(two, "held", 0, code="waiting")])
        store.jobs.record([event(three, "assigned", 1)])
        store.jobs.record([event(one, "cancelled", 0), event(two, "cancelled", 0), event(three, "cancelled", 1)])
        assert store.dependencies.moved(since, 5.0)[1] == [one, two]

    def test_the_end_of_an_awaited_job_stays_known_until_nobody_waits(self, make: Make) -> None:
        store = make(keep=0.2)
        one, two, three, stranger = new_id(), new_id(), new_id(), new_id()
        store.jobs.record([event(one, "held", 0, user="ann")])
        waiting = [Dependent(two, "ann", [one]), Dependent(three, "ann", [one])]
        store.dependencies.await_(waiting)
        store.jobs.record([event(one, "completed", user="ann")])
        until(lambda: store.jobs.get([one]) == [None])
        store.dependencies.forget(waiting[:1])
        assert store.dependencies.await_(waiting) == [[None], [Progress("completed", True, True)]]
        assert store.dependencies.await_([Dependent(stranger, "ann", [one])]) == [[None]]
        store.dependencies.forget([*waiting, Dependent(stranger, "ann", [one, new_id()])])
        assert store.dependencies.await_(waiting) == [[None], [None]]

    def test_thousands_of_others_in_one_call(self, store: Store) -> None:
        others = [new_id() for _ in range(1201)]
        store.jobs.record([event(i, "held", 0, user="ann") for i in others])
        asked = [Dependent(new_id(), "ann", others), Dependent(new_id(), "ann", others[:1])]
        found = store.dependencies.await_(asked)
        assert [len(f) for f in found] == [1201, 1]
        assert set(found[0]) == {Progress("held", False, False)}
        store.dependencies.forget(asked)
