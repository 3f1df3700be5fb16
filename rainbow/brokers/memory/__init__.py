"""A broker inside this process: the reference for what a plugin does, and what tests of other parts run on.

Brokers made with the same ``memory://NAME`` share one hub, which keeps its queues when they close, as a durable
broker does. It behaves like RabbitMQ quorum queues: time to live ends at the head of a queue, messages go back
to where they were, a message dead-lettered in a circle by time alone is dropped.
Two things are simpler: the priority of a message is kept but does not change the order (as on RabbitMQ before
4.0), and a dead-lettered message enters a full queue.
"""

from rainbow.brokers.memory.broker import MemoryBroker

__all__ = ["MemoryBroker"]
