"""Usage of users and their run times."""

from __future__ import annotations

from typing import Any

import pytest

from rainbow_workers.stores.base import Store
from rainbow_workers.stores.testing.kit import StoreFixtures, assignment, event, new_id


class SharesContract(StoreFixtures):
    """Usage of users and their run times."""

    def test_charges_of_a_period_add_up(self, store: Store) -> None:
        store.shares.charge({"alice": 1.5, "bob \u00e9": 2.0}, 7, 3600.0)
        store.shares.charge({"alice": 0.25}, 7, 3600.0)
        store.shares.charge({"alice": 4.0}, 6, 3600.0)
        store.shares.charge({}, 5, 3600.0)
        newest, older, none = store.shares.usage([7, 6, 5])
        assert newest == pytest.approx({"alice": 1.75, "bob \u00e9": 2.0})
        assert (older, none) == ({"alice": 4.0}, {})

    def test_what_an_administrator_set_is_kept_until_it_is_forgotten(self, store: Store) -> None:
        assert store.shares.terms() == {}
        store.shares.put("user:alice \u00e9", "one")
        store.shares.put("account:physics", "two")
        store.shares.put("account:physics", "three")
        store.shares.put("user:unknown", None)
        assert store.shares.terms() == {"user:alice \u00e9": "one", "account:physics": "three"}
        store.shares.put("account:physics", None)
        assert store.shares.terms() == {"user:alice \u00e9": "one"}

    def test_submissions_of_a_window_add_up(self, store: Store) -> None:
        assert store.shares.submitted("user:alice", 3, 7, 1.0) == 3
        assert store.shares.submitted("user:alice", 2, 7, 1.0) == 5
        assert store.shares.submitted("user:bob", 1, 7, 1.0) == 1
        assert store.shares.submitted("user:alice", 4, 8, 1.0) == 4

    def test_jobs_that_have_not_ended_are_counted_by_account_and_user(self, red: Store) -> None:
        jobs = red.jobs
        one, two, three, four = (new_id() for _ in range(4))
        physics: dict[str, Any] = {"user": "alice", "account": "physics"}
        bobs: dict[str, Any] = {"user": "bob", "account": "default"}
        assert jobs.tally() == {}
        batch = [assignment(one, **physics), assignment(two, **physics), assignment(three, **bobs)]
        jobs.assigning([*batch, assignment(new_id())], 0, {}).wait()
        jobs.record([event(four, "held", 0, **bobs)])
        assert jobs.tally() == {("physics", "alice"): (0, 2), ("default", "bob"): (1, 1)}
        jobs.record([event(one, "accepted"), event(one, "running"), event(one, "running"), event(two, "completed")])
        jobs.record([event(two, "completed"), event(three, "rejected")])
        assert jobs.tally() == {("physics", "alice"): (0, 1), ("default", "bob"): (1, 0)}
        jobs.assign([assignment(three, 2, **bobs), assignment(four, 1, **bobs)], 0)
        assert jobs.tally() == {("physics", "alice"): (0, 1), ("default", "bob"): (0, 2)}
        jobs.assign([assignment(four, 1, **bobs)], 0)
        jobs.record([event(one, "failed"), event(four, "cancelled"), event(three, "completed", 2)])
        assert jobs.tally() == {}

    def test_the_newest_run_time_of_a_user_holds(self, store: Store) -> None:
        assert store.shares.run_times() == {}
        store.shares.ran({"alice": 3.0, "bob": 1.0})
        store.shares.ran({"alice": 0.125})
        store.shares.ran({})
        assert store.shares.run_times() == {"alice": 0.125, "bob": 1.0}
