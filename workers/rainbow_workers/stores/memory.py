"""The reference store, inside one process: the contract written as plainly as possible.

Stores with the same ``memory://NAME`` URL and prefix share their data. One lock guards all of it.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from rainbow.jobspec.request import Demand
from rainbow.models.cluster import ClusterRecord, ClusterState, Enrolment, Revocation, StateReport, StateValue
from rainbow.models.job import BEGUN, RANK, TERMINAL, UNRUN, JobEvent, JobRecord
from rainbow_workers.stores import StoreOptions
from rainbow_workers.stores.base import Assigned, Assigning, Assignment, Changes, Overtaken, Recorded
from rainbow_workers.stores.history import (
    MARK_TTL,
    OF_ATTEMPT,
    assignment_entry,
    event_entry,
    head,
    said,
    time_key,
)

#: States in which a job may be given to a(nother) cluster.
PLACEABLE = frozenset({"submitted", "held", "rejected", "assigned"})


@dataclass(slots=True)
class _State:
    """`values` have the time of their report beside them."""

    values: dict[str, tuple[float, StateValue]] = field(default_factory=dict)
    at: float = 0.0
    heartbeat_at: float = 0.0


@dataclass(slots=True)
class _Reservation:
    cluster: str
    demand: Demand
    until: float


@dataclass(slots=True)
class _Job:
    """What is kept of a job id. `record` is None while only a cancel was asked for. `until`: forgotten then."""

    record: JobRecord | None = None
    created: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)
    cancel: bool = False
    until: float | None = None


class _Data:
    """Everything one named store holds. `changed` has the version at which a part last changed: a part is
    ``("cluster" | "state" | "reserved", NAME)``, ``("groups", "")`` or ``("revocations", "")``."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.first = self.version = int(time.time() * 1e6)
        self.changed: dict[tuple[str, str], int] = {}
        self.clusters: dict[str, ClusterRecord] = {}
        self.states: dict[str, _State] = {}
        self.reservations: dict[tuple[str, int], _Reservation] = {}
        self.groups: dict[str, frozenset[str]] = {}
        self.revocations: dict[tuple[str, str], Revocation] = {}
        self.jobs: dict[str, _Job] = {}
        self.watchers: dict[str, dict[tuple[str, str], float]] = {}
        self.enrolments: dict[tuple[str, str], Enrolment] = {}

    def touch(self, kind: str, names: Iterable[str] = ("",)) -> None:
        self.version += 1
        self.changed.update({(kind, name): self.version for name in names})

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

    # -- reservations ---------------------------------------------------------------------------------

    def reserve(self, a: Assignment) -> None:
        if a.cluster in self.clusters:
            self.reservations[a.id, a.attempt] = _Reservation(a.cluster, a.demand, time.time() + a.reserve_s)
            self.touch("reserved", [a.cluster])

    def release(self, id: str, attempt: int, cluster: str | None) -> None:
        """End the reservation of an attempt, if it is on `cluster`."""
        found = self.reservations.get((id, attempt))
        if found is not None and found.cluster == cluster:
            del self.reservations[id, attempt]
            self.touch("reserved", [cluster])

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
        )

    def state(self, name: str, now: float, alive_after: float) -> ClusterState:
        s = self.states[name]
        alive = s.heartbeat_at > 0.0 and now - s.heartbeat_at <= alive_after
        values = {key: value for key, (_, value) in s.values.items()}
        return ClusterState(values=values, at=s.at, heartbeat_at=s.heartbeat_at, alive=alive)


class MemoryClusters:
    """The ClusterTable of a MemoryStore."""

    def __init__(self, data: _Data, options: StoreOptions) -> None:
        self._data = data
        self._options = options

    def changes(self, since: int) -> Changes:
        with self._data.lock:
            self._data.expire()
            return self._data.changes(since, self._options.alive_after)

    def put(self, record: ClusterRecord, expect: str | None) -> None:
        data, name = self._data, record.name
        with data.lock:
            data.expire()
            current = data.clusters.get(name)
            if current == record:
                return
            if (current.registration if current else None) != expect:
                what = "was registered or changed by somebody else" if current else "is not registered any more"
                raise Overtaken(f"cluster {name!r} {what}")
            data.clusters[name] = record
            data.touch("cluster", [name])
            if current is None:
                data.states[name] = _State()
                data.touch("state", [name])
                data.touch("reserved", [name])

    def delete(self, name: str) -> None:
        data = self._data
        with data.lock:
            data.expire()
            if data.clusters.pop(name, None) is not None:
                del data.states[name]
                data.reservations = {k: r for k, r in data.reservations.items() if r.cluster != name}
                data.touch("cluster", [name])
                del data.changed["state", name], data.changed["reserved", name]
            if any(name in members for members in data.groups.values()):
                left = {group: members - {name} for group, members in data.groups.items()}
                data.groups = {group: members for group, members in left.items() if members}
                data.touch("groups")

    def report(self, reports: Sequence[StateReport], at: float) -> None:
        data = self._data
        with data.lock:
            data.expire()
            for report in reports:
                record = data.clusters.get(report.cluster)
                if record is None or report.registration not in (None, record.registration):
                    continue
                state = data.states[report.cluster]
                for key, value in report.values.items():
                    if key not in state.values or state.values[key][0] <= at:
                        state.values[key] = (at, value)
                state.at = max(state.at, at)
                if report.heartbeat:
                    state.heartbeat_at = max(state.heartbeat_at, at)
                data.touch("state", [report.cluster])
                for id, attempt in report.included:
                    data.release(id, attempt, report.cluster)

    def set_group(self, group: str, members: frozenset[str]) -> None:
        data = self._data
        with data.lock:
            data.expire()
            if data.groups.get(group, frozenset()) != members:
                data.groups[group] = members
                if not members:
                    del data.groups[group]
                data.touch("groups")

    def revoke(self, revocation: Revocation) -> None:
        data, key = self._data, (revocation.kind, revocation.value)
        with data.lock:
            data.expire()
            old = data.revocations.get(key, revocation)
            update = {"before": max(old.before, revocation.before), "until": max(old.until, revocation.until)}
            data.revocations[key] = revocation.model_copy(update=update)
            data.touch("revocations")


class MemoryLedger:
    """The Ledger of a MemoryStore."""

    def __init__(self, data: _Data, options: StoreOptions) -> None:
        self._data = data
        self._options = options

    def assign(self, batch: Sequence[Assignment], since: int) -> Assigned:
        outcomes: list[JobRecord | None] = []
        repeated: set[int] = set()
        with self._data.lock:
            self._data.expire()
            for index, a in enumerate(batch):
                standing = self._standing(a)
                outcomes.append(standing)
                if standing is None and not self._assign(a):
                    repeated.add(index)
            changes = self._data.changes(since, self._options.alive_after, also=[a.cluster for a in batch])
        return Assigned(outcomes, frozenset(repeated), changes)

    def _standing(self, a: Assignment) -> JobRecord | None:
        """The record in the way of `a`, if any."""
        job = self._data.jobs.get(a.id)
        if job is None:
            return None
        record = job.record
        if record is None:
            return JobRecord(id=a.id, state="submitted", cancel_requested=True)
        if record.user is not None and record.user != a.user:
            return record
        next_one = record.attempt == a.attempt - 1 and record.state in PLACEABLE
        if (next_one or _same(record, a)) and not record.cancel_requested:
            return None
        return record

    def _assign(self, a: Assignment) -> bool:
        """Make `a` hold; False when it did already."""
        data = self._data
        job = data.jobs.setdefault(a.id, _Job(created=a.submitted_at))
        old = job.record
        if old is not None and _same(old, a):
            return False
        if old is not None:
            data.release(a.id, old.attempt, old.cluster)
        record = old or JobRecord(id=a.id, state="assigned")
        job.record = record.model_copy(
            update={
                "state": "assigned",
                "attempt": a.attempt,
                "cluster": a.cluster,
                "user": a.user,
                "name": a.name,
                "answer": {**a.answer, **a.looked},
                "times": {"submitted": a.submitted_at, "assigned": a.at, **record.times},
                **dict.fromkeys(OF_ATTEMPT),
            }
        )
        self._note(job, assignment_entry(a))
        data.reserve(a)
        return True

    def assigning(self, batch: Sequence[Assignment], since: int, room: Mapping[str, Demand]) -> Assigning:
        with self._data.lock:
            self._data.expire()
            new = len({a.id for a in batch} - self._data.jobs.keys()) == len(batch)
            simple = new and all(a.cluster in self._data.clusters for a in batch)
            if simple and any(self._crowded(name, total, batch) for name, total in room.items()):
                changes = self._data.changes(since, self._options.alive_after, also=[a.cluster for a in batch])
                crowded = Assigned((), frozenset(), changes, crowded=True)
                return Assigning(lambda: crowded)
            assigned = self.assign(batch, since)
        return Assigning(lambda: assigned)

    def _crowded(self, cluster: str, total: Demand, batch: Sequence[Assignment]) -> bool:
        if not any(a.cluster == cluster for a in batch):
            return False
        values, reserved = self._data.states[cluster].values, self._data.reserved([cluster])[cluster]
        for kind in ("nodes", "cores", "gpus"):
            wanted = sum(getattr(a.demand, kind) for a in batch if a.cluster == cluster)
            _, free = values.get(f"{kind}_free", (0.0, None))
            if isinstance(free, bool) or not isinstance(free, int | float):
                free = getattr(total, kind)
            if wanted and getattr(reserved, kind) + wanted > free:
                return True
        return False

    def record(self, events: Sequence[JobEvent]) -> list[Recorded]:
        with self._data.lock:
            self._data.expire()
            return [self._record(event) for event in events]

    def _record(self, event: JobEvent) -> Recorded:
        data = self._data
        job = data.jobs.setdefault(event.id, _Job())
        old = job.record
        where = old.cluster if old and old.cluster and old.attempt == event.attempt else event.cluster
        # Whoever names the id of somebody else's job says nothing about that job.
        foreign = old is not None and None not in (old.user, event.user) and old.user != event.user
        if (event.state == "rejected" or event.state in TERMINAL) and not foreign:
            data.release(event.id, event.attempt, where)
        applied = not foreign and _counts(old, event)
        if applied:
            if old is None:
                job.created = event.at
                job.until = None
                old = JobRecord(id=event.id, state=event.state, cancel_requested=job.cancel)
            newer = dict.fromkeys(OF_ATTEMPT) if event.attempt > old.attempt else {}
            job.record = old.model_copy(
                update={
                    **newer,
                    **said(event),
                    "state": event.state,
                    "attempt": event.attempt,
                    "times": {time_key(event.state): event.at, **old.times},
                    "answer": event.answer if event.answer is not None else old.answer,
                }
            )
            if event.state in TERMINAL:
                job.until = time.time() + self._options.keep
        self._note(job, event_entry(event) if applied else {**event_entry(event), "stale": True})
        assert job.record is not None
        return Recorded(partial(_brief, job.record), applied, list(data.watchers.get(event.id, {})))

    def _note(self, job: _Job, entry: dict[str, Any]) -> None:
        job.history.append(entry)
        if len(job.history) > self._options.max_history:
            del job.history[head(self._options.max_history)]

    def get(self, ids: Sequence[str]) -> list[JobRecord | None]:
        with self._data.lock:
            self._data.expire()
            jobs = [self._data.jobs.get(id) for id in ids]
            return [
                job.record.model_copy(update={"history": [dict(entry) for entry in job.history]})
                if job is not None and job.record is not None
                else None
                for job in jobs
            ]

    def find(self, *, state: str | None, cluster: str | None, user: str | None, limit: int) -> list[JobRecord]:
        def fits(record: JobRecord) -> bool:
            return state in (None, record.state) and cluster in (None, record.cluster) and user in (None, record.user)

        with self._data.lock:
            self._data.expire()
            found = [
                (job.created, id, job.record)
                for id, job in self._data.jobs.items()
                if job.record is not None and fits(job.record)
            ]
        return [_brief(record) for _, _, record in heapq.nlargest(limit, found, key=lambda item: item[:2])]

    def watch(self, ids: Sequence[str], address: tuple[str, str], ttl: float) -> None:
        with self._data.lock:
            self._data.expire()
            for id in ids:
                self._data.watchers.setdefault(id, {})[address] = time.time() + ttl

    def cancel(self, ids: Sequence[str]) -> list[JobRecord | None]:
        with self._data.lock:
            self._data.expire()
            return [self._cancel(id) for id in ids]

    def _cancel(self, id: str) -> JobRecord | None:
        job = self._data.jobs.setdefault(id, _Job())
        if job.record is None:
            job.cancel = True
            job.until = time.time() + MARK_TTL
            return None
        if not job.record.terminal:
            job.record = job.record.model_copy(update={"cancel_requested": True})
        return _brief(job.record)


class MemoryEnrolments:
    """See `rainbow_workers.stores.base.Enrolments`."""

    def __init__(self, data: _Data) -> None:
        self._data = data

    def put(self, enrolment: Enrolment) -> None:
        with self._data.lock:
            self._data.enrolments[enrolment.cluster, enrolment.mark] = enrolment

    def get(self, cluster: str, mark: str, now: float) -> Enrolment | None:
        return next((e for e in self.all(now) if (e.cluster, e.mark) == (cluster, mark)), None)

    def all(self, now: float) -> list[Enrolment]:
        with self._data.lock:
            self._data.enrolments = {k: e for k, e in self._data.enrolments.items() if e.until > now}
            return list(self._data.enrolments.values())


def _same(record: JobRecord, a: Assignment) -> bool:
    return record.state == "assigned" and record.attempt == a.attempt and record.cluster == a.cluster


def _counts(record: JobRecord | None, event: JobEvent) -> bool:
    """The fence: whether `event` may change `record`."""
    if record is None:
        return True
    if record.state in TERMINAL or event.attempt < record.attempt:
        return False
    if event.attempt > record.attempt:
        return True
    return RANK[event.state] > RANK[record.state] and not (event.state in UNRUN and record.state in BEGUN)


def _brief(record: JobRecord) -> JobRecord:
    return record.model_copy(update={"answer": None})


_stores: dict[tuple[str, str], _Data] = {}
_stores_lock = threading.Lock()


class MemoryStore:
    """The Store for ``memory://NAME``."""

    def __init__(self, options: StoreOptions) -> None:
        parts = urlsplit(options.url)
        with _stores_lock:
            data = _stores.setdefault((parts.netloc + parts.path, options.prefix), _Data())
        self._clusters = MemoryClusters(data, options)
        self._jobs = MemoryLedger(data, options)
        self._enrolments = MemoryEnrolments(data)

    @property
    def clusters(self) -> MemoryClusters:
        return self._clusters

    @property
    def jobs(self) -> MemoryLedger:
        return self._jobs

    @property
    def enrolments(self) -> MemoryEnrolments:
        return self._enrolments

    def warnings(self) -> list[str]:
        return ["the memory store is lost with its process: use redis:// for anything but tests and demos"]

    def close(self) -> None:
        """Nothing to let go of: the data stays for the next store of this name."""
