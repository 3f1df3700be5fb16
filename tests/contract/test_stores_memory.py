from __future__ import annotations

import uuid
from typing import Any

import pytest

from rainbow_workers.stores import StoreOptions, open_store
from rainbow_workers.stores.base import Store
from rainbow_workers.stores.testing import Make, StoreContract, cluster


class TestMemory(StoreContract):
    @pytest.fixture
    def make(self) -> Make:
        url = f"memory://{uuid.uuid4().hex}"

        def open_one(**options: Any) -> Store:
            return open_store(StoreOptions(url, **options))

        return open_one

    def test_other_names_and_prefixes_are_other_stores(self, make: Make) -> None:
        make().clusters.put(cluster(), None)
        assert make(prefix="other:").clusters.changes(0).clusters == {}
        assert open_store(StoreOptions("memory://elsewhere")).clusters.changes(0).clusters == {}

    def test_it_says_that_it_keeps_nothing(self, make: Make) -> None:
        assert "lost with its process" in make().warnings()[0]
