"""The jobs of the local executor, and the processes that run them: one thread starts them and watches them end.

It waits on pidfds, so nothing is polled per job. The thread ends the agent if it dies; a disk that is full it
survives: nothing is started until files can be written again.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import selectors
import sys
import threading
import time
from collections.abc import Sequence

from rainbow.jobspec.request import Demand
from rainbow_agents.executors.base import (
    Capacity,
    Crashed,
    Down,
    Ended,
    ExecutorEvent,
    Held,
    Listener,
    Started,
    Up,
)
from rainbow_agents.executors.local import runner
from rainbow_agents.executors.local.description import Unfit, time_limit
from rainbow_agents.executors.local.files import Files
from rainbow_agents.executors.local.folder import Folder
from rainbow_agents.executors.slots import Slots

log = logging.getLogger(__name__)

#: Seconds between looks whether a disk that was full can be written again.
_PROBE_EVERY = 1.0


class LocalJob:
    """A job in the queue, or one that is watched. `pid` is its runner's when this executor started it."""

    __slots__ = ("demand", "duration", "folder", "over", "pid", "pidfd", "pipe", "priority", "queued")

    def __init__(self, folder: Folder, demand: Demand, duration: float | None = None) -> None:
        self.folder = folder
        self.demand = demand
        self.duration = duration
        self.queued = False
        self.priority = 16
        self.pid: int | None = None
        self.pidfd: int | None = None
        self.pipe: int | None = None
        self.over = False


class JobQueue:
    """`lock` guards everything but the selector; methods marked so are called with it held."""

    def __init__(self, files: Files, capacity: Capacity, listener: Listener) -> None:
        self.lock = threading.RLock()
        self.slots = Slots(capacity)
        self.down: str | None = None
        self._files = files
        self._listener = listener
        self._jobs: dict[str, LocalJob] = {}
        self._closed = False
        self._selector = selectors.DefaultSelector()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="local-executor", daemon=True)
        self._thread.start()

    def close(self) -> bool:
        """Stop watching. False when that was done before."""
        with self.lock:
            if self._closed:
                return False
            self._closed = True
        self.wake()
        self._thread.join(5.0)
        return True

    def wake(self) -> None:
        os.eventfd_write(self._wake, 1)

    def disk_failed(self, exc: OSError) -> str:
        """Something could not be written: the executor is down until something can. Return the reason."""
        reason = f"its folder cannot be written: {exc.strerror or exc}"
        with self.lock:
            first, self.down = self.down is None, reason
        if first:
            self._listener(Down(reason))
            self.wake()
        return reason

    def check_fits(self, demand: Demand) -> None:
        """Raises Unfit when the cluster is too small for it."""
        misfit = self.slots.misfit(demand)
        if misfit is not None:
            raise Unfit(misfit)

    # -- with the lock held ----------------------------------------------------------------------------------------

    def add(self, folder: Folder, demand: Demand, duration: float | None) -> None:
        self._jobs[folder.handle] = LocalJob(folder, demand, duration)

    def find(self, held: Held) -> LocalJob | None:
        """The job, also one that another agent, or one before, has made. None when it is not (or no longer) here."""
        job = self._jobs.get(held.handle)
        if job is None:
            folder = self._files.find_active(held.mark, held.handle)
            job = self.adopt(folder) if folder is not None else None
        return job if job is not None and job.folder.mark == held.mark else None

    def adopt(self, folder: Folder) -> LocalJob:
        """Take over a job that somebody else has made; one that runs is watched."""
        job = self._jobs.get(folder.handle)
        if job is None:
            description = folder.read("job.json") or {}
            demand = Demand(*description.get("demand", (0, 1, 0)))
            job = LocalJob(folder, demand, time_limit(description.get("units", ())))
            self._jobs[folder.handle] = job
            if folder.phase() == "running":
                since = (folder.read("status.json") or {}).get("started_at")
                self.slots.occupy(folder.handle, demand, job.duration, since)
        return job

    def enqueue(self, job: LocalJob, priority: int) -> None:
        """Let a held job start as soon as there is room. Raises FileNotFoundError when its folder is gone, OSError."""
        runner.write(str(job.folder.path), "queued.json", self._files.name)
        job.queued = True
        job.priority = priority
        self.slots.add(job.folder.handle, job.demand, priority, job.duration)

    def finish(self, job: LocalJob) -> None:
        """It is over: its resources are free."""
        self.forget(job)
        self._files.archive(job.folder)

    def forget(self, job: LocalJob) -> None:
        """Another agent saw its end first, and moved its folder."""
        job.over = True
        self.slots.done(job.folder.handle)
        self._jobs.pop(job.folder.handle, None)

    def watch(self, job: LocalJob) -> None:
        """Be told when the runner of `job` ends."""
        if job.pidfd is not None:
            return
        pid = job.pid if job.pid is not None else job.folder.read("runner.json")
        if not isinstance(pid, int):
            return
        try:
            job.pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            return  # it ended already: the next `recover` sees it
        if job.pid is None and not job.folder.runner_lives():
            os.close(job.pidfd)  # the pid is somebody else's by now
            job.pidfd = None
            return
        self._selector.register(job.pidfd, selectors.EVENT_READ, job)
        self.wake()

    # -- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closed:
                if self.down is not None:
                    self._probe()
                with self.lock:
                    events = self._start_ready() if self.down is None else []
                self._emit(events)
                for key, _ in self._selector.select(_PROBE_EVERY if self.down is not None else 60.0):
                    if key.fd == self._wake:
                        with contextlib.suppress(BlockingIOError):
                            os.eventfd_read(self._wake)
                    elif key.fd == key.data.pipe:
                        self._runner_started(key.data)
                    else:
                        self._runner_ended(key.data)
        except BaseException as exc:
            self._listener(Crashed(exc))
        finally:
            self._selector.close()

    def _probe(self) -> None:
        try:
            self._files.check_writable()
        except OSError:
            return
        self.down = None
        self._listener(Up(self._files.incarnation))

    def _start_ready(self) -> Sequence[ExecutorEvent]:
        events: list[ExecutorEvent] = []
        for handle in self.slots.ready():
            job = self._jobs[str(handle)]
            try:
                self._spawn(job)
            except OSError as exc:
                log.warning("no process for a job: %s", exc, extra={"action": "local.start", "handle": handle})
                if self._never_start(job):
                    events.append(job.folder.end("failed", "exec", exc.strerror or str(exc)))
        return events

    def _never_start(self, job: LocalJob) -> bool:
        """End a job that cannot be started. False when somebody else has started it."""
        try:
            if not job.folder.cancel_first():
                return False
        except FileNotFoundError:
            self.forget(job)
            return False
        self.finish(job)
        return True

    def _spawn(self, job: LocalJob) -> None:
        """Start the runner: with no environment, in a session of its own, and a pipe to say that it has started."""
        readable, writable = os.pipe()
        try:
            job.pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", runner.__file__, str(job.folder.path)],
                {},
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, writable, 1),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                ],
                setsid=True,
            )
        except OSError:
            os.close(readable)
            raise
        finally:
            os.close(writable)
        job.pipe = readable
        self._selector.register(readable, selectors.EVENT_READ, job)
        self.watch(job)

    def _runner_started(self, job: LocalJob) -> None:
        """The runner wrote that it starts the job, or ended without."""
        assert job.pipe is not None
        started = os.read(job.pipe, 64)
        self._selector.unregister(job.pipe)
        os.close(job.pipe)
        job.pipe = None
        if started:
            self._listener(Started(job.folder.mark, job.folder.handle, time.time()))

    def _runner_ended(self, job: LocalJob) -> None:
        if job.pipe is not None:
            self._runner_started(job)  # so that the start is reported before the end
        with self.lock:
            assert job.pidfd is not None
            self._selector.unregister(job.pidfd)
            os.close(job.pidfd)
            job.pidfd = None
            code = None
            if job.pid is not None:
                code = os.waitstatus_to_exitcode(os.waitpid(job.pid, 0)[1])
                job.pid = None
            if job.over:
                return
            if code == runner.TRY_AGAIN:
                # The runner could not write its files, so the job has not started: it goes back into the queue.
                self.slots.done(job.folder.handle)
                self.slots.add(job.folder.handle, job.demand, job.priority, job.duration)
                self.disk_failed(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
                return
            try:
                ended = self._end_of(job)
            except FileNotFoundError:
                self.forget(job)
                return
            except OSError as exc:  # `recover` looks at it again, once files can be written
                self.slots.done(job.folder.handle)
                self.disk_failed(exc)
                return
        if ended is not None:
            self._listener(ended)

    def _end_of(self, job: LocalJob) -> Ended | None:
        """How a job ended whose runner ended. FileNotFoundError when another agent moved its folder; OSError."""
        phase = job.folder.phase()
        if phase == "running":  # ours lost to another runner, which is to be watched
            self.watch(job)
            return None
        if phase == "ended":
            ended = job.folder.ended()
        elif job.folder.cancel_first():  # the runner did not get as far as starting anything
            ended = job.folder.end("failed", "exec", "the job's runner could not start")
        else:
            return None
        self.finish(job)
        return ended

    def _emit(self, events: Sequence[ExecutorEvent]) -> None:
        for event in events:
            self._listener(event)


__all__ = ["JobQueue", "LocalJob"]
