"""The reference store, inside one process: the contract written as plainly as possible.

Stores with the same ``memory://NAME`` URL and prefix share their data. One lock guards all of it.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import repeat
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from rainbow.jobspec.request import Demand
from rainbow.models.job import TERMINAL, JobEvent, JobRecord
from rainbow_workers.stores import StoreOptions
from rainbow_workers.stores.base import (
    ANYONE,
    Asker,
    Assigned,
    Assigning,
    Assignment,
    Cursor,
    Page,
    Recorded,
    Sender,
    Tally,
    concerns,
)
from rainbow_workers.stores.history import (
    MARK_TTL,
    OF_ATTEMPT,
    assignment_entry,
    event_entry,
    head,
    newest,
    said,
    time_key,
)
from rainbow_workers.stores.jobspecs import Jobspecs, unpacked
from rainbow_workers.stores.memory_clusters import MemoryClusters
from rainbow_workers.stores.memory_data import Data, StoredJob, counts
from rainbow_workers.stores.memory_dependencies import MemoryDependencies, note
from rainbow_workers.stores.memory_enrollments import MemoryEnrollments
from rainbow_workers.stores.memory_shares import MemoryShares

#: States in which a job may be given to a(nother) cluster.
PLACEABLE = frozenset({"submitted", "held", "rejected", "assigned"})


class MemoryLedger:
    """The Ledger of a MemoryStore."""

    def __init__(self, data: Data, options: StoreOptions) -> None:
        self._data = data
        self._options = options
        self._jobspecs = Jobspecs(options.jobspec_bytes)

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
        if self._data.stopped(a.array):
            if job is not None and job.record is not None and not job.record.terminal:
                job.record = job.record.model_copy(update={"cancel_requested": True})
            known = job.record if job is not None else None
            return known or JobRecord(id=a.id, state="submitted", cancel_requested=True)
        if job is None:
            return None
        record = job.record
        if record is None:
            if not job.cancelled(a.user):
                return None
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
        job = data.jobs.setdefault(a.id, StoredJob(created=a.submitted_at))
        old = job.record
        if old is not None and _same(old, a):
            return False
        if old is not None:
            data.release(a.id, old.attempt, old.cluster)
            job.new_attempt(old.attempt)
        else:
            job.created, job.until = a.submitted_at, None
        job.registration = a.registration
        self._specify(job, a.jobspec)
        record = old or JobRecord(id=a.id, state="assigned")
        job.record = record.model_copy(
            update={
                "state": "assigned",
                "attempt": a.attempt,
                "cluster": a.cluster,
                "user": a.user,
                "account": a.account,
                "name": a.name,
                "array": a.array,
                "index": a.index,
                "answer": {**a.answer, **a.looked},
                "times": {"submitted": a.submitted_at, "assigned": a.at, **record.times},
                **dict.fromkeys(OF_ATTEMPT),
            }
        )
        data.count(old, job.record)
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

    def record(
        self,
        events: Sequence[JobEvent],
        senders: Sequence[Sender | None] = (),
        jobspecs: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ) -> list[Recorded]:
        whose = zip(events, senders or repeat(None), strict=bool(senders))
        with self._data.lock:
            self._data.expire()
            return [self._record(e, s, jobspecs.get(e.id)) for e, s in whose]

    def _record(self, event: JobEvent, sender: Sender | None, jobspec: Mapping[str, Any] | None) -> Recorded:
        data = self._data
        standing = data.jobs.get(event.id, StoredJob()).standing(event.attempt, sender)
        if standing is None:
            known = data.jobs.get(event.id, StoredJob()).record
            stub = known or JobRecord(id=event.id, state=event.state, attempt=event.attempt)
            return Recorded(partial(_brief, stub), applied=False, refused=True)
        job = data.jobs.setdefault(event.id, StoredJob())
        old = job.record
        where = old.cluster if old and old.cluster and old.attempt == event.attempt else event.cluster
        where = sender.cluster if sender else where
        # An event under the id of another user's job changes nothing of that job.
        foreign = old is not None and None not in (old.user, event.user) and old.user != event.user
        if (event.state == "rejected" or event.state in TERMINAL) and not foreign:
            data.release(event.id, event.attempt, where)
        fresh = old is None
        applied = not foreign and counts(old, event, standing, held=job.held)
        if applied:
            if old is None:
                job.created = event.at
                job.until = None
                old = JobRecord(id=event.id, state=event.state, cancel_requested=job.cancelled(event.user))
            newer = dict.fromkeys(OF_ATTEMPT) if event.attempt > old.attempt else {}
            if newer:
                job.new_attempt(old.attempt)
            if sender is not None:
                job.registration = sender.registration
            job.held = bool(event.held)
            self._specify(job, jobspec)
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
            elif data.stopped(job.record.array):
                job.record = job.record.model_copy(update={"cancel_requested": True})
            note(data, old, job.record)
            data.count(None if fresh else old, job.record)
            if job.counts:
                job.summarize()
        if not foreign:
            self._note(job, event_entry(event) if applied else {**event_entry(event), "stale": True})
        assert job.record is not None
        watching = [(to, c) for to, c, by in data.watchers.get(event.id, {}) if concerns(by, job.record)]
        return Recorded(partial(_brief, job.record), applied, watching)

    def _specify(self, job: StoredJob, jobspec: Mapping[str, Any] | None) -> None:
        kept = self._jobspecs.kept(jobspec) if job.jobspec is None else None
        if kept is not None:
            job.jobspec = kept.packed

    def _note(self, job: StoredJob, entry: dict[str, Any]) -> None:
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

    def jobspec(self, id: str) -> dict[str, Any] | None:
        with self._data.lock:
            self._data.expire()
            job = self._data.jobs.get(id)
        return unpacked(job.jobspec) if job is not None and job.jobspec is not None else None

    def page(
        self,
        *,
        state: str | None,
        cluster: str | None,
        user: str | None,
        limit: int,
        before: Cursor | None = None,
        array: str | None = None,
        text: str | None = None,
    ) -> Page:
        with self._data.lock:
            jobs = self._data.fitting(state, cluster, user, before, array, text)
        chosen = heapq.nlargest(limit, jobs)
        after = chosen[-1] if len(chosen) < len(jobs) else None
        return Page([(at, _brief(jobs[at, id])) for at, id in chosen], after, len(self._data.jobs))

    def find(self, *, state: str | None, cluster: str | None, user: str | None, limit: int) -> list[JobRecord]:
        return newest(self.page, limit, state=state, cluster=cluster, user=user)

    def tally(self) -> dict[tuple[str, str], Tally]:
        return self._data.tally()

    def watch(self, ids: Sequence[str], address: tuple[str, str], ttl: float, by: Asker = ANYONE) -> None:
        with self._data.lock:
            self._data.expire()
            for id in ids:
                self._data.watchers.setdefault(id, {})[*address, by] = time.time() + ttl

    def cancel(self, ids: Sequence[str], by: Asker | None = ANYONE) -> list[JobRecord | None]:
        with self._data.lock:
            self._data.expire()
            found = [self._cancel(id, by) for id in ids]
            self._data.trim_marks(by)
            return found

    def _cancel(self, id: str, by: Asker | None) -> JobRecord | None:
        job = self._data.jobs.get(id, StoredJob())
        if job.record is None:
            if by is not None:
                self._data.jobs.pop(id, None)  # the newest mark comes last
                self._data.jobs[id] = job
                job.cancel.add(by)
                job.until = time.time() + MARK_TTL
            return None
        if by is not None and not concerns(by, job.record):
            return None
        if not job.record.terminal:
            job.record = job.record.model_copy(update={"cancel_requested": True})
            self._data.count(job.record, job.record)
        return _brief(job.record)


def _same(record: JobRecord, a: Assignment) -> bool:
    return record.state == "assigned" and record.attempt == a.attempt and record.cluster == a.cluster


def _brief(record: JobRecord) -> JobRecord:
    return record.model_copy(update={"answer": None})


_stores: dict[tuple[str, str], Data] = {}
_stores_lock = threading.Lock()


class MemoryStore:
    """The Store for ``memory://NAME``."""

    def __init__(self, options: StoreOptions) -> None:
        parts = urlsplit(options.url)
        with _stores_lock:
            data = _stores.setdefault((parts.netloc + parts.path, options.prefix), Data())
        self._clusters = MemoryClusters(data, options)
        self._jobs = MemoryLedger(data, options)
        self._enrollments = MemoryEnrollments(data)
        self._shares = MemoryShares(data)
        self._dependencies = MemoryDependencies(data)

    @property
    def clusters(self) -> MemoryClusters:
        return self._clusters

    @property
    def jobs(self) -> MemoryLedger:
        return self._jobs

    @property
    def enrollments(self) -> MemoryEnrollments:
        return self._enrollments

    @property
    def shares(self) -> MemoryShares:
        return self._shares

    @property
    def dependencies(self) -> MemoryDependencies:
        return self._dependencies

    def warnings(self) -> list[str]:
        return ["the memory store is lost with its process: use redis:// for anything but tests and demos"]

    def close(self) -> None:
        """Nothing to let go of: the data stays for the next store of this name."""
