"""What assignments reserve, and when it is released."""

from __future__ import annotations

import pytest

from rainbow.jobspec.request import Demand
from rainbow.models.cluster import StateReport
from rainbow.models.job import TERMINAL
from rainbow_workers.stores.base import Store
from rainbow_workers.stores.testing.kit import Make, StoreFixtures, assignment, cluster, event, new_id, until


class ReservationContract(StoreFixtures):
    """What assignments reserve, and when it is released."""

    def test_reservations_add_up(self, red: Store) -> None:
        demands = [Demand(1, 2, 3), Demand(10, 0, 0), Demand(0, 0, 7), Demand(100000, 10**9, 0)]
        red.jobs.assign([assignment(new_id(), demand=d) for d in demands], 0)
        assert red.clusters.changes(0).reserved == {"red": Demand(100011, 10**9 + 2, 10)}

    def test_another_scheduler_sees_them(self, make: Make, red: Store) -> None:
        other = make()
        version = other.clusters.changes(0).version
        red.jobs.assign([assignment(new_id())], 0)
        seen = other.jobs.assign([assignment(new_id())], version)
        assert seen.changes.reserved == {"red": Demand(2, 8, 4)}
        other.close()

    def test_they_end_when_reported(self, red: Store) -> None:
        first, second = new_id(), new_id()
        version = red.jobs.assign([assignment(first), assignment(second)], 0).changes.version
        report = StateReport(cluster="red", included=[(first, 1), (second, 9), (new_id(), 1)])
        for _ in range(2):
            red.clusters.report([report], 1.0)
            assert red.clusters.changes(version).reserved == {"red": Demand(1, 4, 2)}

    def test_another_clusters_report_does_not_end_them(self, red: Store) -> None:
        red.clusters.put(cluster("blue"), None)
        id = new_id()
        red.jobs.assign([assignment(id)], 0)
        red.clusters.report([StateReport(cluster="blue", included=[(id, 1)])], 1.0)
        assert red.clusters.changes(0).reserved["red"] == Demand(1, 4, 2)

    @pytest.mark.parametrize("state", ["rejected", *sorted(TERMINAL)])
    def test_they_end_with_the_attempt(self, red: Store, state: str) -> None:
        id, other = new_id(), new_id()
        red.jobs.assign([assignment(id), assignment(other)], 0)
        for _ in range(2):
            red.jobs.record([event(id, state)])
            assert red.clusters.changes(0).reserved == {"red": Demand(1, 4, 2)}

    @pytest.mark.parametrize("state", ["submitted", "held", "assigned", "accepted", "running"])
    def test_they_stay_while_the_attempt_does(self, red: Store, state: str) -> None:
        id = new_id()
        red.jobs.assign([assignment(id)], 0)
        red.jobs.record([event(id, state, cluster="red")])
        assert red.clusters.changes(0).reserved == {"red": Demand(1, 4, 2)}

    def test_a_stale_end_leaves_the_newer_reservation(self, red: Store) -> None:
        red.clusters.put(cluster("blue"), None)
        id = new_id()
        red.jobs.assign([assignment(id)], 0)
        red.jobs.assign([assignment(id, attempt=2, to="blue")], 0)
        red.jobs.record([event(id, "rejected", attempt=1, cluster="red")])
        assert red.clusters.changes(0).reserved == {"red": Demand(), "blue": Demand(1, 4, 2)}

    def test_they_run_out_by_themselves(self, make: Make, red: Store) -> None:
        ids = [new_id() for _ in range(3)]
        kept = red.jobs.assign(
            [assignment(new_id(), reserve_s=600.0), *(assignment(id, reserve_s=0.3) for id in ids)], 0
        ).changes
        assert kept.reserved == {"red": Demand(4, 16, 8)}
        reader = make()
        until(lambda: reader.clusters.changes(kept.version).reserved == {"red": Demand(1, 4, 2)})
        red.jobs.record([event(ids[0], "completed")])
        assert red.clusters.changes(0).reserved == {"red": Demand(1, 4, 2)}
        reader.close()

    def test_many_run_out(self, red: Store) -> None:
        for _ in range(7):
            red.jobs.assign([assignment(new_id(), reserve_s=0.2) for _ in range(200)], 0)
        until(lambda: red.clusters.changes(0).reserved == {"red": Demand()})

    def test_nothing_is_reserved_on_a_cluster_that_is_gone(self, red: Store) -> None:
        red.clusters.delete("red")
        done = red.jobs.assign([assignment(new_id())], 0)
        assert done.outcomes == [None]
        assert done.changes.reserved == {}
        red.clusters.put(cluster(), None)
        assert red.clusters.changes(0).reserved == {"red": Demand()}
