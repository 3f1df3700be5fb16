from __future__ import annotations

from typing import ClassVar

import pytest

from rainbow.brokers import ConnectOptions
from rainbow.testing.brokers import BrokerContract
from rainbow.topology import QueueKind


class TestRabbitMQQuorum(BrokerContract):
    kind: ClassVar[QueueKind] = "quorum"
    #: RabbitMQ keeps no record of who asked: a late answer is dropped without a word.
    knows_lost_replies = False

    @pytest.fixture
    def options(self, amqp_url: str) -> ConnectOptions:
        return ConnectOptions(amqp_url)


class TestRabbitMQClassic(TestRabbitMQQuorum):
    kind = "classic"
