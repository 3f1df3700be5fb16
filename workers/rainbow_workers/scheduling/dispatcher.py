"""The dispatcher: takes batches of pending jobs through the stages decide, commit, publish and settle."""

from __future__ import annotations

import queue
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from rainbow import topology
from rainbow.brokers.base import Broker, Consumer
from rainbow_workers.clusters.cache import ClusterCache
from rainbow_workers.keys import ClusterKeys
from rainbow_workers.scheduling.committing import Commit, Committing
from rainbow_workers.scheduling.decide import Decider
from rainbow_workers.scheduling.deciding import Deciding, Waiting
from rainbow_workers.scheduling.durations import Durations
from rainbow_workers.scheduling.failover import RateLimiter
from rainbow_workers.scheduling.fair_share import FairShare
from rainbow_workers.scheduling.limits import Limits
from rainbow_workers.scheduling.pending_job import PendingJob
from rainbow_workers.scheduling.publishing import Publishing
from rainbow_workers.scheduling.settling import settle
from rainbow_workers.scheduling.stages import Decided, Published
from rainbow_workers.stores.base import Store


class Dispatcher:
    """Dispatches the jobs of one consumer. One thread calls it; receipts settle in the broker's thread."""

    def __init__(
        self,
        broker: Broker,
        store: Store,
        world: ClusterCache,
        decider: Decider,
        keys: ClusterKeys,
        ring: Callable[[], Any],
        *,
        turns: RateLimiter | None = None,
        fair_share: FairShare | None = None,
        limits: Limits | None = None,
        refuse_running: bool = False,
        reserve_s: float = 60.0,
        lives: float = 0.0,
        lane: Callable[[str], str] = topology.waiting_lane,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._refuse_running = refuse_running
        self._deciding = Deciding(store, world, decider, turns or RateLimiter(100.0), rng, limits)
        #: How long jobs stayed in each stage, since the start.
        self.durations = Durations()
        self._committing = Committing(store, world, self._deciding, reserve_s=reserve_s, clock=clock)
        self._publishing = Publishing(broker, store, world, keys, ring, fair_share, lives=lives, lane=lane)
        #: Jobs whose dispatch found no queue, or a full one: they are decided again with the next batch.
        self._again: queue.SimpleQueue[PendingJob] = queue.SimpleQueue()
        #: Jobs of the waiting room that were decided and have to wait on. Of the calling thread.
        self.parked: list[PendingJob] = []

    @property
    def outcomes(self) -> Counter[str]:
        """How many jobs ended how, since the start."""
        return self._publishing.outcomes

    def pending(self) -> list[PendingJob]:
        """Jobs to be dispatched once more."""
        out: list[PendingJob] = []
        while not self._again.empty():
            out.append(self._again.get_nowait())
        return out

    def dispatch(self, jobs: Sequence[PendingJob], consumer: Consumer) -> None:
        """All stages. Raises StoreUnavailable when nothing was published: the caller gives the batch back."""
        self.finish(self.begin(jobs), consumer)

    def begin(self, jobs: Sequence[PendingJob]) -> Commit:
        """Decide, and send the assignments to the ledger. Nothing was done when this raises StoreUnavailable."""
        return self._commit(lambda: self._decided(jobs))

    def release(self, waiting: Waiting) -> Commit:
        """`begin` for as many of the waiting jobs as there is room for."""
        return self._commit(lambda: self._deciding.release(waiting, self._clock()))

    def _decided(self, jobs: Sequence[PendingJob]) -> Decided:
        decided = self._deciding.decide(jobs, self._clock())
        return self._deciding.admit(decided, refuse_running=self._refuse_running)

    def _commit(self, decide: Callable[[], Decided]) -> Commit:
        began = time.perf_counter()
        decided = decide()
        self.durations.add("decide", time.perf_counter() - began, len(decided.jobs))
        return self._committing.begin(decided)

    def finish(self, commit: Commit, consumer: Consumer) -> None:
        """Wait for the ledger, publish, and settle when the broker has confirmed. Raises StoreUnavailable."""
        jobs, began = len(commit.decided.jobs), time.perf_counter()
        committed = self._committing.finish(commit)
        self.durations.add("ledger", (known := time.perf_counter()) - began, jobs)
        published = self._publishing.publish(committed)
        self.durations.add("publish", (sent := time.perf_counter()) - known, jobs)
        for pending in published.again:
            self._decide_again(pending)
        self.parked.extend(published.parked)
        published.receipt.then(lambda _: self._settle(published, consumer, sent))

    def drop(self, commit: Commit) -> None:
        """Give a batch up that was begun: its deliveries come again, and find what the ledger has."""
        self._committing.drop(commit)

    def _settle(self, published: Published, consumer: Consumer, sent: float) -> None:
        self.durations.add("confirm", time.perf_counter() - sent, len(published.jobs))
        settled = settle(published)
        for pending in settled.again:
            self._decide_again(pending)
        consumer.ack(settled.ack)
        if settled.requeue:
            consumer.requeue(settled.requeue)

    def _decide_again(self, pending: PendingJob) -> None:
        """With the next batch, as the next attempt: its last one stands in the ledger, and was not sent."""
        assert pending.job is not None
        pending.job.attempt += 1
        pending.messages.clear()
        self._again.put(pending)
