"""The jobs held here that wait for other jobs: by their ids, and by the jobs that they wait for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rainbow.models.dependencies import judge
from rainbow_workers.scheduling.decide import Job
from rainbow_workers.scheduling.pending_job import PendingJob
from rainbow_workers.stores.base import Dependent, Progress


@dataclass(slots=True, eq=False)
class Entry:
    """A job that waits. Times are in seconds since 1970.

    Attributes:
        open: The jobs that it still waits for, with the schemes.
        since: When it came in.
        look_at: When it is due to be looked at.
        missing: Its dependencies on jobs that were not known when it was looked at last, as ``SCHEME:ID``.
        unknown: Why it is no job: what it waits for is not known.
    """

    pending: PendingJob
    job: Job
    open: dict[str, list[str]]
    since: float
    look_at: float
    missing: list[str] = field(default_factory=list)
    unknown: str = ""

    def dependent(self, others: Iterable[str]) -> Dependent:
        return Dependent(self.job.id, self.job.user, list(others))

    def advance(self, others: Sequence[str], progress: Sequence[Progress | None]) -> None:
        """Note how far these jobs are, None for those that are not known."""
        self.missing = []
        for other, seen in zip(others, progress, strict=True):
            schemes = self.open.get(other)
            if schemes is None:
                continue  # it happened before
            if seen is None:
                self.missing.append(f"{schemes[0]}:{other}")
                continue
            left: list[str] = []
            for scheme in schemes:
                met = judge(scheme, seen.state, started=seen.started, ended=seen.ended)
                if met is None:
                    left.append(scheme)
                elif not met:
                    self.job.unmet = f"{scheme}:{other} can never be met: that job ended as {seen.state}"
            if left:
                self.open[other] = left
            else:
                self.open.pop(other, None)


class Awaiting:
    """Not thread-safe: used by one thread. The worker bounds it."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        #: Job -> those here that wait for it.
        self._waiting_for: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries.values()))

    def get(self, job_id: str) -> Entry | None:
        return self._entries.get(job_id)

    def waiting_for(self, job_id: str) -> list[Entry]:
        """Those that wait for this job."""
        return [self._entries[name] for name in self._waiting_for.get(job_id, ())]

    def add(self, pending: PendingJob, job: Job, now: float, look_at: float) -> Entry:
        """Take a job in, in place of one with the same id."""
        self.remove(job.id)
        entry = self._entries[job.id] = Entry(pending, job, {}, now, look_at)
        for scheme, other in job.after:
            entry.open.setdefault(other, []).append(scheme)
            self._waiting_for.setdefault(other, set()).add(job.id)
        return entry

    def remove(self, job_id: str) -> None:
        """A job that is not there is fine."""
        entry = self._entries.pop(job_id, None)
        if entry is None:
            return
        for _, other in entry.job.after:
            waiting = self._waiting_for.get(other)
            if waiting is not None:
                waiting.discard(job_id)
                if not waiting:
                    del self._waiting_for[other]

    def clear(self) -> None:
        self._entries.clear()
        self._waiting_for.clear()
