from __future__ import annotations

import uuid

import pytest

from rainbow.brokers import ConnectOptions
from rainbow.testing.brokers import BrokerContract

pytest.importorskip("kombu")


class TestKombuRedis(BrokerContract):
    @pytest.fixture
    def options(self, redis_url: str, redis_prefix: str) -> ConnectOptions:
        return ConnectOptions(f"{redis_url}?prefix={redis_prefix}")


class TestKombuMemory(BrokerContract):
    #: kombu's memory transport can only put a message at the end of a queue.
    requeues_to_front = False

    @pytest.fixture
    def options(self) -> ConnectOptions:
        return ConnectOptions(f"kombu+memory://{uuid.uuid4().hex}")


class TestKombuAmqp(BrokerContract):
    @pytest.fixture
    def options(self, amqp_url: str) -> ConnectOptions:
        return ConnectOptions(f"kombu+{amqp_url}", max_in_flight=200)
