"""The contract of a store plugin as tests: inherit `StoreContract` and give it the fixture `make`.

    class TestMyStore(StoreContract):
        @pytest.fixture
        def make(self):
            yield lambda **options: MyStore(StoreOptions("mystore://…", **options))

`make` opens a store on the same, at first empty, data each time within one test; `options` are StoreOptions.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rainbow.errors import Conflict
from rainbow.jobspec.request import Demand
from rainbow.models.cluster import ClusterRecord, ClusterState, Enrolment, Revocation, StateReport
from rainbow.models.job import BEGUN, RANK, TERMINAL, UNRUN, JobEvent, JobRecord
from rainbow_workers.stores.base import Assignment, Changes, Store

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
    return ClusterRecord(name=name, registration=registration, identity="me-and-mine", summary=b"\x00\xff", **fields)


def assignment(id: str, attempt: int = 1, to: str = "red", **fields: Any) -> Assignment:
    given: dict[str, Any] = {
        "user": "ann",
        "name": "hello",
        "demand": Demand(1, 4, 2),
        "at": 1000.0 + attempt,
        "submitted_at": 1000.0,
        "answer": {"status": "assigned", "cluster": to},
    }
    return Assignment(id=id, attempt=attempt, cluster=to, **{**given, **fields})


def event(id: str, state: Any, attempt: int = 1, at: float = 2000.0, **fields: Any) -> JobEvent:
    return JobEvent(id=id, state=state, attempt=attempt, at=at, **fields)


def new_id() -> str:
    return str(uuid.uuid4())


def until(check: Callable[[], object], limit: float = 20.0) -> None:
    """Wait for what happens by time alone; the limit only guards against a hang."""
    end = time.monotonic() + limit
    while not check():
        assert time.monotonic() < end, "still not so"
        time.sleep(0.02)


class StoreContract:
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

    # -- clusters: records -----------------------------------------------------------------------------

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

    # -- clusters: deletion ----------------------------------------------------------------------------

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

    # -- clusters: changes -----------------------------------------------------------------------------

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
        since = red.clusters.changes(0).version + 10_000_000_000
        changes = red.clusters.changes(since)
        assert changes.reset
        assert changes.version > since
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

    # -- clusters: state -------------------------------------------------------------------------------

    def test_values_are_merged(self, red: Store) -> None:
        red.clusters.report([StateReport(cluster="red", values={"a": 1, "b": 2})], 1.0)
        red.clusters.report([StateReport(cluster="red", values={"b": 3, "c": "x"})], 2.0)
        state = red.clusters.changes(0).states["red"]
        assert state.values == {"a": 1, "b": 3, "c": "x"}
        assert state.at == 2.0

    def test_values_keep_their_type(self, red: Store) -> None:
        values = {"t": True, "f": False, "i": -3, "big": 2**70, "x": 0.1, "one": 1.0, "s": "1", "e": "", "true": "true"}
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

    # -- groups and revocations ------------------------------------------------------------------------

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

    # -- assigning -------------------------------------------------------------------------------------

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

    # -- assigning in two steps --------------------------------------------------------------------------

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
        # Whoever does not ask for room gets none, and is not refused.
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

    # -- what answers have in common ---------------------------------------------------------------------

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

    # -- reservations ----------------------------------------------------------------------------------

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

    # -- events ----------------------------------------------------------------------------------------

    def test_the_life_of_a_job(self, red: Store) -> None:
        id = new_id()
        red.jobs.record([event(id, "submitted", attempt=0, at=1.0, user="ann", name="x")])
        red.jobs.assign([assignment(id, at=2.0, name="x", answer={"n": 1})], 0)
        done = red.jobs.record(
            [
                event(id, "accepted", at=3.0, cluster="red", flux_id="ƒA"),
                event(id, "running", at=4.0, cluster="red"),
                event(id, "failed", at=5.0, cluster="red", returncode=3, code="exit", detail="said 3", output="out"),
            ]
        )
        assert [(r.record.state, r.applied, list(r.watchers)) for r in done] == [
            ("accepted", True, []),
            ("running", True, []),
            ("failed", True, []),
        ]
        record = red.jobs.get([id])[0]
        assert record == JobRecord(
            id=id,
            state="failed",
            attempt=1,
            cluster="red",
            user="ann",
            name="x",
            flux_id="ƒA",
            returncode=3,
            code="exit",
            detail="said 3",
            output="out",
            answer={"n": 1},
            times={"submitted": 1.0, "assigned": 2.0, "accepted": 3.0, "running": 4.0, "ended": 5.0},
            history=[
                {"state": "submitted", "attempt": 0, "at": 1.0},
                {"state": "assigned", "attempt": 1, "at": 2.0, "cluster": "red"},
                {"state": "accepted", "attempt": 1, "at": 3.0, "cluster": "red", "flux_id": "ƒA"},
                {"state": "running", "attempt": 1, "at": 4.0, "cluster": "red"},
                {
                    "state": "failed",
                    "attempt": 1,
                    "at": 5.0,
                    "cluster": "red",
                    "returncode": 3,
                    "code": "exit",
                    "detail": "said 3",
                },
            ],
        )
        assert done[-1].record == record.model_copy(update={"history": [], "answer": None})

    @pytest.mark.parametrize("state", sorted(RANK))
    def test_an_event_of_an_unknown_job_makes_its_record(self, store: Store, state: str) -> None:
        id = new_id()
        done = store.jobs.record([event(id, state, attempt=4, cluster="red", user="bob", answer={"a": [1, None]})])
        assert done[0].applied
        record = store.jobs.get([id])[0]
        assert record is not None
        assert (record.state, record.attempt, record.cluster, record.user) == (state, 4, "red", "bob")
        assert record.answer == {"a": [1, None]}

    @pytest.mark.parametrize("first", sorted(TERMINAL))
    def test_a_terminal_state_never_changes(self, red: Store, first: str) -> None:
        """S43: whatever is told afterwards, of whichever attempt."""
        id = new_id()
        red.jobs.record([event(id, first, attempt=1, cluster="red", code="why")])
        before = red.jobs.get([id])[0]
        assert before is not None
        later = [event(id, s, attempt=a, cluster="blue", code="other") for s in sorted(RANK) for a in (0, 1, 2, 7)]
        assert not any(r.applied for r in red.jobs.record(later))
        after = red.jobs.get([id])[0]
        assert after is not None
        assert after.model_copy(update={"history": []}) == before.model_copy(update={"history": []})
        assert all(entry.get("stale") for entry in after.history[1:])

    @pytest.mark.parametrize("state", sorted(RANK))
    def test_an_older_attempt_changes_nothing(self, red: Store, state: str) -> None:
        id = new_id()
        red.jobs.record([event(id, "running", attempt=2, cluster="blue", flux_id="f2")])
        done = red.jobs.record([event(id, state, attempt=1, cluster="red", flux_id="f1", answer={"old": 1})])[0]
        assert not done.applied
        assert (done.record.state, done.record.attempt, done.record.cluster) == ("running", 2, "blue")
        record = red.jobs.get([id])[0]
        assert record is not None
        assert (record.flux_id, record.answer) == ("f2", None)
        assert [entry.get("stale", False) for entry in record.history] == [False, True]

    def test_within_an_attempt_only_a_higher_rank_counts(self, store: Store) -> None:
        for a in RANK:
            for b in RANK:
                id = new_id()
                done = store.jobs.record([event(id, a), event(id, b)])
                wanted = a not in TERMINAL and RANK[b] > RANK[a] and not (a in BEGUN and b in UNRUN)
                assert done[1].applied == wanted, (a, b)
                assert done[1].record.state == (b if wanted else a)

    def test_a_newer_attempt_advances_the_record(self, store: Store) -> None:
        id = new_id()
        store.jobs.record(
            [event(id, "running", cluster="red", user="ann", flux_id="f1", code="c", detail="d", returncode=1)]
        )
        done = store.jobs.record([event(id, "accepted", attempt=3, cluster="blue")])[0]
        assert done.applied
        r = done.record
        assert (r.state, r.attempt, r.cluster, r.user) == ("accepted", 3, "blue", "ann")
        assert (r.flux_id, r.code, r.detail, r.returncode, r.output) == (None, None, None, None, None)

    def test_fields_an_event_lacks_stay(self, store: Store) -> None:
        id = new_id()
        store.jobs.record([event(id, "accepted", cluster="red", user="ann", name="n", flux_id="f", answer={"x": 1})])
        store.jobs.record([event(id, "completed")])
        record = store.jobs.get([id])[0]
        assert record is not None
        assert (record.cluster, record.user, record.name, record.flux_id, record.answer) == (
            "red",
            "ann",
            "n",
            "f",
            {"x": 1},
        )

    def test_zero_and_empty_are_values(self, store: Store) -> None:
        id = new_id()
        store.jobs.record([event(id, "completed", returncode=0, detail="", output="", answer={})])
        record = store.jobs.get([id])[0]
        assert record is not None
        assert (record.returncode, record.detail, record.output, record.answer) == (0, "", "", {})

    def test_shuffled_duplicated_events_end_in_the_same_state(self, red: Store) -> None:
        rng = random.Random(5)
        for _ in range(30):
            id = new_id()
            life = [
                event(id, "assigned", 1, 1.0, cluster="red"),
                event(id, "rejected", 1, 2.0, cluster="red", code="busy"),
                event(id, "assigned", 2, 3.0, cluster="blue"),
                event(id, "accepted", 2, 4.0, cluster="blue", flux_id="f2"),
                event(id, "running", 2, 5.0, cluster="blue"),
                event(id, "completed", 2, 6.0, cluster="blue", returncode=0),
            ]
            twice = life * 2
            rng.shuffle(twice)
            applied = [r for e in twice for r in red.jobs.record([e]) if r.applied]
            record = red.jobs.get([id])[0]
            assert record is not None
            assert (record.state, record.attempt, record.cluster, record.returncode) == ("completed", 2, "blue", 0)
            assert len(record.history) == 12
            assert sum("stale" not in entry for entry in record.history) == len(applied)

    def test_an_adopted_job_cannot_be_assigned_elsewhere(self, red: Store) -> None:
        id = new_id()
        red.jobs.record([event(id, "running", attempt=2, cluster="blue")])
        record = red.jobs.assign([assignment(id, attempt=1)], 0).outcomes[0]
        assert record is not None
        assert (record.state, record.attempt, record.cluster) == ("running", 2, "blue")

    def test_the_order_of_a_batch_is_kept(self, store: Store) -> None:
        first, second = new_id(), new_id()
        done = store.jobs.record([event(first, "held"), event(second, "running"), event(first, "running")])
        assert [(r.record.id, r.record.state) for r in done] == [
            (first, "held"),
            (second, "running"),
            (first, "running"),
        ]
        assert store.jobs.record([]) == []

    def test_the_history_is_bounded_and_keeps_both_ends(self, make: Make) -> None:
        store = make(max_history=8)
        id = new_id()
        for start in range(0, 30, 3):
            store.jobs.record([event(id, "running", at=float(at)) for at in range(start, start + 3)])
        record = store.jobs.get([id])[0]
        assert record is not None
        assert [entry["at"] for entry in record.history] == [0, 1, 24, 25, 26, 27, 28, 29]
        store.close()

    def test_a_batch_longer_than_the_history(self, make: Make) -> None:
        store = make(max_history=4)
        id = new_id()
        store.jobs.record([event(id, "held", at=float(at)) for at in range(50)])
        record = store.jobs.get([id])[0]
        assert record is not None
        assert [entry["at"] for entry in record.history] == [0, 47, 48, 49]
        store.close()

    @pytest.mark.parametrize("odd", ODD)
    def test_odd_texts_come_back(self, red: Store, odd: str) -> None:
        id = new_id() + odd
        red.jobs.assign([assignment(id, user=odd, name=odd, answer={odd: odd})], 0)
        red.jobs.record([event(id, "failed", flux_id=odd, code=odd, detail=odd, output=odd)])
        record = red.jobs.get([id])[0]
        assert record is not None
        assert (record.id, record.user, record.name, record.answer) == (id, odd, odd, {odd: odd})
        assert (record.flux_id, record.code, record.detail, record.output) == (odd, odd, odd, odd)
        assert red.clusters.changes(0).reserved == {"red": Demand()}
        assert [r.id for r in red.jobs.find(state="failed", cluster="red", user=odd, limit=5)] == [id]
        assert red.jobs.find(state=None, cluster=None, user=odd + "x", limit=5) == []

    def test_odd_numbers_do_not_stop_a_batch(self, store: Store) -> None:
        ids = [new_id() for _ in range(3)]
        done = store.jobs.record(
            [
                event(ids[0], "held", at=0.0),
                event(ids[1], "failed", returncode=10**30, answer={"n": 10**30, "x": [float("inf")]}),
                event(ids[2], "completed", detail="\ud800"),
            ]
        )
        assert all(r.applied for r in done)
        found = store.jobs.get(ids)
        assert all(r is not None for r in found)
        assert found[1] is not None
        assert found[1].answer == {"n": 10**30, "x": [float("inf")]}

    # -- reading ---------------------------------------------------------------------------------------

    def test_get_keeps_the_order_and_says_none(self, store: Store) -> None:
        ids = [new_id() for _ in range(5)]
        store.jobs.record([event(id, "held") for id in ids[:4]])
        asked = [ids[2], ids[4], ids[0], ids[2]]
        assert [r.id if r else None for r in store.jobs.get(asked)] == [ids[2], None, ids[0], ids[2]]
        assert store.jobs.get([]) == []

    def test_find_is_newest_first_by_the_first_event(self, store: Store) -> None:
        ids = [new_id() for _ in range(6)]
        for at, id in enumerate(ids):
            store.jobs.record([event(id, "held", at=float(at))])
        store.jobs.record([event(ids[0], "running", at=100.0)])
        found = store.jobs.find(state=None, cluster=None, user=None, limit=100)
        assert [r.id for r in found] == ids[::-1]
        assert [r.id for r in store.jobs.find(state=None, cluster=None, user=None, limit=2)] == [ids[5], ids[4]]

    def test_find_leaves_out_history_and_answer(self, red: Store) -> None:
        red.jobs.assign([assignment(new_id())], 0)
        found = red.jobs.find(state="assigned", cluster=None, user=None, limit=1)[0]
        assert (found.history, found.answer, found.name) == ([], None, "hello")

    def test_find_by_all_filters(self, store: Store) -> None:
        made: list[tuple[str, str, str, str]] = []
        at = 0.0
        for made_state in ("held", "running", "completed", "failed"):
            for made_on in ("red", "blue"):
                for made_by in ("ann", "bob", "ann"):
                    at += 1
                    made.append((new_id(), made_state, made_on, made_by))
                    store.jobs.record([event(made[-1][0], made_state, at=at, cluster=made_on, user=made_by)])
        states, places, users = (None, "held", "completed", "lost"), (None, "red", "green"), (None, "bob", "eve")
        for asked in itertools.product(states, places, users):
            state, where, user = asked
            wanted = [id for id, *has in reversed(made) if all(a in (None, h) for a, h in zip(asked, has, strict=True))]
            found = store.jobs.find(state=state, cluster=where, user=user, limit=100)
            assert [r.id for r in found] == wanted, asked

    def test_find_follows_a_job_to_another_cluster(self, red: Store) -> None:
        id = new_id()
        red.jobs.assign([assignment(id)], 0)
        red.jobs.assign([assignment(id, attempt=2, to="blue")], 0)
        assert red.jobs.find(state=None, cluster="red", user=None, limit=5) == []
        assert len(red.jobs.find(state=None, cluster="blue", user=None, limit=5)) == 1

    def test_find_through_many(self, store: Store) -> None:
        ids = [new_id() for _ in range(1300)]
        for start in range(0, 1300, 100):
            store.jobs.record(
                [
                    event(id, "running", at=float(at), cluster="red", user="rare" if at % 400 == 0 else "ann")
                    for at, id in enumerate(ids[start : start + 100], start)
                ]
            )
        found = store.jobs.find(state="running", cluster="red", user=None, limit=1250)
        assert [r.id for r in found] == ids[:49:-1]
        rare = store.jobs.find(state="running", cluster="red", user="rare", limit=10)
        assert [r.id for r in rare] == [ids[1200], ids[800], ids[400], ids[0]]

    # -- keeping ---------------------------------------------------------------------------------------

    def test_ended_jobs_are_forgotten_after_a_while(self, make: Make) -> None:
        store = make(keep=0.4)
        store.clusters.put(cluster(), None)
        ended, live = new_id(), new_id()
        store.jobs.assign([assignment(ended), assignment(live)], 0)
        store.jobs.record([event(ended, "completed"), event(live, "running")])
        until(lambda: store.jobs.get([ended]) == [None])
        for state, where, user in (("completed", None, None), (None, "red", None), (None, None, "ann"), (None,) * 3):
            found = store.jobs.find(state=state, cluster=where, user=user, limit=9)
            assert ended not in [r.id for r in found]
        assert store.jobs.get([live])[0] is not None
        again = store.jobs.record([event(ended, "running", cluster="red")])[0]
        assert again.applied
        record = store.jobs.get([ended])[0]
        assert record is not None
        assert len(record.history) == 1
        store.close()

    def test_stale_events_do_not_keep_a_job_longer(self, make: Make) -> None:
        store = make(keep=0.5)
        id = new_id()
        store.jobs.record([event(id, "completed")])
        # It applies again only when the job has been forgotten in spite of all of them.
        until(lambda: store.jobs.record([event(id, "running")])[0].applied)
        store.close()

    # -- watching --------------------------------------------------------------------------------------

    def test_watchers_are_told_with_every_event(self, store: Store) -> None:
        watched, other = new_id(), new_id()
        store.jobs.watch([watched], ("reply.1", "c1"), 60.0)
        store.jobs.watch([watched], ("reply.2", "%"), 60.0)
        store.jobs.watch([watched], ("reply.1", "c1"), 60.0)
        done = store.jobs.record([event(watched, "held"), event(other, "held"), event(watched, "held")])
        both = [("reply.1", "c1"), ("reply.2", "%")]
        assert [sorted(r.watchers) for r in done] == [both, [], both]
        assert store.jobs.get([new_id(), other])[0] is None

    def test_a_watch_ends(self, store: Store) -> None:
        id = new_id()
        store.jobs.watch([id], ("reply", "short"), 0.2)
        store.jobs.watch([id], ("reply", "long"), 60.0)

        def watchers() -> list[tuple[str, str]]:
            return list(store.jobs.record([event(id, "held")])[0].watchers)

        until(lambda: watchers() == [("reply", "long")])

    def test_a_watch_can_be_made_longer(self, store: Store) -> None:
        id = new_id()
        store.jobs.watch([id], ("reply", "c"), 0.1)
        store.jobs.watch([id], ("reply", "c"), 60.0)
        time.sleep(0.2)
        assert list(store.jobs.record([event(id, "held")])[0].watchers) == [("reply", "c")]

    # -- cancelling ------------------------------------------------------------------------------------

    def test_cancel_marks_and_gives_the_record(self, red: Store) -> None:
        id = new_id()
        red.jobs.assign([assignment(id)], 0)
        for _ in range(2):
            record = red.jobs.cancel([id])[0]
            assert record is not None
            assert (record.state, record.cancel_requested, record.cluster) == ("assigned", True, "red")
            assert (record.history, record.answer) == ([], None)
        found = red.jobs.get([id])[0]
        assert found is not None
        assert found.cancel_requested
        assert len(found.history) == 1

    @pytest.mark.parametrize("state", ["submitted", "held", "rejected", "assigned"])
    def test_a_cancelled_job_is_not_assigned(self, red: Store, state: str) -> None:
        id = new_id()
        red.jobs.record([event(id, state, cluster="red")])
        red.jobs.cancel([id])
        for attempt in (1, 2):
            record = red.jobs.assign([assignment(id, attempt=attempt)], 0).outcomes[0]
            assert record is not None
            assert record.cancel_requested
        assert red.clusters.changes(0).reserved == {"red": Demand()}

    def test_the_mark_survives_events(self, red: Store) -> None:
        id = new_id()
        red.jobs.record([event(id, "held", attempt=0)])
        red.jobs.cancel([id])
        assert red.jobs.record([event(id, "running", attempt=2)])[0].record.cancel_requested

    def test_the_cancel_of_an_unknown_job_stops_it(self, red: Store) -> None:
        id = new_id()
        assert red.jobs.cancel([id, id]) == [None, None]
        assert red.jobs.get([id]) == [None]
        assert red.jobs.find(state=None, cluster=None, user=None, limit=5) == []
        assert red.jobs.assign([assignment(id)], 0).outcomes == [
            JobRecord(id=id, state="submitted", cancel_requested=True)
        ]
        assert red.jobs.record([event(id, "submitted", attempt=0)])[0].record.cancel_requested
        assert red.jobs.assign([assignment(id)], 0).outcomes[0] is not None
        record = red.jobs.record([event(id, "cancelled", attempt=0)])[0].record
        assert (record.state, record.cancel_requested) == ("cancelled", True)

    @pytest.mark.parametrize("state", sorted(TERMINAL))
    def test_ended_jobs_are_not_marked(self, store: Store, state: str) -> None:
        id = new_id()
        store.jobs.record([event(id, state)])
        record = store.jobs.cancel([id])[0]
        assert record is not None
        assert (record.state, record.cancel_requested) == (state, False)

    def test_cancel_keeps_the_order(self, store: Store) -> None:
        ids = [new_id() for _ in range(3)]
        store.jobs.record([event(ids[0], "held"), event(ids[2], "completed")])
        assert [r.state if r else None for r in store.jobs.cancel(ids)] == ["held", None, "completed"]
        assert store.jobs.cancel([]) == []

    # -- enrolments ------------------------------------------------------------------------------------

    def test_an_enrolment_comes_back(self, store: Store) -> None:
        one = Enrolment(code="AB-12", cluster="red", mark="m%", place="login1", asked_at=1.0, until=100.0)
        store.enrolments.put(one)
        assert store.enrolments.get("red", "m%", 50.0) == one
        assert store.enrolments.get("red", "other", 50.0) is None
        assert store.enrolments.get("blue", "m%", 50.0) is None
        approved = one.model_copy(update={"status": "approved", "decided_at": 2.0, "by": "admin"})
        store.enrolments.put(approved)
        assert store.enrolments.all(50.0) == [approved]

    def test_enrolments_run_out(self, store: Store) -> None:
        for mark, end in (("a", 100.0), ("b", 200.0)):
            store.enrolments.put(Enrolment(code=mark, cluster="red", mark=mark, asked_at=1.0, until=end))
        assert sorted(e.mark for e in store.enrolments.all(99.0)) == ["a", "b"]
        assert store.enrolments.get("red", "a", 100.0) is None
        assert [e.mark for e in store.enrolments.all(100.0)] == ["b"]

    # -- the store itself ------------------------------------------------------------------------------

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
