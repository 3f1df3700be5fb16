"""Assignments, in one step and in two, and the answers kept with them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rainbow.jobspec.request import Demand
from rainbow.models.cluster import StateReport
from rainbow.models.job import RANK, JobRecord
from rainbow_workers.stores.base import Changes, Store
from rainbow_workers.stores.testing.kit import Make, StoreFixtures, assignment, cluster, event, new_id, until


class AssigningContract(StoreFixtures):
    """Assignments, in one step and in two, and the answers kept with them."""

    def test_an_unknown_job_is_assigned(self, red: Store) -> None:
        id = new_id()
        version = red.clusters.changes(0).version
        done = red.jobs.assign([assignment(id)], version)
        assert list(done.outcomes) == [None]
        assert done.repeated == frozenset()
        assert done.changes.reserved == {"red": Demand(1, 4, 2)}
        assert done.changes.clusters == {}
        assert red.clusters.changes(done.changes.version) == Changes(done.changes.version)
        assert red.jobs.get([id]) == [
            JobRecord(
                id=id,
                state="assigned",
                attempt=1,
                cluster="red",
                user="ann",
                name="hello",
                answer={"status": "assigned", "cluster": "red"},
                times={"submitted": 1000.0, "assigned": 1001.0},
                history=[{"state": "assigned", "attempt": 1, "at": 1001.0, "cluster": "red"}],
            )
        ]

    def test_changes_come_with_the_assignment(self, red: Store) -> None:
        version = red.clusters.changes(0).version
        red.clusters.put(cluster("blue"), None)
        done = red.jobs.assign([assignment(new_id())], version)
        assert list(done.changes.clusters) == ["blue"]
        assert red.jobs.assign([], 0).changes.clusters.keys() == {"red", "blue"}

    def test_the_totals_of_the_batch_come_in_any_case(self, red: Store) -> None:
        id = new_id()
        version = red.jobs.assign([assignment(id)], 0).changes.version
        done = red.jobs.assign([assignment(id, to="red", attempt=7)], version)
        assert done.outcomes[0] is not None
        assert done.changes.reserved == {"red": Demand(1, 4, 2)}
        assert done.changes.version == version

    def test_the_same_assignment_again_holds_and_is_repeated(self, red: Store) -> None:
        a = assignment(new_id())
        red.jobs.assign([a], 0)
        again = red.jobs.assign([a, assignment(new_id())], 0)
        assert list(again.outcomes) == [None, None]
        assert again.repeated == frozenset({0})
        assert again.changes.reserved == {"red": Demand(2, 8, 4)}
        record = red.jobs.get([a.id])[0]
        assert record is not None
        assert len(record.history) == 1

    def test_twice_in_one_batch(self, red: Store) -> None:
        red.clusters.put(cluster("blue"), None)
        id = new_id()
        done = red.jobs.assign([assignment(id), assignment(id), assignment(id, to="blue")], 0)
        assert list(done.outcomes[:2]) == [None, None]
        assert done.repeated == frozenset({1})
        assert done.outcomes[2] is not None
        assert done.changes.reserved == {"red": Demand(1, 4, 2), "blue": Demand()}

    def test_another_cluster_for_the_same_attempt_is_in_the_way(self, red: Store) -> None:
        id = new_id()
        red.jobs.assign([assignment(id)], 0)
        done = red.jobs.assign([assignment(id, to="blue")], 0)
        record = done.outcomes[0]
        assert record is not None
        assert (record.cluster, record.attempt, record.state, record.history) == ("red", 1, "assigned", [])
        assert record.answer == {"status": "assigned", "cluster": "red"}

    @pytest.mark.parametrize("state", ["submitted", "held", "rejected", "assigned"])
    def test_the_next_attempt_holds(self, red: Store, state: str) -> None:
        id = new_id()
        red.jobs.record([event(id, state, attempt=3, cluster="old", code="busy", flux_id="f")])
        assert red.jobs.assign([assignment(id, attempt=4)], 0).outcomes == [None]
        record = red.jobs.get([id])[0]
        assert record is not None
        assert (record.state, record.attempt, record.cluster) == ("assigned", 4, "red")
        assert (record.code, record.flux_id) == (None, None)

    @pytest.mark.parametrize("state", sorted(RANK.keys() - {"submitted", "held", "rejected", "assigned"}))
    def test_no_attempt_for_a_job_that_started_or_ended(self, red: Store, state: str) -> None:
        id = new_id()
        red.jobs.record([event(id, state, attempt=1, cluster="red", answer={"k": 1})])
        for attempt in (1, 2):
            record = red.jobs.assign([assignment(id, attempt=attempt)], 0).outcomes[0]
            assert record is not None
            assert (record.state, record.attempt, record.answer) == (state, 1, {"k": 1})
        assert red.clusters.changes(0).reserved == {"red": Demand()}

    @pytest.mark.parametrize("attempt", [1, 2, 4, 9])
    def test_only_the_next_attempt(self, red: Store, attempt: int) -> None:
        id = new_id()
        red.jobs.record([event(id, "rejected", attempt=2, cluster="red")])
        assert red.jobs.assign([assignment(id, attempt=attempt)], 0).outcomes[0] is not None

    def test_attempt_may_be_any_for_an_unknown_job(self, red: Store) -> None:
        assert red.jobs.assign([assignment(new_id(), attempt=5)], 0).outcomes == [None]

    def test_the_next_attempt_ends_the_reservation_of_the_last(self, red: Store) -> None:
        red.clusters.put(cluster("blue"), None)
        id = new_id()
        red.jobs.assign([assignment(id)], 0)
        done = red.jobs.assign([assignment(id, attempt=2, to="blue")], 0)
        assert done.changes.reserved == {"red": Demand(), "blue": Demand(1, 4, 2)}

    def test_first_times_stay(self, red: Store) -> None:
        id = new_id()
        red.jobs.record([event(id, "submitted", attempt=0, at=1.5)])
        red.jobs.assign([assignment(id, submitted_at=3.0, at=4.0)], 0)
        red.jobs.record([event(id, "rejected", at=5.0, cluster="red")])
        red.jobs.assign([assignment(id, attempt=2, submitted_at=3.0, at=6.0)], 0)
        record = red.jobs.get([id])[0]
        assert record is not None
        assert record.times == {"submitted": 1.5, "assigned": 4.0, "rejected": 5.0}

    def test_of_eight_schedulers_one_assigns(self, make: Make, red: Store) -> None:
        names = [f"c{i}" for i in range(8)]
        for name in names:
            red.clusters.put(cluster(name), None)
        ids = [new_id() for _ in range(20)]
        stores = [make() for _ in names]

        def assign(i: int) -> list[int]:
            outcomes = stores[i].jobs.assign([assignment(id, to=names[i]) for id in ids], 0).outcomes
            return [n for n, outcome in enumerate(outcomes) if outcome is None]

        with ThreadPoolExecutor(8) as threads:
            held = [n for won in threads.map(assign, range(8)) for n in won]
        assert sorted(held) == list(range(20))
        reserved = red.clusters.changes(0).reserved.values()
        assert sum(d.nodes for d in reserved) == 20
        for store in stores:
            store.close()

    def test_two_steps_come_to_the_same_as_one(self, red: Store) -> None:
        ids = [new_id(), new_id()]
        first = red.jobs.assigning([assignment(ids[0])], 0, {})
        second = red.jobs.assigning([assignment(ids[0], to="blue"), assignment(ids[1])], 0, {})
        assert list(first.wait().outcomes) == [None]
        done = second.wait()
        assert done.outcomes[0] is not None
        assert done.outcomes[0].cluster == "red"
        assert done.outcomes[1] is None
        assert done.changes.reserved == {"red": Demand(2, 8, 4)}

    def test_a_dropped_step_may_have_been_taken(self, red: Store) -> None:
        a = assignment(new_id())
        red.jobs.assigning([a], 0, {}).drop()
        assert list(red.jobs.assigning([a], 0, {}).wait().outcomes) == [None]
        assert red.clusters.changes(0).reserved == {"red": Demand(1, 4, 2)}

    @pytest.mark.parametrize(
        ("free", "total", "fits"),
        [
            ({"nodes_free": 3, "cores_free": 12, "gpus_free": 6}, Demand(), True),
            ({"nodes_free": 2, "cores_free": 12, "gpus_free": 6}, Demand(9, 99, 99), False),
            ({"nodes_free": 3, "cores_free": 11.5, "gpus_free": 6}, Demand(9, 99, 99), False),
            ({"nodes_free": 3, "cores_free": 12}, Demand(0, 0, 6), True),
            ({"nodes_free": 3, "cores_free": 12, "gpus_free": True}, Demand(0, 0, 5), False),
            ({}, Demand(3, 12, 6), True),
            ({}, Demand(3, 12, 5), False),
        ],
    )
    def test_who_is_overtaken_is_told_and_nothing_is_done(
        self, red: Store, free: dict[str, Any], total: Demand, fits: bool
    ) -> None:
        red.clusters.report([StateReport(cluster="red", values=free)], 1.0)
        version = red.jobs.assign([assignment(new_id())], 0).changes.version
        batch = [assignment(new_id()), assignment(new_id())]
        done = red.jobs.assigning(batch, version - 1, {"red": total}).wait()
        assert done.crowded is not fits
        assert list(done.outcomes) == ([None, None] if fits else [])
        assert done.changes.reserved == {"red": Demand(3, 12, 6) if fits else Demand(1, 4, 2)}
        assert (red.jobs.get([batch[0].id])[0] is None) is not fits
        # An assignment without `room` is not checked for it.
        assert list(red.jobs.assigning(batch, 0, {}).wait().outcomes) == [None, None]

    def test_room_counts_what_has_run_out(self, red: Store) -> None:
        red.jobs.assign([assignment(new_id(), reserve_s=0.05)], 0)
        time.sleep(0.1)
        done = red.jobs.assigning([assignment(new_id())], 0, {"red": Demand(1, 4, 2)}).wait()
        assert not done.crowded
        assert done.changes.reserved == {"red": Demand(1, 4, 2)}

    def test_room_that_is_not_asked_for_is_not_needed(self, red: Store) -> None:
        red.clusters.report([StateReport(cluster="red", values={"gpus_free": -3})], 1.0)
        a = assignment(new_id(), demand=Demand(1, 1, 0))
        assert not red.jobs.assigning([a], 0, {"red": Demand(1, 1, 0)}).wait().crowded

    def test_an_answer_is_whole_again(self, red: Store) -> None:
        looked = {"clusters": ["red"], "reasons": {"blue": {"code": "cores", "detail": None}}}
        batch = [assignment(new_id(), answer={"n": n}, looked=looked) for n in range(3)]
        red.jobs.assign(batch, 0)
        for n, found in enumerate(red.jobs.get([a.id for a in batch])):
            assert found is not None
            assert found.answer == {"n": n, **looked}
        standing = red.jobs.assign([assignment(batch[1].id, to="blue")], 0).outcomes[0]
        assert standing is not None
        assert standing.answer == {"n": 1, **looked}

    def test_the_answer_of_the_next_attempt_replaces_it(self, red: Store) -> None:
        id = new_id()
        red.jobs.assign([assignment(id, answer={"n": 1}, looked={"a": 1})], 0)
        red.jobs.assign([assignment(id, attempt=2, answer={"n": 2}, looked={"b": 2})], 0)
        found = red.jobs.get([id])[0]
        assert found is not None
        assert found.answer == {"n": 2, "b": 2}
        red.jobs.record([event(id, "unsatisfiable", attempt=2, answer={"n": 3})])
        found = red.jobs.get([id])[0]
        assert found is not None
        assert found.answer == {"n": 3}

    def test_it_stays_while_anybody_has_it(self, make: Make, red: Store) -> None:
        brief = make(keep=0.05)
        ids = [new_id(), new_id()]
        red.jobs.assign([assignment(id, answer={}, looked={"a": 1}) for id in ids], 0)
        brief.jobs.record([event(ids[0], "completed")])
        until(lambda: red.jobs.get([ids[0]]) == [None])
        found = red.jobs.get([ids[1]])[0]
        assert found is not None
        assert found.answer == {"a": 1}
