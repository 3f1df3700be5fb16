"""Why a broker took no message: RabbitMQ gives no reason with a nack, so the queue is looked at.

A full queue nacks, and so does one that has no leader (rabbitmq.com/docs/confirms): a node that does not reach the
leader reports no messages and no consumers of it, or does not answer.
"""

from __future__ import annotations

from rainbow.brokers.base import Message, QueueStats
from rainbow.errors import NotFound, PublishFailed, QueueFull, RainbowError, Unroutable


def reason(message: Message, queue: str, found: QueueStats | BaseException) -> RainbowError:
    """The error of a nacked message by what was found when its queue was looked at: its numbers, or an error."""
    if isinstance(found, NotFound):
        return Unroutable(f"there is no queue {queue!r} any more")
    if isinstance(found, BaseException) or not (found.messages or found.consumers):
        return PublishFailed(f"queue {queue!r} takes no messages: it has no leader at the moment, try again")
    if found.messages:
        return QueueFull(f"queue {queue!r} took no message: it is full ({found.messages} messages)")
    return unknown(message)


def unknown(message: Message) -> PublishFailed:
    """The error where there is nothing to be found out."""
    return PublishFailed(
        f"the broker refused a message for {message.routing_key!r} from exchange {message.exchange!r} without a "
        "reason: try again"
    )
