"""The broker plugin for whatever kombu speaks: Redis and Valkey (the default when everything is embedded), AMQP
through py-amqp (``kombu+amqp://``), kombu's own memory transport (``kombu+memory://``). See `broker`."""

from rainbow.brokers.kombu.broker import KombuBroker

__all__ = ["KombuBroker"]
