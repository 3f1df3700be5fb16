"""Usage of users and their run times."""

from __future__ import annotations

import pytest

from rainbow_workers.stores.base import Store
from rainbow_workers.stores.testing.kit import StoreFixtures


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

    def test_the_newest_run_time_of_a_user_holds(self, store: Store) -> None:
        assert store.shares.run_times() == {}
        store.shares.ran({"alice": 3.0, "bob": 1.0})
        store.shares.ran({"alice": 0.125})
        store.shares.ran({})
        assert store.shares.run_times() == {"alice": 0.125, "bob": 1.0}
