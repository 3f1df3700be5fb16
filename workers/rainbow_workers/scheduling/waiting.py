"""The waiting room: jobs for which no cluster has room now, until an event makes room.

They wait in the queues `rainbow.waiting.*`, durable. This worker holds a window of them, unacknowledged, and decides on
them when something changed: a report, the end of a job, a cluster that comes, is resumed or is heard of again. A new
job only comes here when nothing can start it at once, or when others wait for the same clusters.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rainbow import topology
from rainbow.brokers.base import Broker, Consumer, Delivery, Receipt
from rainbow.models.cluster import Revocation
from rainbow.models.job import JobRecord
from rainbow.models.shares import ShareTerms
from rainbow.models.waiting import WaitingSettings
from rainbow_workers.audit import Audit
from rainbow_workers.clusters.cache import ClusterCache
from rainbow_workers.clusters.depth import DepthPolicy
from rainbow_workers.clusters.idle import has_free
from rainbow_workers.clusters.sync import CacheSync
from rainbow_workers.scheduling.answers import first_answers
from rainbow_workers.scheduling.contention import Contention
from rainbow_workers.scheduling.decide import FEW, Decider
from rainbow_workers.scheduling.dispatcher import Dispatcher
from rainbow_workers.scheduling.fair_share import FairShare
from rainbow_workers.scheduling.lanes import Lanes
from rainbow_workers.scheduling.limits import Limits
from rainbow_workers.scheduling.listening import HELD_MOST, LISTEN
from rainbow_workers.scheduling.outgoing import Outgoing
from rainbow_workers.scheduling.pending_job import PendingJob, note_submission, of_two
from rainbow_workers.scheduling.publishing import revoked
from rainbow_workers.scheduling.round import Round
from rainbow_workers.scheduling.share_terms import SharePolicy
from rainbow_workers.scheduling.submissions import SubmissionReader
from rainbow_workers.scheduling.window import Entry, Window
from rainbow_workers.stores.base import Store
from rainbow_workers.worker import Task

log = logging.getLogger(__name__)

#: Jobs given back in one message batch.
_BATCH = 500
#: Seconds after which a full window in which nothing fits makes way for others in the queue: at first, and at most.
_TURN_FIRST, _TURN_MOST = 1.0, 60.0
#: The share of the window of a queue from which on jobs of others go elsewhere.
_FULL = 0.8
#: Seconds between two looks at how long deliveries are held.
_TIDY = 1.0


@dataclass(frozen=True, slots=True)
class WaitingPolicy:
    """Attributes:
    patience: Seconds for which others may pass a kind of job whose turn it is, before one of its jobs is bound to the
        cluster that will have room first.
    window: Jobs held of each queue.
    depth: How much work clusters get ahead.
    shares: Whose turn it is.
    refuse_running: A submission beyond `max_running` is refused: else it waits.
    max_array: Elements of a job array.
    """

    patience: float = 30.0
    window: int = 2500
    depth: DepthPolicy = field(default_factory=DepthPolicy)
    shares: SharePolicy = field(default_factory=SharePolicy)
    refuse_running: bool = False
    max_array: int = 1_000_000


def waiting_policy(settings: WaitingSettings) -> WaitingPolicy:
    """The policy of the settings `scheduler.waiting`."""
    weights = {user: ShareTerms(weight=weight) for user, weight in settings.weights.items()}
    users = weights | {user: terms.over(weights.get(user, ShareTerms())) for user, terms in settings.users.items()}
    shares = SharePolicy(users, settings.accounts, settings.half_life)
    depth = DepthPolicy(settings.share, settings.seconds)
    return WaitingPolicy(
        settings.patience,
        settings.window,
        depth,
        shares,
        refuse_running=settings.over_limit == "refuse",
        max_array=settings.max_array,
    )


class WaitingRoom(Task):
    name = "waiting"
    queue = f"{topology.WAITING}.*"

    def __init__(
        self,
        broker: Broker,
        store: Store,
        world: ClusterCache,
        reader: SubmissionReader,
        decider: Decider,
        dispatcher: Dispatcher,
        outgoing: Outgoing,
        sync: CacheSync,
        contention: Contention,
        fair_share: FairShare,
        policy: WaitingPolicy,
        limits: Limits,
        *,
        audit: Audit | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._broker = broker
        self._store = store
        self._world = world
        self._reader = reader
        self._decider = decider
        self._dispatcher = dispatcher
        self._outgoing = outgoing
        self._sync = sync
        self._contention = contention
        self._fair_share = fair_share
        self._policy = policy
        self._limits = limits
        self._audit = audit or Audit()
        self._clock = clock
        self._window = Window()
        #: When the oldest job in it was submitted, in seconds since 1970; None when there is none.
        self.oldest: float | None = None
        self._consumer: Consumer | None = None
        #: What the last round saw: `relief` and `generation` of the cache.
        self._seen = (-1, -1)
        self._at_hand: list[PendingJob] = []
        self._revocations: Sequence[Revocation] = ()
        self._contended_at = (-1, -1)
        self._tidy_at = 0.0
        #: From where to go on hearing of jobs that ended, and since when those that came are not looked at.
        self._heard, self._looked_at = "", 0.0
        self._turn_at, self._turn_after = 0.0, _TURN_FIRST

    def consume(self, broker: Broker, prefetch: int) -> Consumer:
        return Lanes(broker, topology.waiting_queues(), self._policy.window)

    @property
    def listens(self) -> bool:
        return len(self._window) > 0

    def ready(self) -> None:
        self._sync.follow()
        self._fair_share.sync()
        if self._limits.refresh() and any(kind.limited for kind in self._window.kinds.values()):
            self._seen = (-1, -1)
        if not self.listens or self._changed():
            return
        left = self._window.next_due() - self._clock()
        if left > 0 and self._store.clusters.wait(self._world.version, min(LISTEN, left)):
            self._sync.refresh()

    def handle(self, deliveries: Sequence[Delivery], consumer: Consumer) -> None:
        if consumer is not self._consumer:
            # What the consumer before this one had taken is with the broker again, and comes again.
            self._window.clear()
            self._consumer = consumer
            self._heard, self._looked_at = "", 0.0
        now = self._clock()
        others = [*self._dispatcher.pending(), *self._overdue(now), *self._revoked()]
        for delivery in deliveries:
            pending = self._reader.read(delivery)
            if pending.job is None or pending.refusal is not None:
                others.append(pending)
            else:
                pending.parked = True
                self._hold(pending, consumer, now)
        if others:
            self._at_hand = others
            self._dispatcher.dispatch(others, consumer)
            self._note(others)
            self._park(consumer, now)
        if deliveries or others or self._changed():
            self._release(consumer, now)
        if now >= self._tidy_at:
            self._tidy_at = now + _TIDY
            self._drop_ended(consumer, now)
            self.oldest = self._window.oldest()
            self._contention.full = self._window.full(int(_FULL * self._policy.window))
            self._give_way(consumer, now)
        if self._contended_at != (known := (self._window.version, self._world.generation)):
            self._contended_at = known
            self._contention.clusters = self._contended()

    def abandon(self) -> list[Delivery]:
        """The jobs that were being decided and dispatched; the others wait on."""
        jobs, self._at_hand = self._at_hand, []
        for pending in jobs:
            self._window.remove(pending)
        return [pending.delivery for pending in jobs]

    # -- releasing ----------------------------------------------------------------------------------------

    def _changed(self) -> bool:
        return self._seen != (self._world.relief, self._world.generation)

    def _overdue(self, now: float) -> list[PendingJob]:
        """Jobs whose time has come. Those of their kind may also ask the clusters again that refused them."""
        out: list[PendingJob] = []
        for entry in self._window.due(now):
            kind = self._window.of_kind(entry) or [entry]
            if entry.pending.job is not None and entry.pending.job.tried:
                for other in kind:
                    job = other.pending.job
                    assert job is not None
                    self._window.remove(other.pending)
                    job.tried = {c: r for c, r in job.tried.items() if not r.retryable}
                    self._window.add(other.pending, now).since = other.since
            self._window.remove(entry.pending)
            out.append(entry.pending)
        return out

    def _revoked(self) -> list[PendingJob]:
        """Jobs whose token was revoked while they waited."""
        revocations = self._world.revocations
        if revocations is self._revocations:
            return []
        self._revocations = revocations
        found = [e.pending for e in self._window if e.pending.job is not None and revoked(e.pending.job, revocations)]
        for pending in found:
            self._window.remove(pending)
        return found

    def _note(self, jobs: Sequence[PendingJob]) -> None:
        for pending in jobs:
            if pending.refusal is not None:
                note_submission(self._audit, pending)

    def _release(self, consumer: Consumer, now: float) -> None:
        """Dispatch whatever has room now."""
        while True:
            self._seen = (self._world.relief, self._world.generation)
            round_ = Round(self._window, self._policy.patience, now, self._fair_share)
            self._at_hand = round_.at_hand
            commit = self._dispatcher.release(round_)
            if not commit.decided.jobs:
                return
            self._dispatcher.finish(commit, consumer)
            self._note(commit.decided.jobs)
            self._park(consumer, now)
            self._turn_at, self._turn_after = 0.0, _TURN_FIRST
            if not round_.full:
                return

    def _park(self, consumer: Consumer, now: float) -> None:
        """Jobs that were decided and wait on come back into the window."""
        parked, self._dispatcher.parked = self._dispatcher.parked, []
        for pending in parked:
            self._hold(pending, consumer, now)

    def _hold(self, pending: PendingJob, consumer: Consumer, now: float) -> None:
        """Put a job into the window, in place of another copy of it."""
        known = self._window.get(pending)
        if known is not None and known.pending is not pending:
            stays, goes = of_two(known.pending, pending)
            consumer.ack([goes.delivery])
            if stays is not pending:
                return
        self._window.add(pending, now)

    # -- the window ---------------------------------------------------------------------------------------

    def _drop_ended(self, consumer: Consumer, now: float) -> None:
        """Jobs that ended while they waited, as those that were cancelled, leave the queue: from then on they cannot
        start, whatever the store loses."""
        if not len(self._window):
            self._heard, self._looked_at = "", 0.0
            return
        moved: set[str] = set()
        while True:
            self._heard, more = self._store.dependencies.moved(self._heard, 0.0)
            moved.update(more)
            if not more:
                break
        since, self._looked_at = self._looked_at, now
        entries = [e for e in self._window if e.since >= since or e.pending.id in moved]
        for start in range(0, len(entries), _BATCH):
            part = entries[start : start + _BATCH]
            records = self._store.jobs.get([e.pending.id for e in part])
            over = [
                (entry.pending, record)
                for entry, record in zip(part, records, strict=True)
                if record is not None and record.terminal and _of(record, entry.pending)
            ]
            if over:
                self._drop([pending for pending, _ in over], [record for _, record in over], consumer)

    def _drop(self, jobs: Sequence[PendingJob], records: Sequence[JobRecord], consumer: Consumer) -> None:
        for pending in jobs:
            self._window.remove(pending)
        deliveries = [pending.delivery for pending in jobs]
        self._broker.publish(first_answers(jobs, records)).then(lambda _: consumer.ack(deliveries))

    def _give_way(self, consumer: Consumer, now: float) -> None:
        """Give back what was held for long; and all of a full window in which nothing fits, since others may: unless
        there is no room for anything."""
        back = [e for e in self._window if now - e.since > HELD_MOST]
        if len(self._window) >= self._policy.window and self._is_room():
            if not self._turn_at:
                self._turn_at = now + self._turn_after
            elif now >= self._turn_at:
                back = self._behind_which_others_wait()
                self._turn_after = min(_TURN_MOST, 2 * self._turn_after)
                self._turn_at = now + self._turn_after
        for start in range(0, len(back), _BATCH):
            self._give_back(back[start : start + _BATCH], consumer)

    def _is_room(self) -> bool:
        with self._world.lock:
            return any(has_free(self._world, name) for name in self._world.clusters)

    def _behind_which_others_wait(self) -> list[Entry]:
        lanes: dict[str, list[Entry]] = {}
        for entry in self._window:
            lanes.setdefault(entry.pending.delivery.queue, []).append(entry)
        full = {q: found for q, found in lanes.items() if len(found) >= self._policy.window}
        return [e for q, found in full.items() if self._broker.stats(q).messages for e in found]

    def _give_back(self, entries: Sequence[Entry], consumer: Consumer) -> None:
        """To the end of the queue, as a new message: a requeued one counts as a failed delivery, and comes first."""
        messages = [self._outgoing.to_waiting(e.pending) for e in entries]
        deliveries = [e.pending.delivery for e in entries]
        for entry in entries:
            self._window.remove(entry.pending)

        def settle(receipt: Receipt) -> None:
            taken = [d for d, o in zip(deliveries, receipt.outcomes, strict=True) if o is None]
            consumer.ack(taken)
            consumer.requeue([d for d, o in zip(deliveries, receipt.outcomes, strict=True) if o is not None])

        self._broker.publish(messages).then(settle)

    def _contended(self) -> frozenset[str] | None:
        """The clusters that jobs in the window could use."""
        out: set[str] = set()
        with self._world.lock:
            for kind in self._window.kinds.values():
                entry = kind.first()
                if entry is None or entry.pending.job is None or kind.limited:
                    continue
                names = self._decider.candidates(entry.pending.job)
                if len(names) > FEW:
                    return None
                out.update(names)
        return frozenset(out)


def _of(record: JobRecord, pending: PendingJob) -> bool:
    """Whether the record is of this job, and not of another user's under its id."""
    return pending.job is not None and record.user in (None, pending.job.user)
