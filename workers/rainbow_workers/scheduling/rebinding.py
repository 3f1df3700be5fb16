"""Rebinding: what waits in the queue of a cluster that cannot be reached goes to clusters that can run it now. So does
what waits for an agent that takes no jobs since its executor starts none, once another cluster has nothing to do.

Only dispatches that no agent has ever had in its hands are taken back: the others may have begun, and wait for their
agent until their time in the queue is over (`queues.dispatch_timeout`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from rainbow import topology
from rainbow.brokers.base import Broker, Consumer, Delivery, Message, Receipt
from rainbow.errors import NotFound, RainbowError
from rainbow.models.job import Reason
from rainbow_workers.clusters.cache import ClusterCache
from rainbow_workers.clusters.idle import is_idle
from rainbow_workers.headers import KIND, REBOUND
from rainbow_workers.scheduling.decide import Decider
from rainbow_workers.scheduling.submissions import SubmissionReader

log = logging.getLogger(__name__)

#: Why it came back.
UNREACHABLE = Reason(code="timed-out", detail="its cluster cannot be reached or starts no jobs, and had not taken it")

#: Seconds after which a cluster that starts no jobs counts here as one that cannot be reached.
_CLOSED = 5.0
#: Seconds between two looks.
_EVERY = 1.0
#: Dispatches looked at in one go: more than an agent holds, whose deliveries come first.
_BATCH = 1000
#: Seconds until a queue is looked at again in which there was nothing to take back. A look at what is not taken counts
#: as a delivery, of which a dispatch has `Limits.delivery_limit`.
_EMPTY, _NOT_OURS = 5.0, 300.0


class Rebinding:
    """Takes dispatches back. Used by one thread."""

    def __init__(
        self,
        broker: Broker,
        world: ClusterCache,
        intake: SubmissionReader,
        decider: Decider,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._broker = broker
        self._world = world
        self._intake = intake
        self._decider = decider
        self._clock = clock
        self._next = 0.0
        #: Queues that are left alone, and until when.
        self._later: dict[str, float] = {}
        self._closed_at: dict[str, float] = {}

    def look(self) -> None:
        """Take back from one queue, if it is time to look."""
        now = self._clock()
        if now < self._next:
            return
        self._next = now + _EVERY
        with self._world.lock:
            lost = self._world.unreachable | self._long_closed(now)
            others = self._world.clusters.keys() - lost - self._world.unserved
        self._later = {name: until for name, until in self._later.items() if name in lost}
        name = next((name for name in sorted(lost) if self._later.get(name, 0.0) <= now), None)
        if name is None or not others:
            return
        try:
            pause = self._take_back(name)
        except NotFound:
            pause = _EMPTY
        except RainbowError as exc:
            log.debug("cannot look", extra={"action": "rebind", "cluster": name, "detail": exc.message})
            pause = _EMPTY
        if pause:
            self._later[name] = now + pause

    def _long_closed(self, now: float) -> frozenset[str]:
        """Clusters that have started no jobs for a while, if another one has nothing to do."""
        world = self._world
        self._closed_at = {name: self._closed_at.get(name, now) for name in world.closed.reasons}
        closed = frozenset(name for name, since in self._closed_at.items() if since <= now - _CLOSED)
        return closed if closed and any(is_idle(world, n) for n in world.clusters) else frozenset()

    def _take_back(self, cluster: str) -> float:
        """How many seconds to leave its queue alone."""
        queue = topology.jobs_queue(cluster)
        wanted = min(_BATCH, self._broker.stats(queue).messages)
        if not wanted:
            return _EMPTY
        consumer = self._broker.consume(queue, prefetch=wanted)
        # All that is delivered here is looked at: what would go back unseen counts as delivered, and stays for good.
        taken: list[Delivery] = []
        while len(taken) < wanted and (more := consumer.take(wanted - len(taken), 1.0)):
            taken += more
        free = [delivery for delivery in taken if self._fits_elsewhere(delivery)]
        kept = set(taken).difference(free)
        consumer.requeue([delivery for delivery in taken if delivery in kept])
        if free:
            self._send_back(cluster, free, consumer)
            return 0.0
        consumer.cancel()
        return _NOT_OURS if taken else _EMPTY

    def _fits_elsewhere(self, delivery: Delivery) -> bool:
        """Whether no agent ever had it, and a cluster that is served can run it."""
        if delivery.redelivered:
            return False
        try:
            dispatch, _ = self._intake.open_dispatch(delivery)
        except RainbowError:
            return False
        job = self._intake.returned(delivery, UNREACHABLE).job
        if job is None or dispatch.repeated:
            return False
        with self._world.lock:
            names = self._decider.candidates(job)
            away = self._world.unreachable | self._world.unserved | self._world.closed.reasons.keys()
        return any(name not in away for name in names)

    def _send_back(self, cluster: str, deliveries: Sequence[Delivery], consumer: Consumer) -> None:
        """The way of all dispatches that come back."""

        def settle(receipt: Receipt) -> None:
            pairs = list(zip(deliveries, receipt.outcomes, strict=True))
            consumer.ack([delivery for delivery, outcome in pairs if outcome is None])
            consumer.requeue([delivery for delivery, outcome in pairs if outcome is not None])
            consumer.cancel()

        log.info("%d dispatches taken back", len(deliveries), extra={"action": "rebind", "cluster": cluster})
        self._broker.publish([_returned(cluster, delivery) for delivery in deliveries]).then(settle)


def _returned(cluster: str, delivery: Delivery) -> Message:
    return Message(
        topology.REJECTED,
        cluster,
        delivery.body,
        content_type=delivery.content_type or "",
        message_id=delivery.message_id,
        priority=delivery.priority,
        headers={**delivery.headers, KIND: REBOUND},
    )
