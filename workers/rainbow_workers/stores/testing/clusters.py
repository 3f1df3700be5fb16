"""Cluster records: registration, deletion and what changed."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rainbow.errors import Conflict
from rainbow.jobspec.request import Demand
from rainbow.models.cluster import ClusterState, Revocation, StateReport
from rainbow_workers.stores.base import Changes, Store
from rainbow_workers.stores.testing.kit import Make, StoreFixtures, assignment, cluster, event, new_id


class ClusterContract(StoreFixtures):
    """Cluster records: registration, deletion and what changed."""

    def test_an_empty_store_has_nothing(self, store: Store) -> None:
        changes = store.clusters.changes(0)
        assert changes.version > 0
        assert (changes.clusters, changes.states, changes.reserved) == ({}, {}, {})
        assert (changes.groups, list(changes.revocations or ())) == ({}, [])
        assert not changes.reset

    def test_a_record_comes_back_as_it_was_put(self, store: Store) -> None:
        record = cluster(
            "red", "r1", digest="d", matcher="fluxion", drained="for repair", registered_at=1.25, owner="bob"
        )
        store.clusters.put(record, None)
        assert store.clusters.changes(0).clusters == {"red": record}

    def test_a_new_cluster_has_an_empty_state_and_nothing_reserved(self, red: Store) -> None:
        changes = red.clusters.changes(0)
        assert changes.states == {"red": ClusterState()}
        assert changes.reserved == {"red": Demand()}

    def test_a_large_summary_with_every_byte(self, store: Store) -> None:
        summary = bytes(range(256)) * 4000
        store.clusters.put(cluster().model_copy(update={"summary": summary}), None)
        record = store.clusters.changes(0).clusters["red"]
        assert record is not None
        assert record.summary == summary

    def test_put_of_a_cluster_that_exists_is_a_conflict(self, red: Store) -> None:
        with pytest.raises(Conflict, match="red"):
            red.clusters.put(cluster(registration="r2"), None)
        assert red.clusters.changes(0).clusters == {"red": cluster()}

    def test_put_needs_the_registration_that_is_there(self, red: Store) -> None:
        with pytest.raises(Conflict):
            red.clusters.put(cluster(registration="r3"), "r2")
        red.clusters.put(cluster(registration="r3"), "r1")
        assert red.clusters.changes(0).clusters == {"red": cluster(registration="r3")}

    def test_put_with_an_expectation_needs_the_cluster(self, store: Store) -> None:
        with pytest.raises(Conflict):
            store.clusters.put(cluster(), "r1")
        assert store.clusters.changes(0).clusters == {}

    @pytest.mark.parametrize("expect", [None, "r1", "r0"])
    def test_the_same_record_again_is_fine(self, red: Store, expect: str | None) -> None:
        version = red.clusters.changes(0).version
        red.clusters.put(cluster(), expect)
        assert red.clusters.changes(version) == Changes(version)

    def test_changing_a_record_keeps_state_and_reservations(self, red: Store) -> None:
        red.clusters.report([StateReport(cluster="red", values={"nodes_free": 3})], 5.0)
        version = red.jobs.assign([assignment(new_id())], 0).changes.version
        red.clusters.put(cluster(drained="repair"), "r1")
        changes = red.clusters.changes(version)
        assert (list(changes.clusters), changes.states, changes.reserved) == (["red"], {}, {})
        assert red.clusters.changes(0).states["red"].values == {"nodes_free": 3}
        assert red.clusters.changes(0).reserved["red"] == Demand(1, 4, 2)

    def test_of_eight_who_register_at_once_one_wins(self, make: Make) -> None:
        for turn in range(10):
            stores = [make() for _ in range(8)]
            barrier = threading.Barrier(8)

            def register(i: int, stores: list[Store] = stores, barrier: Any = barrier, turn: int = turn) -> bool:
                barrier.wait()
                try:
                    stores[i].clusters.put(cluster(f"c{turn}", f"r{i}"), None)
                except Conflict:
                    return False
                return True

            with ThreadPoolExecutor(8) as threads:
                won = list(threads.map(register, range(8)))
            assert won.count(True) == 1
            record = stores[0].clusters.changes(0).clusters[f"c{turn}"]
            assert record is not None
            assert record.registration == f"r{won.index(True)}"
            for store in stores:
                store.close()

    def test_delete_forgets_record_state_reservations_and_memberships(self, red: Store) -> None:
        red.clusters.put(cluster("blue"), None)
        red.clusters.set_group("@both", frozenset({"red", "blue"}))
        red.clusters.set_group("@one", frozenset({"red"}))
        red.clusters.report([StateReport(cluster="red", values={"x": 1})], 1.0)
        red.jobs.assign([assignment(new_id())], 0)
        version = red.clusters.changes(0).version
        red.clusters.delete("red")
        changes = red.clusters.changes(version)
        assert (changes.clusters, changes.states, changes.reserved) == ({"red": None}, {}, {})
        assert changes.groups == {"@both": frozenset({"blue"})}
        everything = red.clusters.changes(0)
        assert list(everything.clusters) == ["blue"]
        assert list(everything.states) == ["blue"]
        assert list(everything.reserved) == ["blue"]

    def test_deleting_what_is_not_there_changes_nothing(self, red: Store) -> None:
        version = red.clusters.changes(0).version
        red.clusters.delete("blue")
        assert red.clusters.changes(version) == Changes(version)

    def test_deleting_twice_is_fine(self, red: Store) -> None:
        red.clusters.delete("red")
        red.clusters.delete("red")
        assert red.clusters.changes(0).clusters == {}

    def test_a_cluster_registered_again_starts_afresh(self, red: Store) -> None:
        red.clusters.report([StateReport(cluster="red", values={"x": 1})], 1.0)
        red.jobs.assign([assignment(new_id())], 0)
        version = red.clusters.changes(0).version
        red.clusters.delete("red")
        red.clusters.put(cluster(registration="r2"), None)
        changes = red.clusters.changes(version)
        assert changes.clusters == {"red": cluster(registration="r2")}
        assert changes.states == {"red": ClusterState()}
        assert changes.reserved == {"red": Demand()}

    def test_delete_leaves_job_records(self, red: Store) -> None:
        id = new_id()
        red.jobs.assign([assignment(id)], 0)
        red.clusters.delete("red")
        assert red.jobs.get([id])[0] is not None
        assert [r.id for r in red.jobs.find(state=None, cluster="red", user=None, limit=9)] == [id]
        red.jobs.record([event(id, "completed")])
        assert red.clusters.changes(0).reserved == {}

    def test_nothing_new_is_nothing(self, red: Store) -> None:
        version = red.clusters.changes(0).version
        assert red.clusters.changes(version) == Changes(version)

    def test_only_what_changed_comes(self, red: Store) -> None:
        red.clusters.put(cluster("blue"), None)
        version = red.clusters.changes(0).version
        red.clusters.report([StateReport(cluster="blue", values={"x": 1})], 1.0)
        changes = red.clusters.changes(version)
        assert changes.version > version
        assert (changes.clusters, changes.reserved, changes.groups, changes.revocations) == ({}, {}, None, None)
        assert list(changes.states) == ["blue"]

    def test_versions_rise_with_every_write(self, red: Store) -> None:
        versions = [red.clusters.changes(0).version]
        for write in (
            lambda: red.clusters.put(cluster("blue"), None),
            lambda: red.clusters.report([StateReport(cluster="red")], 1.0),
            lambda: red.clusters.set_group("@all", frozenset({"red"})),
            lambda: red.clusters.revoke(Revocation(kind="sub", value="x", before=1.0, until=time.time() + 60)),
            lambda: red.jobs.assign([assignment(new_id())], 0),
            lambda: red.clusters.delete("red"),
        ):
            write()
            versions.append(red.clusters.changes(0).version)
        assert versions == sorted(set(versions))

    def test_a_version_the_store_never_gave_means_reset(self, red: Store) -> None:
        red.clusters.set_group("@all", frozenset({"red"}))
        epoch = red.clusters.changes(0).epoch
        assert not epoch.lost
        assert red.clusters.changes(0).epoch.number == epoch.number > 0
        since = red.clusters.changes(0).version + 10_000_000_000
        changes = red.clusters.changes(since)
        assert changes.reset
        assert changes.version > since
        assert changes.epoch.lost
        assert changes.epoch.number > epoch.number
        assert abs(changes.epoch.at - time.time()) < 60.0
        assert changes.clusters == {"red": cluster()}
        assert list(changes.states) == ["red"]
        assert list(changes.reserved) == ["red"]
        assert changes.groups == {"@all": frozenset({"red"})}
        assert list(changes.revocations or ()) == []
        assert red.clusters.changes(changes.version) == Changes(changes.version)

    def test_a_version_from_before_the_store_means_reset(self, red: Store) -> None:
        assert red.clusters.changes(1).reset
        assert list(red.clusters.changes(1).clusters) == ["red"]

    def test_every_store_object_sees_the_same(self, make: Make, red: Store) -> None:
        other = make()
        assert other.clusters.changes(0).clusters == {"red": cluster()}
        version = other.clusters.changes(0).version
        red.clusters.delete("red")
        assert other.clusters.changes(version).clusters == {"red": None}
        other.close()
