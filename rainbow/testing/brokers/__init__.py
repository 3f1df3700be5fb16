"""What every broker plugin must do, as tests to inherit.

    class TestMyBroker(BrokerContract):
        @pytest.fixture
        def options(self) -> ConnectOptions:
            return ConnectOptions("mine://127.0.0.1/a-fresh-place")

The fixture gives options for a place that is empty or at least free of queues whose names start with
``contract-``. A class attribute says so where a broker cannot do all of it.
"""

from __future__ import annotations

from rainbow.testing.brokers.consuming import ConsumingContract
from rainbow.testing.brokers.dead_letters import DeadLetterContract
from rainbow.testing.brokers.kit import LIMIT, Opener, Place, collect, holds, until
from rainbow.testing.brokers.lifecycle import LifecycleContract
from rainbow.testing.brokers.publishing import PublishingContract

__all__ = ["LIMIT", "BrokerContract", "Opener", "Place", "collect", "holds", "until"]


class BrokerContract(PublishingContract, DeadLetterContract, ConsumingContract, LifecycleContract):
    """All that a broker plugin must do. Inherit it and give the fixture `options`."""
