"""Follows any number of jobs in one thread, for programs that submit all the time: executors and workflow tools."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable

from rainbow.client.client import Client
from rainbow.client.job import Job, record_of
from rainbow.errors import RainbowError
from rainbow.models.job import TERMINAL, JobRecord

#: Called in the follower's thread with a job's record each time it changed, at last with its end; or with the reason
#: why it cannot be followed any more.
Changed = Callable[[JobRecord | Exception], None]


class Follower:
    """Calls `Changed` functions as jobs change. Its thread runs while there is something to follow.

    Args:
        client: The client that the jobs were submitted with.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._fresh: queue.SimpleQueue[tuple[Job, Changed]] = queue.SimpleQueue()
        self._open: dict[str, list[Changed]] = {}
        self._unanswered: dict[str, Job] = {}
        self._to_cancel: set[str] = set()
        self._thread: threading.Thread | None = None

    def add(self, jobs: Iterable[tuple[Job, Changed]]) -> None:
        """Follow further jobs."""
        with self._lock:
            for one in jobs:
                self._fresh.put(one)
            if self._thread is None:
                self._thread = threading.Thread(target=self._follow, name="rainbow-follower", daemon=True)
                self._thread.start()

    def cancel(self, job_id: str) -> None:
        """Cancel a job that is followed, as soon as it is known. Does not wait; its end is reported as any other."""
        self._to_cancel.add(job_id)

    def join(self) -> None:
        """Wait until all jobs have ended."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def _follow(self) -> None:
        try:
            for record in self._client.events(self._more, patient=True):
                self._changed(record)
        except Exception as exc:
            with self._lock:
                self._thread = None
                while not self._fresh.empty():
                    job, changed = self._fresh.get()
                    self._open.setdefault(job.id, []).append(changed)
                lost, self._open = self._open, {}
            for listeners in lost.values():
                for changed in listeners:
                    changed(exc)

    def _more(self) -> list[str] | None:
        """Ids of jobs added since the last call; None when there is nothing to follow any more."""
        ids: list[str] = []
        while not self._fresh.empty():
            job, changed = self._fresh.get()
            self._open.setdefault(job.id, []).append(changed)
            self._unanswered[job.id] = job
            ids.append(job.id)
        for job in list(self._unanswered.values()):
            answer = job.poll_answer()
            if answer is not None:
                del self._unanswered[job.id]
                if answer.status in TERMINAL:  # there may be no record of it that we may see
                    self._changed(record_of(answer))
        if self._to_cancel:
            self._cancel()
        if ids or self._open:
            return ids
        with self._lock:  # nothing can be added meanwhile, or the next `add` starts a thread
            if self._fresh.empty():
                self._thread = None
                return None
        return []

    def _changed(self, record: JobRecord) -> None:
        listeners = self._open.get(record.id, [])
        if record.terminal:
            self._open.pop(record.id, None)
            self._unanswered.pop(record.id, None)
            self._to_cancel.discard(record.id)
        for changed in listeners:
            changed(record)

    def _cancel(self) -> None:
        ids = [job_id for job_id in list(self._to_cancel) if job_id in self._open]
        try:
            known = self._client.cancel(ids) if ids else []
        except RainbowError:
            return  # asked for again
        self._to_cancel.difference_update(one.id for one in known if one is not None)
