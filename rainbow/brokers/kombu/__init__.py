"""The broker plugin for all that kombu speaks.

Redis and Valkey (the default of the embedded mode), AMQP through py-amqp (``kombu+amqp://``), and kombu's own memory
transport (``kombu+memory://``). See `broker`.
"""

from rainbow.brokers.kombu.broker import KombuBroker

__all__ = ["KombuBroker"]
