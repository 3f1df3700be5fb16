"""The recorder worker: events of jobs into the ledger, and news to those who watch."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from rainbow import codec, signing, topology
from rainbow.brokers.base import Broker, Consumer, Delivery, Message, Receipt
from rainbow.errors import BadSignature, InvalidInput, RainbowError, StoreUnavailable
from rainbow.models.control import ControlReply
from rainbow.models.job import JobEvent
from rainbow.models.wire import parse
from rainbow_workers import dead
from rainbow_workers.audit import Audit
from rainbow_workers.failing import Failing
from rainbow_workers.following import Follower
from rainbow_workers.keys import ClusterKeys
from rainbow_workers.stores.base import Recorded, Store
from rainbow_workers.ticket import RECORDED, REGISTRATION
from rainbow_workers.worker import Task

log = logging.getLogger(__name__)

CLUSTER = "rainbow-cluster"


class Recorder(Task):
    name = "recorder"
    queue = topology.RECORDER_QUEUE

    def __init__(
        self,
        broker: Broker,
        store: Store,
        keys: ClusterKeys,
        follower: Follower,
        failing: Failing,
        *,
        max_bytes: int,
        max_depth: int,
        audit: Audit | None = None,
    ) -> None:
        self._audit = audit or Audit()
        self._broker = broker
        self._store = store
        self._keys = keys
        self._follower = follower
        self._failing = failing
        self._max_bytes = max_bytes
        self._max_depth = max_depth

    def ready(self) -> None:
        self._follower.follow()

    def handle(self, deliveries: Sequence[Delivery], consumer: Consumer) -> None:
        events: list[JobEvent] = []
        messages: list[Message] = []
        for delivery in deliveries:
            try:
                events.extend(self._read(delivery))
            except StoreUnavailable:
                raise  # of the event nothing is wrong
            except RainbowError as exc:
                log.warning("event refused", extra={"action": "refuse-event", "code": exc.code, "detail": exc.message})
                messages.append(dead.letter(delivery, exc.code, exc.message))
                self._audit.note(None, "event", delivery.routing_key, exc.code, exc.message)
        if events:
            recorded = self._store.jobs.record(events)
            self._failing.note(events, recorded)
            for result in recorded:
                messages.extend(news(result))
        if not messages:
            consumer.ack(deliveries)
            return

        def settle(receipt: Receipt) -> None:
            lost = any(o is not None and m.mandatory for o, m in zip(receipt.outcomes, messages, strict=True))
            # Recording twice changes nothing, so a batch whose dead letter was not taken simply comes again.
            consumer.requeue(deliveries) if lost else consumer.ack(deliveries)

        self._broker.publish(messages).then(settle)

    def _read(self, delivery: Delivery) -> list[JobEvent]:
        headers = delivery.headers
        signature, cluster = headers.get(signing.HEADER), headers.get(CLUSTER)
        if cluster is None:
            signing.check(self._keys.own, delivery.body, signature)
            if headers.get(RECORDED):
                return []
        else:
            registration = headers.get(REGISTRATION)
            if not isinstance(cluster, str) or not isinstance(registration, str):
                raise BadSignature("the events name no cluster and registration")
            signing.check(self._keys.of(cluster, registration), delivery.body, signature)
            if not self._follower.is_current(cluster, registration):
                raise BadSignature(f"the events are of an older registration of cluster {cluster}")
        data = codec.decode(delivery.body, delivery.content_type, max_bytes=self._max_bytes, max_depth=self._max_depth)
        listed = data.get("events", [data])
        if not isinstance(listed, list):
            raise InvalidInput("field 'events' must be a list of events")
        events = [parse(JobEvent, item) for item in listed]
        for event in events:
            if cluster is not None and event.cluster != cluster:
                raise BadSignature(f"an event of cluster {str(event.cluster)[:80]!r} came from {cluster!r}")
        return events


def news(result: Recorded) -> list[Message]:
    """What to tell those who watch the job: its record, to each of them."""
    if not result.watchers or not result.applied:
        return []
    body = codec.encode_json(
        ControlReply(ok=True, result={"jobs": [result.record.model_dump(exclude_none=True)]}).model_dump(
            exclude_none=True
        )
    )
    return [
        Message("", address, body, correlation_id=correlation, mandatory=False)
        for address, correlation in result.watchers
    ]
