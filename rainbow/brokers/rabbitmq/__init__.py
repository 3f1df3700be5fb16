"""The broker plugin for RabbitMQ (3.10 and later), through pika. One I/O thread owns all AMQP; see `broker`."""

from rainbow.brokers.rabbitmq.broker import RabbitMQBroker

__all__ = ["RabbitMQBroker"]
