from __future__ import annotations

import uuid

import pytest

from rainbow.brokers import ConnectOptions
from rainbow.testing.brokers import BrokerContract


class TestMemoryBroker(BrokerContract):
    @pytest.fixture
    def options(self) -> ConnectOptions:
        return ConnectOptions(f"memory://contract-{uuid.uuid4().hex}")
