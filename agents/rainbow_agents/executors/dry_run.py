"""An executor that runs nothing: jobs start and end as its options say. For trying things out, and for tests.

Options: `run_s` seconds a job runs (0: ends as it starts), `returncode`, `output`, `reject` (a reject code: refuse
everything with it), `log` (a file that gets a line ``ID ATTEMPT`` for each start). With `run_s` jobs queue for the
nodes, cores and GPUs of the registered graph.
"""

from __future__ import annotations

import heapq
import itertools
import secrets
import threading
import time
from collections.abc import Sequence
from typing import get_args

from rainbow.errors import InvalidSettings
from rainbow.jobspec.request import Demand
from rainbow.models.job import RejectCode
from rainbow_agents.executors.base import (
    Context,
    Ended,
    ExecutorEvent,
    Found,
    Held,
    Listener,
    Outlook,
    Phase,
    Piece,
    Recovery,
    Refused,
    Started,
    Submitted,
    Up,
    Usage,
    Work,
    cut,
)
from rainbow_agents.executors.options import read_options
from rainbow_agents.executors.slots import Slots


class _Job:
    __slots__ = ("demand", "ended", "held", "phase", "started_at")

    def __init__(self, held: Held, demand: Demand) -> None:
        self.held = held
        self.demand = demand
        self.phase: Phase = "held"
        self.started_at: float | None = None
        self.ended: Ended | None = None


class DryRunExecutor:
    """See the module. Remembers ended jobs, the newest 10,000 of them, as a Flux does until it purges them."""

    _KEEP = 10_000

    def __init__(self, context: Context, listener: Listener) -> None:
        options = read_options("dry-run", context.options, run_s=0.0, returncode=0, output="", reject="", log="")
        self._run_s: float = options["run_s"]
        self._returncode: int = options["returncode"]
        self._output: str | None = options["output"] or None
        if options["reject"] and options["reject"] not in get_args(RejectCode):
            raise InvalidSettings(f"option 'reject' must be one of {', '.join(get_args(RejectCode))}")
        self._reject: RejectCode | None = options["reject"] or None
        self._log = open(options["log"], "a", buffering=1) if options["log"] else None  # noqa: SIM115 - until close
        self._listener = listener
        self._slots = Slots(context.capacity)
        self._jobs: dict[str, _Job] = {}
        self._over: dict[str, _Job] = {}
        self._ids = itertools.count(1)
        self._ends: list[tuple[float, str]] = []
        self._alarm = threading.Condition()
        self._closed = False
        self.incarnation = secrets.token_hex(8)
        if self._run_s:
            threading.Thread(target=self._clock, name="dry-run", daemon=True).start()
        listener(Up(self.incarnation))

    def submit(self, works: Sequence[Work]) -> None:
        told: list[ExecutorEvent] = []
        with self._alarm:
            for work in works:
                misfit = self._slots.misfit(work.demand)
                if self._reject is not None:
                    told.append(Refused(work.mark, self._reject, "this executor refuses everything (option reject)"))
                elif misfit is not None:
                    told.append(Refused(work.mark, "no-fit", misfit))
                else:
                    handle = f"dry{next(self._ids)}"
                    self._jobs[handle] = _Job(Held(work.mark, handle, work.priority), work.demand)
                    told.append(Submitted(work.mark, handle, self.incarnation))
        self._tell(told)

    def release(self, jobs: Sequence[Held]) -> None:
        told: list[ExecutorEvent] = []
        with self._alarm:
            for held in jobs:
                job = self._jobs.get(held.handle)
                if job is None or job.phase != "held" or job.held.mark != held.mark:
                    continue
                job.phase = "queued"
                if self._run_s:
                    self._slots.add(held.handle, job.demand, held.priority, self._run_s)
                else:
                    told.append(self._started(held, time.time()))
                    told.append(self._end(job))
            told += self._start()
        self._tell(told)

    def cancel(self, jobs: Sequence[Held], reason: str) -> None:
        told: list[ExecutorEvent] = []
        with self._alarm:
            for held in jobs:
                job = self._jobs.get(held.handle)
                if job is None or job.held.mark != held.mark:
                    continue
                ran = job.phase == "running"
                ended = Ended(held.mark, held.handle, time.time(), "cancelled", 143 if ran else -128, "cancel", reason)
                self._finish(job, ended)
                told.append(ended)
            told += self._start()
        self._tell(told)

    def usage(self) -> Usage:
        with self._alarm:
            return self._slots.usage()

    def outlook(self) -> Outlook:
        with self._alarm:
            return self._slots.outlook()

    def output(self, job: Held, stdout: int, stderr: int, limit: int) -> Piece | None:
        """All of it once the job has ended."""
        with self._alarm:
            over = self._over.get(job.handle)
        if over is None or over.held.mark != job.mark:
            return Piece() if job.handle in self._jobs else None
        data = (self._output or "").encode()
        piece, begin = cut(data, stdout, limit)
        return Piece(piece, b"", begin, 0, len(data), 0)

    def recover(self, expected: Sequence[Held]) -> Recovery:
        with self._alarm:
            jobs = [Found(j.held.mark, h, j.phase, j.started_at) for h, j in self._jobs.items()]
            for held in expected:
                job = self._over.get(held.handle)
                if job is not None and job.held.mark == held.mark:
                    jobs.append(Found(held.mark, held.handle, "ended", job.started_at, job.ended))
            return Recovery(self.incarnation, tuple(jobs))

    def close(self) -> None:
        with self._alarm:
            self._closed = True
            if self._log is not None:
                self._log.close()
                self._log = None
            self._alarm.notify_all()

    # -- inside ----------------------------------------------------------------------------------------

    def _tell(self, happenings: Sequence[ExecutorEvent]) -> None:
        for happening in happenings:
            self._listener(happening)

    def _start(self) -> list[ExecutorEvent]:
        told: list[ExecutorEvent] = []
        now = time.time()
        for key in self._slots.ready():
            job = self._jobs[str(key)]
            job.phase, job.started_at = "running", now
            heapq.heappush(self._ends, (time.monotonic() + self._run_s, job.held.handle))
            told.append(self._started(job.held, now))
        if told:
            self._alarm.notify_all()
        return told

    def _started(self, held: Held, at: float) -> Started:
        if self._log is not None:
            self._log.write(f"{held.mark.id} {held.mark.attempt}\n")
        return Started(held.mark, held.handle, at)

    def _end(self, job: _Job) -> Ended:
        ended = Ended(
            mark=job.held.mark,
            handle=job.held.handle,
            at=time.time(),
            state="failed" if self._returncode else "completed",
            returncode=self._returncode,
            output=self._output,
        )
        self._finish(job, ended)
        return ended

    def _finish(self, job: _Job, ended: Ended) -> None:
        job.phase, job.ended = "ended", ended
        self._slots.done(job.held.handle)
        self._jobs.pop(job.held.handle, None)
        self._over[job.held.handle] = job
        if len(self._over) > self._KEEP:
            del self._over[next(iter(self._over))]

    def _clock(self) -> None:
        while True:
            with self._alarm:
                if self._closed:
                    return
                now = time.monotonic()
                told: list[ExecutorEvent] = []
                while self._ends and self._ends[0][0] <= now:
                    job = self._jobs.get(heapq.heappop(self._ends)[1])
                    if job is not None:
                        told.append(self._end(job))
                told += self._start()
                if not told:
                    self._alarm.wait(self._ends[0][0] - now if self._ends else None)
            self._tell(told)
