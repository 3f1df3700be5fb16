"""What was taken from the cluster's queue and is not settled: deliveries, and the jobs on their way into the executor.

Shared by the threads that take and that settle. Every delivery counts from `received` until it is acked, rejected or
requeued here; a `Flight` is one try to submit a job, with all deliveries that hang on it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from rainbow import topology
from rainbow.brokers.base import Broker, Consumer, Delivery
from rainbow_agents.executors.base import SubmissionKey
from rainbow_agents.intake.validation import Job


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

    # -- the queue ---------------------------------------------------------------------------------------------

    def open(self) -> Consumer:
        if self.consumer is None:
            self.consumer = self._broker.consume(self._queue, prefetch=self.prefetch)
        return self.consumer

    def close(self) -> None:
        """Let go of the queue: what is not settled goes back to it."""
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


__all__ = ["Flight", "InFlight"]
