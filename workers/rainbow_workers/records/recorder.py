"""The recorder worker: events of jobs into the ledger, and news to those who watch."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from rainbow import codec, topology
from rainbow.brokers.base import Broker, Consumer, Delivery, Message, Receipt
from rainbow.errors import BadSignature, InvalidInput, RainbowError, StoreUnavailable
from rainbow.models.cluster import StateReport
from rainbow.models.control import AgentCommand
from rainbow.models.job import REPORTED, JobEvent
from rainbow.models.wire import parse
from rainbow.security import signing
from rainbow_workers import barriers, commands, dead_letters, grants
from rainbow_workers.audit import Audit
from rainbow_workers.clusters.cache import REPORTED_EPOCH
from rainbow_workers.clusters.circuit_breaker import CircuitBreaker
from rainbow_workers.clusters.sync import CacheSync
from rainbow_workers.events import news
from rainbow_workers.grants import Grant
from rainbow_workers.headers import KIND, RECORDED, REGISTRATION
from rainbow_workers.keys import ClusterKeys
from rainbow_workers.records.run_times import RunTimes
from rainbow_workers.records.seen import Seen
from rainbow_workers.stores.base import Recorded, Sender, Store
from rainbow_workers.worker import Task

log = logging.getLogger(__name__)

CLUSTER = "rainbow-cluster"
#: The code of events that are refused since their sender was never given the attempt.
NOT_GIVEN = "not-given"


class Recorder(Task):
    name = "recorder"
    queue = topology.RECORDER_QUEUE

    def __init__(
        self,
        broker: Broker,
        store: Store,
        keys: ClusterKeys,
        follower: CacheSync,
        failing: CircuitBreaker,
        *,
        max_bytes: int,
        max_depth: int,
        audit: Audit | None = None,
        in_order: Callable[[], bool] = lambda: True,
    ) -> None:
        #: Events about attempts that their sender was never given.
        self.refused = 0
        self.seen = Seen()
        #: When jobs were submitted that started in the batch at hand.
        self._submitted: dict[tuple[str, int], float] = {}
        self._audit = audit or Audit()
        self._broker = broker
        self._store = store
        self._keys = keys
        self._follower = follower
        self._failing = failing
        self._run_times = RunTimes(store)
        self._max_bytes = max_bytes
        self._max_depth = max_depth
        self._in_order = in_order
        #: Clusters that have reported for an epoch of the store: those of the batch at hand, and those whose events are
        #: recorded. What is said here is true once all events are recorded that were published before.
        self._says: dict[str, StateReport] = {}
        self._reported: dict[str, StateReport] = {}
        self._order = barriers.Order(keys)

    def ready(self) -> None:
        self._follower.follow()
        self._run_times.write()

    def handle(self, deliveries: Sequence[Delivery], consumer: Consumer) -> None:
        events: list[JobEvent] = []
        senders: list[Sender | None] = []
        messages = self._order.begin(deliveries, consumer)
        self._says.clear()
        self._submitted.clear()
        for delivery in deliveries:
            try:
                if delivery.headers.get(KIND) in (barriers.BARRIER, barriers.MARKER):
                    self._order.take(delivery)
                    continue
                for event, sender in self._read(delivery):
                    events.append(event)
                    senders.append(sender)
            except StoreUnavailable:
                raise  # of the event nothing is wrong
            except RainbowError as exc:
                log.warning("event refused", extra={"action": "refuse-event", "code": exc.code, "detail": exc.message})
                messages.append(dead_letters.letter(delivery, exc.code, exc.message))
                self._audit.note(None, "event", delivery.routing_key, exc.code, exc.message)
        if events:
            recorded = self._store.jobs.record(events, senders)
            self._refused(events, senders, recorded)
            self._failing.note(events, recorded)
            self.seen.note(events, recorded, self._submitted)
            self._run_times.note(events, recorded)
            for result in recorded:
                messages.extend(news(result))
            messages.extend(self._cancels(senders, recorded))
        self._reported |= self._says
        if self._reported and self._in_order() and self._order.known:
            reports, self._reported = list(self._reported.values()), {}
            self._store.clusters.report(reports, time.time())
        if self._in_order():
            messages.extend(self._order.answers())
        if not messages:
            consumer.ack(deliveries)
            return

        def settle(receipt: Receipt) -> None:
            lost = any(o is not None and m.mandatory for o, m in zip(receipt.outcomes, messages, strict=True))
            # Recording twice changes nothing, so a batch whose dead letter was not taken simply comes again.
            consumer.requeue(deliveries) if lost else consumer.ack(deliveries)

        self._broker.publish(messages).then(settle)

    def _refused(
        self, events: Sequence[JobEvent], senders: Sequence[Sender | None], recorded: Sequence[Recorded]
    ) -> None:
        """Count, log and audit the events about attempts that their sender was never given: once for each cluster."""
        ids: dict[str, list[str]] = {}
        for event, sender, result in zip(events, senders, recorded, strict=True):
            if result.refused and sender is not None:
                ids.setdefault(sender.cluster, []).append(event.id)
        for cluster, named in ids.items():
            self.refused += len(named)
            detail = f"{len(named)} events of cluster {cluster} are about attempts that it was not given"
            log.warning(detail, extra={"action": "refuse-event", "code": NOT_GIVEN, "cluster": cluster})
            self._audit.note(None, "event", sorted(set(named))[:20], NOT_GIVEN, detail)

    def _cancels(self, senders: Sequence[Sender | None], recorded: Sequence[Recorded]) -> list[Message]:
        """Cancels of jobs that their clusters report again after the store lost the record.

        The client that cancelled one meanwhile was told that it will be cancelled: its cluster was not known then.
        """
        out: list[Message] = []
        for sender, result in zip(senders, recorded, strict=True):
            if sender is None or not sender.proven or not result.applied:
                continue
            record = result.record
            if record.cancel_requested and not record.terminal:
                command = AgentCommand(command="cancel", id=record.id, attempt=record.attempt)
                out.append(commands.message(self._keys, sender.cluster, sender.registration, command))
        return out

    def _read(self, delivery: Delivery) -> list[tuple[JobEvent, Sender | None]]:
        headers = delivery.headers
        signature, cluster, registration = (headers.get(name) for name in (signing.HEADER, CLUSTER, REGISTRATION))
        if cluster is None:
            signing.check(self._keys.own, delivery.body, signature)
            if headers.get(RECORDED):
                return []
        else:
            if not isinstance(cluster, str) or not isinstance(registration, str):
                raise BadSignature("the events name no cluster and registration")
            signing.check(self._keys.of(cluster, registration), delivery.body, signature)
            if delivery.exchange and not delivery.routing_key.startswith(topology.event_key(cluster, "")):
                # Where tokens open the broker, RabbitMQ lets only this cluster's agent publish with its key, and only
                # workers publish to the queue itself, when they move messages.
                key = delivery.routing_key[:80]
                raise BadSignature(f"events of cluster {cluster} were published with the routing key {key!r}")
            if not self._follower.is_current(cluster, registration):
                raise BadSignature(f"the events are of an older registration of cluster {cluster}")
        data = codec.decode(delivery.body, delivery.content_type, max_bytes=self._max_bytes, max_depth=self._max_depth)
        listed = data.get("events", [data])
        if not isinstance(listed, list):
            raise InvalidInput("field 'events' must be a list of events")
        events = [parse(JobEvent, item) for item in listed]
        if cluster is not None and isinstance(epoch := data.get("epoch"), int):
            self._says[cluster] = StateReport(
                cluster=cluster, values={REPORTED_EPOCH: epoch}, heartbeat=False, registration=registration
            )
        if cluster is None:
            return [(event, None) for event in events]
        assert isinstance(registration, str)  # checked above
        return [self._from_agent(event, Sender(cluster, registration)) for event in events]

    def _from_agent(self, event: JobEvent, sender: Sender) -> tuple[JobEvent, Sender]:
        """What an agent may say: how the attempt goes. Whose job it is, is in the ledger and in the grant.

        Raises:
            BadSignature: when it speaks for another cluster.
            InvalidInput: for a state that only a scheduler decides.
        """
        if event.cluster != sender.cluster:
            raise BadSignature(f"an event of cluster {str(event.cluster)[:80]!r} came from {sender.cluster!r}")
        if event.state not in REPORTED:
            raise InvalidInput(f"an agent does not report the state {event.state}")
        granted = self._granted(event, sender)
        if granted is not None and event.state == "running":
            self._submitted[event.id, event.attempt] = granted.submitted_at
        element = (granted and granted.element) or (None, None)
        update = {
            "user": granted.user if granted else None,
            "account": None,
            "name": granted.name if granted else None,
            "array": element[0],
            "index": element[1],
            "indices": None,
            "answer": None,
            "grant": None,
        }
        return event.model_copy(update=update), replace(sender, proven=granted is not None)

    def _granted(self, event: JobEvent, sender: Sender) -> Grant | None:
        """The grant that comes with an event, if it is one for this attempt and this sender."""
        if event.grant is None:
            return None
        try:
            grant = grants.verify(self._keys.grant, event.grant)
        except BadSignature:
            return None
        given = (grant.id, grant.attempt, grant.cluster, grant.registration)
        return grant if given == (event.id, event.attempt, sender.cluster, sender.registration) else None
