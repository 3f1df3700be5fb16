"""Barriers: "everything that was published before this message is recorded".

The recorders' queue has one consumer at a time, which records in the order of the queue. So once it has met a barrier,
the ledger has all events that were in the queue when the barrier was published.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rainbow import codec, topology
from rainbow.brokers.base import Broker, Consumer, Delivery, Message
from rainbow.client.mailbox import Mailbox, Slot
from rainbow.security import signing
from rainbow_workers.headers import KIND
from rainbow_workers.keys import ClusterKeys

#: `rainbow-kind` of a barrier.
BARRIER = "barrier"
#: `rainbow-kind` of a recorder's message to itself.
MARKER = "marker"
#: Seconds after which a barrier that was not confirmed is sent again: its answer, or it itself, may be lost.
AGAIN = 10.0


@dataclass(slots=True, eq=False)
class Barrier:
    """A barrier that was sent. `passed` once it is confirmed; `overdue` when another one is to be sent."""

    slot: Slot
    sent_at: float
    _passed: bool = False

    @property
    def passed(self) -> bool:
        if not self._passed and self.slot.wait(0) is not None:
            self._passed = True
        return self._passed

    @property
    def overdue(self) -> bool:
        return time.monotonic() - self.sent_at > AGAIN


def send(broker: Broker, mailbox: Mailbox, keys: ClusterKeys) -> Barrier:
    """Publish a barrier behind all events that the broker has now."""
    slot = mailbox.open()
    body = codec.encode_json({"version": 1, "barrier": slot.id})
    headers = {KIND: BARRIER, signing.HEADER: signing.sign(keys.own, body)}
    message = Message("", topology.RECORDER_QUEUE, body, reply_to=slot.address, correlation_id=slot.id, headers=headers)
    broker.publish([message])
    return Barrier(slot, time.monotonic())


def sent_by(name: str, keys: ClusterKeys) -> Message:
    """A marker: it comes back to the recorder that calls itself `name`."""
    body = codec.encode_json({"version": 1, "marker": name})
    headers = {KIND: MARKER, signing.HEADER: signing.sign(keys.own, body)}
    return Message("", topology.RECORDER_QUEUE, body, headers=headers, mandatory=False)


class Order:
    """A recorder's side: which barriers are confirmed, and when.

    When a consumer takes over, messages that were ready may come before those that the consumer before it held. So the
    recorder publishes a marker with the first delivery of a new subscription. Once the marker comes back, it has had
    everything that was published before the takeover, and answers the barriers that it has met.
    """

    def __init__(self, keys: ClusterKeys) -> None:
        self._keys = keys
        self._subscription: tuple[Consumer, int] | None = None
        self._name = ""
        self._sent_at = 0.0
        self._known = False
        self._answers: list[Message] = []

    @property
    def known(self) -> bool:
        """Whether everything has come that was published before this subscription took over."""
        return self._known

    def begin(self, deliveries: Sequence[Delivery], consumer: Consumer) -> list[Message]:
        """Look at a batch before it is read. Returns the marker that is to be published, if one is."""
        now = time.monotonic()
        subscription = (consumer, deliveries[-1].epoch) if deliveries else self._subscription
        if subscription != self._subscription:
            self._subscription, self._known = subscription, False
            self._name, self._sent_at = str(uuid.uuid4()), 0.0
            self._answers.clear()  # the sender of a barrier sends another one
        if self._subscription is None or self._known or now - self._sent_at < AGAIN:
            return []
        self._sent_at = now
        return [sent_by(self._name, self._keys)]

    def take(self, delivery: Delivery) -> None:
        """Note a marker or a barrier.

        Raises:
            BadSignature: when no worker sent it.
        """
        signing.check(self._keys.own, delivery.body, delivery.headers.get(signing.HEADER))
        if delivery.headers.get(KIND) == MARKER:
            self._known = self._known or codec.decode(delivery.body).get("marker") == self._name
        elif topology.may_be_answered(delivery.reply_to):
            answer = Message("", delivery.reply_to or "", delivery.body, correlation_id=delivery.correlation_id)
            self._answers.append(replace(answer, mandatory=False))

    def answers(self) -> list[Message]:
        """The answers to the barriers that have passed: call it once the batch is recorded."""
        if not self._known:
            return []
        answers, self._answers = self._answers, []
        return answers
