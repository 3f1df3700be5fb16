"""What one named memory store holds: plain dictionaries, a version for each change, and what runs out."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from rainbow.jobspec.request import Demand
from rainbow.models.cluster import ClusterRecord, ClusterState, Enrollment, Revocation, StateValue
from rainbow.models.job import BEGUN, HOLDABLE, RANK, STARTED, TERMINAL, UNRUN, JobEvent, JobRecord
from rainbow_workers.stores.base import ANYONE, Asker, Assignment, Changes, Cursor, Epoch, Sender, Tally
from rainbow_workers.stores.history import MAX_MARKS, MAX_MOVED, ON_CLUSTER

#: What somebody has to say about an attempt (see `StoredJob.standing`).
Standing = Literal["all", "proof", "past"] | None


@dataclass(slots=True)
class StoredState:
    """`values` have the time of their report beside them."""

    values: dict[str, tuple[float, StateValue]] = field(default_factory=dict)
    at: float = 0.0
    heartbeat_at: float = 0.0


@dataclass(slots=True)
class Reservation:
    """What an assignment takes on a cluster, and when it expires."""

    cluster: str
    demand: Demand
    until: float


@dataclass(slots=True)
class StoredJob:
    """What is kept of a job id.

    `record` is None while only a cancel was asked for. `registration` is the one that has the attempt of the record;
    `earlier` is the newest attempt of each that had one before. `until`: forgotten then. Of an array, `counts` and
    `exit_code` go into the record.
    """

    record: JobRecord | None = None
    registration: str = ""
    earlier: dict[str, int] = field(default_factory=dict)
    created: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)
    cancel: set[Asker] = field(default_factory=set)
    held: bool = False
    until: float | None = None
    counts: Counter[str] = field(default_factory=Counter)
    exit_code: int | None = None
    jobspec: bytes | None = None

    def cancelled(self, user: str | None) -> bool:
        """Before it was known, was the cancel of a job of this user asked for, by somebody who may?"""
        return ANYONE in self.cancel or f"user:{user}" in self.cancel

    def summarize(self) -> None:
        """Write into the record of an array what is counted."""
        if self.record is not None:
            update = {"counts": dict(+self.counts), "exit_code": self.exit_code}
            self.record = self.record.model_copy(update=update)

    def new_attempt(self, old: int) -> None:
        """The attempt `old` is over."""
        if self.registration:
            self.earlier[self.registration] = old
        self.registration = ""

    def standing(self, attempt: int, sender: Sender | None) -> Standing:
        """What `sender` has to say about `attempt`: all, as a worker and who it was assigned to.

        What it proved; what it had in the past; or nothing.
        """
        if sender is None:
            return "all"
        record = self.record
        if (
            record is not None
            and record.attempt == attempt
            and (record.cluster, self.registration) == (sender.cluster, sender.registration)
        ):
            return "all"
        if sender.proven:
            return "proof"
        had = record is not None and attempt < record.attempt and self.earlier.get(sender.registration, -1) >= attempt
        return "past" if had else None


class Data:
    """Everything one named store holds.

    `changed` has the version at which a part last changed: a part is ``("cluster" | "state" | "reserved", NAME)``,
    ``("groups", "")`` or ``("revocations", "")``.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.usage: dict[int, dict[str, float]] = {}
        self.run_times: dict[str, float] = {}
        self.terms: dict[str, str] = {}
        self.submitted: dict[str, tuple[int, int]] = {}
        #: Job -> who waits for it; the states of those that ended; and the newest that moved, with numbers.
        self.awaited: dict[str, set[str]] = {}
        self.ends: dict[str, str] = {}
        self.moved: deque[tuple[int, str]] = deque(maxlen=MAX_MOVED)
        self.moved_arrays: deque[tuple[int, str]] = deque(maxlen=MAX_MOVED)
        #: Notified when `relieved` rises: the version of the newest change that may make room for a job.
        self.relief = threading.Condition(self.lock)
        self.relieved = 0
        self.first = self.version = int(time.time() * 1e6)
        self.epoch = Epoch(self.version, time.time())
        self.changed: dict[tuple[str, str], int] = {}
        self.clusters: dict[str, ClusterRecord] = {}
        self.states: dict[str, StoredState] = {}
        self.reservations: dict[tuple[str, int], Reservation] = {}
        self.groups: dict[str, frozenset[str]] = {}
        self.revocations: dict[tuple[str, str], Revocation] = {}
        self.jobs: dict[str, StoredJob] = {}
        self.watchers: dict[str, dict[tuple[str, str, Asker], float]] = {}
        self.enrollments: dict[tuple[str, str], Enrollment] = {}

    def touch(self, kind: str, names: Iterable[str] = ("",)) -> None:
        self.version += 1
        self.changed.update({(kind, name): self.version for name in names})
        if kind != "reserved":
            self.relieve()

    def relieve(self) -> None:
        self.relieved = self.version
        self.relief.notify_all()

    def fitting(
        self,
        state: str | None,
        cluster: str | None,
        user: str | None,
        before: Cursor | None,
        array: str | None,
        text: str | None,
    ) -> dict[Cursor, JobRecord]:
        """The jobs that fit all that is given, by their positions, of those after `before`."""
        self.expire()
        wanted = {"state": state, "cluster": cluster, "user": user}
        return {
            (job.created, id): job.record
            for id, job in self.jobs.items()
            if job.record is not None
            and job.record.array == array
            and all(value in (None, getattr(job.record, name)) for name, value in wanted.items())
            and (before is None or (job.created, id) < before)
            and (not text or any(text in (v or "") for v in (id, job.record.name, job.record.user, job.record.detail)))
        }

    def expire(self) -> None:
        """Forget what has run out: called first in every operation."""
        now = time.time()
        late = [key for key, r in self.reservations.items() if r.until <= now]
        for id, attempt in late:
            self.release(id, attempt, self.reservations[id, attempt].cluster)
        for id in [id for id, job in self.jobs.items() if job.until is not None and job.until <= now]:
            del self.jobs[id]
        for id in list(self.watchers):
            self.watchers[id] = {a: until for a, until in self.watchers[id].items() if until > now}
            if not self.watchers[id]:
                del self.watchers[id]
        self.revocations = {key: r for key, r in self.revocations.items() if r.until > now}

    def tally(self) -> dict[tuple[str, str], Tally]:
        """See `rainbow_workers.stores.base.Ledger.tally`."""
        counts: dict[tuple[str, str], Tally] = {}
        with self.lock:
            self.expire()
            for job in self.jobs.values():
                record = job.record
                if record is None or record.account is None or record.user is None or record.indices is not None:
                    continue
                waits, runs = record.state == "held", record.state in ON_CLUSTER
                if waits or runs:
                    old = counts.get((record.account, record.user), Tally())
                    counts[record.account, record.user] = Tally(old.waiting + waits, old.running + runs)
        return counts

    def trim_marks(self, by: Asker | None) -> None:
        """Forget the oldest of too many unknown jobs whose cancel `by` asked for."""
        if by is None:
            return
        marked = [id for id, job in self.jobs.items() if by in job.cancel]
        for id in marked[: max(0, len(marked) - MAX_MARKS)]:
            self.jobs[id].cancel.discard(by)
            if not self.jobs[id].cancel:
                del self.jobs[id]

    # -- arrays ----------------------------------------------------------------------------------------

    def stopped(self, array: str | None) -> bool:
        """Whether no element of this array starts any more: it was cancelled, or ended."""
        job = self.jobs.get(array or "")
        return job is not None and job.record is not None and (job.record.cancel_requested or job.record.terminal)

    def count(self, old: JobRecord | None, new: JobRecord) -> None:
        """A record has changed: count it in its array, and tell of arrays that changed."""
        if new.array is not None and (old is None or old.state != new.state):
            job = self.jobs.setdefault(new.array, StoredJob(until=time.time() + 7 * 86400.0))
            if old is not None:
                job.counts[old.state] -= 1
            job.counts[new.state] += 1
            code = new.returncode if new.terminal else None
            if code is not None:
                job.exit_code = max(job.exit_code or 0, 128 - code if code < 0 else code)
            job.summarize()
        if new.array is not None or new.indices is not None:
            number = self.moved_arrays[-1][0] + 1 if self.moved_arrays else 1
            self.moved_arrays.append((number, new.array or new.id))
            self.relief.notify_all()

    # -- reservations ---------------------------------------------------------------------------------

    def reserve(self, a: Assignment) -> None:
        if a.cluster in self.clusters:
            self.reservations[a.id, a.attempt] = Reservation(a.cluster, a.demand, time.time() + a.reserve_s)
            self.touch("reserved", [a.cluster])

    def release(self, id: str, attempt: int, cluster: str | None) -> None:
        """End the reservation of an attempt, if it is on `cluster`."""
        found = self.reservations.get((id, attempt))
        if found is not None and found.cluster == cluster:
            del self.reservations[id, attempt]
            self.touch("reserved", [cluster])
            self.relieve()

    def reserved(self, clusters: Iterable[str]) -> dict[str, Demand]:
        """The sum of what is reserved on each of `clusters`, in one pass."""
        sums = {name: Demand() for name in clusters}
        for r in self.reservations.values():
            if r.cluster in sums:
                s, d = sums[r.cluster], r.demand
                sums[r.cluster] = Demand(s.nodes + d.nodes, s.cores + d.cores, s.gpus + d.gpus)
        return sums

    # -- changes --------------------------------------------------------------------------------------

    def changes(self, since: int, alive_after: float, also: Iterable[str] = ()) -> Changes:
        if since > self.version:
            self.first = self.version = since + 1
            self.epoch = Epoch(self.version, time.time(), lost=True)
        reset = 0 < since < self.first
        everything = reset or since <= 0
        parts = [part for part, version in self.changed.items() if everything or version > since]
        names: dict[str, list[str]] = {}
        for kind, name in parts:
            names.setdefault(kind, []).append(name)
        clusters = {name: self.clusters.get(name) for name in names.get("cluster", ())}
        now = time.time()
        return Changes(
            version=self.version,
            clusters={n: r for n, r in clusters.items() if r is not None or not everything},
            states={n: self.state(n, now, alive_after) for n in names.get("state", ())},
            reserved=self.reserved(n for n in (*names.get("reserved", ()), *also) if n in self.clusters),
            groups=dict(self.groups) if "groups" in names or everything else None,
            revocations=list(self.revocations.values()) if "revocations" in names or everything else None,
            reset=reset,
            epoch=self.epoch,
        )

    def state(self, name: str, now: float, alive_after: float) -> ClusterState:
        s = self.states[name]
        alive = s.heartbeat_at > 0.0 and now - s.heartbeat_at <= alive_after
        values = {key: value for key, (_, value) in s.values.items()}
        return ClusterState(values=values, at=s.at, heartbeat_at=s.heartbeat_at, alive=alive)


def counts(record: JobRecord | None, event: JobEvent, standing: Standing, *, held: bool) -> bool:
    """The fence: whether `event` may change `record`."""
    if record is None:
        return True
    if record.state in TERMINAL or event.attempt < record.attempt or standing == "past":
        return False
    if event.attempt > record.attempt:
        return True
    if standing == "proof":
        return event.state in STARTED and not event.held and (record.state not in BEGUN or held)
    if event.state == "held":
        return record.state in HOLDABLE
    return RANK[event.state] > RANK[record.state] and not (event.state in UNRUN and record.state in BEGUN)
