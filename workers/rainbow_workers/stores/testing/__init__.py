"""The contract of a store plugin as tests: inherit `StoreContract` and give it the fixture `make`.

    class TestMyStore(StoreContract):
        @pytest.fixture
        def make(self):
            yield lambda **options: MyStore(StoreOptions("mystore://…", **options))

`make` opens a store on the same, at first empty, data each time within one test; `options` are StoreOptions.
"""

from __future__ import annotations

from rainbow_workers.stores.testing.arrays import ArraysContract
from rainbow_workers.stores.testing.assigning import AssigningContract
from rainbow_workers.stores.testing.clusters import ClusterContract
from rainbow_workers.stores.testing.dependencies import DependenciesContract
from rainbow_workers.stores.testing.events import EventContract
from rainbow_workers.stores.testing.jobs import JobContract
from rainbow_workers.stores.testing.kit import ODD, Make, assignment, cluster, event, new_id, until
from rainbow_workers.stores.testing.lifecycle import LifecycleContract
from rainbow_workers.stores.testing.reporting import ReportingContract
from rainbow_workers.stores.testing.reservations import ReservationContract
from rainbow_workers.stores.testing.shares import SharesContract
from rainbow_workers.stores.testing.states import StateContract

__all__ = ["ODD", "Make", "StoreContract", "assignment", "cluster", "event", "new_id", "until"]


class StoreContract(
    ClusterContract,
    StateContract,
    AssigningContract,
    ReservationContract,
    EventContract,
    ReportingContract,
    SharesContract,
    DependenciesContract,
    ArraysContract,
    JobContract,
    LifecycleContract,
):
    """Every guarantee of `rainbow_workers.stores.base` as a test."""
