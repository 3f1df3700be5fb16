"""What was taken from the cluster's queue and is not settled: deliveries, and the jobs on their way into the executor.

Shared by the threads that take and that settle. Every delivery counts from `received` until it is acked, rejected or
requeued here; a `Flight` is one try to submit a job, with all deliveries that hang on it.

The delivery of a job that waits in the executor is kept until it starts: only a message that the broker still has can
go to another cluster (see `recalling`). Kept ones do not count, since nothing is open about them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rainbow import topology
from rainbow.brokers.base import Broker, Consumer, Delivery
from rainbow_agents.executors.base import SubmissionKey
from rainbow_agents.intake.validation import Job

#: Seconds that a delivery is kept at most: RabbitMQ ends a channel that holds one for 30 minutes (`consumer_timeout`).
KEPT_MOST = 600.0
#: Seconds of its life in the queue that a message must have left when it is given back: it must not expire, and so be
#: looked at, before the ledger has the event that says why. As many again for clocks that differ.
LIFE_LEFT = 120.0
#: Seconds after which a recall has come to nothing.
RECALL_WITHIN = 60.0


@dataclass(slots=True, eq=False)
class Kept:
    """A job that may start, and has not as far as is known. `until` is on the monotonic clock. `reason` is why it is
    recalled; empty if it is not."""

    job: Job
    deliveries: list[Delivery]
    until: float
    reason: str = ""


@dataclass(slots=True, eq=False)
class Flight:
    """A job on its way into the executor."""

    job: Job
    mark: SubmissionKey
    since: float
    #: Further deliveries of the same job that came meanwhile: a copy, or the same again after its channel was lost.
    more: list[Delivery] = field(default_factory=list)

    @property
    def deliveries(self) -> list[Delivery]:
        return [self.job.delivery, *self.more]


class InFlight:
    """See the module. `consumer` is there while jobs are taken, and until the last of them is settled."""

    def __init__(self, broker: Broker, cluster: str, prefetch: int) -> None:
        self.consumer: Consumer | None = None
        self.prefetch = prefetch
        self._broker = broker
        self._queue = topology.jobs_queue(cluster)
        self._lock = threading.Lock()
        self._landed = threading.Condition(self._lock)
        self._flights: dict[SubmissionKey, Flight] = {}
        self._by_key: dict[tuple[str, int], Flight] = {}
        self._unsettled = 0
        self.kept = KeptDeliveries(self)

    # -- the queue ---------------------------------------------------------------------------------------------

    def open(self) -> Consumer:
        if self.consumer is None:
            self.consumer = self._broker.consume(self._queue, prefetch=self.prefetch + self.kept.most)
        return self.consumer

    def close(self) -> None:
        """Let go of the queue: what is not settled goes back to it."""
        self.kept.close()
        consumer, self.consumer = self.consumer, None
        if consumer is not None:
            consumer.cancel()

    @property
    def trouble(self) -> str | None:
        """Why the broker gives us nothing from the queue, while it does not."""
        return getattr(self.consumer, "trouble", None)

    @property
    def epoch(self) -> object:
        """The channel of the consumer, where the broker has such."""
        return getattr(self.consumer, "epoch", None)

    def ours(self, delivery: Delivery) -> bool:
        """Whether the broker still counts `delivery` as taken by us, and so gives it to nobody else."""
        if not self._broker.status.connected:
            return False
        return self.epoch is None or self.epoch == delivery.epoch

    # -- deliveries --------------------------------------------------------------------------------------------

    @property
    def unsettled(self) -> int:
        with self._lock:
            return self._unsettled

    def received(self, count: int) -> None:
        with self._lock:
            self._unsettled += count
            self._landed.notify_all()

    def settle(
        self, *, ack: Sequence[Delivery] = (), reject: Sequence[Delivery] = (), requeue: Sequence[Delivery] = ()
    ) -> None:
        consumer = self.consumer
        if consumer is not None:
            if ack:
                consumer.ack(ack)
            if reject:
                consumer.reject(reject)
            if requeue:
                consumer.requeue(requeue)
        with self._lock:
            self._unsettled -= len(ack) + len(reject) + len(requeue)
            self._landed.notify_all()

    # -- flights -----------------------------------------------------------------------------------------------

    def joins(self, job: Job) -> bool:
        """Whether this delivery is of a job that is in flight: it is then settled as that one is."""
        with self._lock:
            flight = self._by_key.get(job.key)
            if flight is None:
                return False
            flight.more.append(job.delivery)
            return True

    def flies(self, key: tuple[str, int]) -> bool:
        return key in self._by_key

    def start(self, flight: Flight) -> None:
        with self._lock:
            self._flights[flight.mark] = flight
            self._by_key[flight.job.key] = flight

    def find(self, mark: SubmissionKey) -> Flight | None:
        with self._lock:
            return self._flights.get(mark)

    def land(self, mark: SubmissionKey) -> Flight | None:
        with self._lock:
            flight = self._flights.pop(mark, None)
            if flight is not None:
                self._by_key.pop(flight.job.key, None)
            if not self._flights:
                self._landed.notify_all()
            return flight

    def late(self, since: float) -> list[SubmissionKey]:
        """Flights that began before `since` (`time.monotonic`)."""
        with self._lock:
            return [f.mark for f in self._flights.values() if f.since < since]

    def abandon(self) -> list[SubmissionKey]:
        """Forget all flights. Gives what they were."""
        with self._lock:
            marks = list(self._flights)
            self._flights.clear()
            self._by_key.clear()
            return marks

    def wait_empty(self, seconds: float) -> bool:
        """Wait until nothing flies, `seconds` at most. Gives whether nothing does."""
        with self._lock:
            return self._landed.wait_for(lambda: not self._flights, seconds)


class KeptDeliveries:
    """Those of jobs that have not started as far as is known, by job. They are not among the unsettled ones."""

    def __init__(self, in_flight: InFlight) -> None:
        #: Whether the executor can take jobs back; and how many deliveries are kept.
        self.wanted = False
        self.most = in_flight.prefetch // 2
        self._in_flight = in_flight
        self._lock = threading.Lock()
        self._jobs: dict[tuple[str, int], Kept] = {}

    def add(self, job: Job, deliveries: Sequence[Delivery]) -> bool:
        """Keep the deliveries of a job that may start from now on. False when they are to be acked."""
        dispatch = job.dispatch
        left = dispatch.assigned_at + dispatch.lives - time.time() - LIFE_LEFT
        with self._lock:
            known = self._jobs.get(job.key)
            if not self.wanted or left <= 0 or (known is None and len(self._jobs) >= self.most):
                return False
            before = [d for d in known.deliveries if self._in_flight.ours(d)] if known is not None else []
            until = time.monotonic() + min(KEPT_MOST, left)
            self._jobs[job.key] = Kept(job, [*before, *deliveries], until, known.reason if known is not None else "")
        self._in_flight.received(-len(deliveries))
        return True

    def get(self, key: tuple[str, int]) -> Kept | None:
        return self._jobs.get(key)

    def recall(self, reasons: Mapping[tuple[str, int], str]) -> list[tuple[str, int]]:
        """Note that these are to be given back. Returns those that can be."""
        out = []
        with self._lock:
            for key, reason in reasons.items():
                kept = self._jobs.get(key)
                if (
                    kept is not None
                    and time.monotonic() < kept.until
                    and any(map(self._in_flight.ours, kept.deliveries))
                ):
                    kept.reason = reason
                    out.append(key)
        return out

    def pop(self, key: tuple[str, int]) -> list[Delivery]:
        """From now on these deliveries are unsettled ones."""
        with self._lock:
            kept = self._jobs.pop(key, None)
        deliveries = [] if kept is None else kept.deliveries
        self._in_flight.received(len(deliveries))
        return deliveries

    def ack(self, keys: Iterable[tuple[str, int]]) -> None:
        acks = [delivery for key in keys if key in self._jobs for delivery in self.pop(key)]
        if acks:
            self._in_flight.settle(ack=acks)

    def tidy(self) -> None:
        """Ack what was kept for long enough, and forget what the broker has given out again."""
        now = time.monotonic()
        with self._lock:
            old = [key for key, kept in self._jobs.items() if now >= kept.until + (RECALL_WITHIN if kept.reason else 0)]
            for key in [k for k, kept in self._jobs.items() if not any(map(self._in_flight.ours, kept.deliveries))]:
                del self._jobs[key]
        self.ack(old)

    def close(self) -> None:
        """The queue is let go of. What is being recalled goes back to it."""
        self.ack([key for key, kept in list(self._jobs.items()) if not kept.reason])


__all__ = ["Flight", "InFlight", "Kept", "KeptDeliveries"]
