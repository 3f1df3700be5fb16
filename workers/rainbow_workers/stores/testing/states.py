"""Cluster states, groups and revocations."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from rainbow.models.cluster import ClusterState, Revocation, StateReport
from rainbow_workers.stores.base import Changes, Store
from rainbow_workers.stores.testing.kit import ODD, Make, StoreFixtures, assignment, cluster, new_id, until


class StateContract(StoreFixtures):
    """Cluster states, groups and revocations."""

    def test_values_are_merged(self, red: Store) -> None:
        red.clusters.report([StateReport(cluster="red", values={"a": 1, "b": 2})], 1.0)
        red.clusters.report([StateReport(cluster="red", values={"b": 3, "c": "x"})], 2.0)
        state = red.clusters.changes(0).states["red"]
        assert state.values == {"a": 1, "b": 3, "c": "x"}
        assert state.at == 2.0

    def test_values_keep_their_type(self, red: Store) -> None:
        values = {"t": True, "f": False, "i": -3, "big": 2**62, "x": 0.1, "one": 1.0, "s": "1", "e": "", "true": "true"}
        red.clusters.report([StateReport(cluster="red", values=values)], 1.0)
        got = red.clusters.changes(0).states["red"].values
        assert got == values
        assert {k: type(v) for k, v in got.items()} == {k: type(v) for k, v in values.items()}

    @pytest.mark.parametrize("odd", ODD)
    def test_odd_names_of_values(self, red: Store, odd: str) -> None:
        red.clusters.report([StateReport(cluster="red", values={odd: odd, "at": 5, "beat": 6})], 1.0)
        assert red.clusters.changes(0).states["red"].values == {odd: odd, "at": 5, "beat": 6}

    def test_several_reports_at_once_in_order(self, red: Store) -> None:
        red.clusters.put(cluster("blue"), None)
        red.clusters.report(
            [
                StateReport(cluster="red", values={"x": 1}),
                StateReport(cluster="blue", values={"x": 2}),
                StateReport(cluster="red", values={"x": 3}),
            ],
            1.0,
        )
        assert {n: s.values for n, s in red.clusters.changes(0).states.items()} == {"red": {"x": 3}, "blue": {"x": 2}}

    def test_no_reports_are_fine(self, red: Store) -> None:
        version = red.clusters.changes(0).version
        red.clusters.report([], 1.0)
        assert red.clusters.changes(version) == Changes(version)

    def test_of_two_values_the_later_report_holds(self, red: Store) -> None:
        red.clusters.report([StateReport(cluster="red", values={"a": 2, "c": 2})], 20.0)
        red.clusters.report([StateReport(cluster="red", values={"b": 3})], 30.0)
        red.clusters.report([StateReport(cluster="red", values={"a": 1, "b": 1, "d": 1})], 10.0)
        red.clusters.report([StateReport(cluster="red", values={"b": 0, "c": 0})], 25.0)
        state = red.clusters.changes(0).states["red"]
        assert state.values == {"a": 2, "b": 3, "c": 0, "d": 1}
        assert (state.at, state.heartbeat_at) == (30.0, 30.0)

    def test_a_report_sent_twice_is_as_one(self, red: Store) -> None:
        first = [StateReport(cluster="red", values={"a": 1})]
        red.clusters.report(first, 10.0)
        red.clusters.report([StateReport(cluster="red", values={"a": 2})], 11.0)
        red.clusters.report(first, 10.0)
        assert red.clusters.changes(0).states["red"].values == {"a": 2}

    def test_a_report_for_no_cluster_is_dropped(self, red: Store) -> None:
        version = red.clusters.changes(0).version
        red.clusters.report([StateReport(cluster="blue", values={"x": 1})], 1.0)
        assert red.clusters.changes(version) == Changes(version)
        red.clusters.put(cluster("blue"), None)
        assert red.clusters.changes(0).states["blue"] == ClusterState()

    def test_a_report_of_another_registration_is_dropped(self, red: Store) -> None:
        id = new_id()
        version = red.jobs.assign([assignment(id)], 0).changes.version
        red.clusters.report(
            [StateReport(cluster="red", values={"x": 1}, included=[(id, 1)], registration="old")], time.time()
        )
        assert red.clusters.changes(version) == Changes(version)
        red.clusters.report([StateReport(cluster="red", values={"x": 1}, registration="r1")], 1.0)
        assert red.clusters.changes(0).states["red"].values == {"x": 1}

    def test_alive_is_judged_by_the_last_heartbeat(self, make: Make, red: Store) -> None:
        patient, strict = make(alive_after=600.0), make(alive_after=0.5)
        assert not patient.clusters.changes(0).states["red"].alive
        now = time.time()
        red.clusters.report([StateReport(cluster="red")], now)
        state = patient.clusters.changes(0).states["red"]
        assert state.alive
        assert state.heartbeat_at == pytest.approx(now, abs=1e-3)
        until(lambda: not strict.clusters.changes(0).states["red"].alive)
        assert patient.clusters.changes(0).states["red"].alive
        red.clusters.report([StateReport(cluster="red")], time.time() + 60)
        assert strict.clusters.changes(0).states["red"].alive
        patient.close()
        strict.close()

    def test_an_update_by_hand_says_nothing_about_liveness(self, red: Store) -> None:
        now = time.time()
        red.clusters.report([StateReport(cluster="red", values={"cost": 1.5}, heartbeat=False)], now)
        state = red.clusters.changes(0).states["red"]
        assert (state.values, state.alive, state.heartbeat_at) == ({"cost": 1.5}, False, 0.0)
        assert state.at == pytest.approx(now, abs=1e-3)

    def test_eight_report_at_once(self, make: Make, red: Store) -> None:
        def report(i: int) -> None:
            store = make()
            for turn in range(20):
                store.clusters.report([StateReport(cluster="red", values={f"k{i}": turn, "any": i})], time.time())
            store.close()

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(report, range(8)))
        values = dict(red.clusters.changes(0).states["red"].values)
        assert values.pop("any") in range(8)
        assert values == {f"k{i}": 19 for i in range(8)}

    def test_groups_come_whole_and_only_when_changed(self, red: Store) -> None:
        red.clusters.set_group("@a", frozenset({"red", "blue"}))
        version = red.clusters.changes(0).version
        red.clusters.set_group("@b", frozenset({"red"}))
        changes = red.clusters.changes(version)
        assert changes.groups == {"@a": frozenset({"red", "blue"}), "@b": frozenset({"red"})}
        assert (changes.clusters, changes.states, changes.revocations) == ({}, {}, None)
        assert red.clusters.changes(changes.version).groups is None

    def test_a_group_is_exactly_its_members(self, store: Store) -> None:
        store.clusters.set_group("@a", frozenset({"red", "blue"}))
        store.clusters.set_group("@a", frozenset({"green"}))
        assert store.clusters.changes(0).groups == {"@a": frozenset({"green"})}

    def test_an_empty_group_is_gone(self, store: Store) -> None:
        store.clusters.set_group("@a", frozenset({"red"}))
        store.clusters.set_group("@a", frozenset())
        store.clusters.set_group("@never", frozenset())
        assert store.clusters.changes(0).groups == {}

    def test_the_same_members_again_change_nothing(self, store: Store) -> None:
        store.clusters.set_group("@a", frozenset({"red", "blue"}))
        version = store.clusters.changes(0).version
        store.clusters.set_group("@a", frozenset({"blue", "red"}))
        assert store.clusters.changes(version) == Changes(version)

    def test_revocations_come_whole_and_only_when_changed(self, store: Store) -> None:
        late = round(time.time()) + 3600.0
        first = Revocation(kind="jti", value="t1", before=10.0, until=late)
        second = Revocation(kind="sub", value="t1", before=20.5, until=late + 1)
        store.clusters.revoke(first)
        version = store.clusters.changes(0).version
        store.clusters.revoke(second)
        changes = store.clusters.changes(version)
        assert changes.revocations is not None
        assert sorted(changes.revocations, key=lambda r: r.kind) == [first, second]
        assert changes.groups is None
        assert store.clusters.changes(changes.version).revocations is None

    @pytest.mark.parametrize("order", [(1.0, 2.0), (2.0, 1.0)])
    def test_of_two_revocations_the_later_holds(self, store: Store, order: tuple[float, float]) -> None:
        base = round(time.time()) + 3600.0
        for t in order:
            store.clusters.revoke(Revocation(kind="sub", value="ann", before=t, until=base + t))
        assert store.clusters.changes(0).revocations == [
            Revocation(kind="sub", value="ann", before=2.0, until=base + 2.0)
        ]

    def test_a_revocation_is_dropped_after_its_time(self, store: Store) -> None:
        store.clusters.revoke(Revocation(kind="sub", value="ann", before=1.0, until=time.time() + 0.3))
        store.clusters.revoke(Revocation(kind="sub", value="bob", before=1.0, until=time.time() + 3600))
        until(lambda: [r.value for r in store.clusters.changes(0).revocations or ()] == ["bob"])

    @pytest.mark.parametrize("odd", ODD)
    def test_odd_subjects(self, store: Store, odd: str) -> None:
        revocation = Revocation(kind="sub", value=odd, before=1.0, until=round(time.time()) + 60.0)
        store.clusters.revoke(revocation)
        assert store.clusters.changes(0).revocations == [revocation]
