"""Runs jobs as processes on this machine, as the agent's user: by explicit choice only (``agent.executor: local``).

For the embedded default, tests, and machines without Flux. Each job is run by a small program of its own (`runner`)
in a folder of its own, so that the agent may be killed at any instant: jobs go on, and a restarted agent (or a
second one on the same state folder) reads from the folders what became of them.

What a job gets: the environment of its jobspec and nothing of the agent's, over a minimal one (`PATH`, `HOME`, `USER`,
`LANG`, `RAINBOW_JOB_ID`, `RAINBOW_ATTEMPT`, and `FLUX_TASK_RANK`, `FLUX_JOB_SIZE` as under Flux); its `cwd`, which must
exist, else a scratch folder; standard input from /dev/null. Nodes, cores and GPUs of the registered graph are counted,
so that jobs queue as they would there; they are not reserved on the machine.

Options: `output_bytes` kept of each stream (102400), `kill_after` seconds from SIGTERM to SIGKILL (5), `max_tasks` of
a job (256), `path`, `keep_s` seconds an ended job's folder is kept (3600).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import secrets
import selectors
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rainbow.jobspec.request import Demand
from rainbow_agents.executors import runner
from rainbow_agents.executors.base import (
    OUTPUT_TAIL,
    Context,
    Ended,
    Found,
    Happening,
    Held,
    Listener,
    Mark,
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
from rainbow_agents.executors.environment import PATH, minimal
from rainbow_agents.executors.options import read_options
from rainbow_agents.executors.slots import Slots
from rainbow_agents.identity import write_private

log = logging.getLogger(__name__)

#: Ended jobs whose folders are kept at most.
_KEEP_ENDED = 5000


class _Unfit(Exception):
    """Why a job cannot run here."""


class Folder:
    """The folder of one job, and what it says. Read by any process; see `runner` for who writes what."""

    def __init__(self, path: Path, mark: Mark) -> None:
        self.path = path
        self.mark = mark

    @property
    def handle(self) -> str:
        return self.path.name

    def read(self, name: str) -> Any:
        """A JSON file of the folder, None when it is not there (yet)."""
        try:
            return json.loads((self.path / name).read_bytes())
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None

    def started(self) -> str | None:
        """`runner` or `cancelled`, by who came first; None when nobody did."""
        try:
            return os.readlink(self.path / "started")
        except OSError:
            return None

    def cancel_first(self) -> bool:
        """Make sure that it never starts. False when it has started already."""
        try:
            os.symlink("cancelled", self.path / "started")
        except FileExistsError:
            return self.started() == "cancelled"
        return True

    def runner_lives(self) -> bool:
        """Whether a runner holds the lock."""
        return _locked(self.path / "lock")

    def phase(self) -> Phase:
        by = self.started()
        if by is None:
            owner = self.read("queued.json")
            return "queued" if isinstance(owner, str) and _locked(self.path.parent.parent / f"{owner}.lock") else "held"
        if by == "cancelled" or (self.path / "status.json").exists():
            return "ended"
        # The lock is let go of after the status is written, so look for a status again once it is free.
        return "running" if self.runner_lives() else "ended"

    def ended(self) -> Ended:
        """How it ended (phase `ended`)."""
        if self.started() == "cancelled":
            return Ended(
                self.mark, self.handle, time.time(), "cancelled", -128, "cancel", "cancelled before it started"
            )
        status = self.read("status.json")
        if status is None:
            self._end_orphans()
            status = {"returncode": -9, "exception": "exec", "detail": "the job's runner was killed"}
            runner.write(str(self.path), "status.json", {**status, "ended_at": time.time()})
        code, exception = int(status["returncode"]), status.get("exception")
        detail = status.get("detail")
        if exception == "timeout":
            detail = "its time limit was reached"
        elif exception is None and detail is not None:
            exception = "exec"
        return Ended(
            mark=self.mark,
            handle=self.handle,
            at=float(status.get("ended_at") or time.time()),
            state="cancelled" if exception == "cancel" else "failed" if code or exception else "completed",
            returncode=code,
            code=exception,
            detail=detail,
            output=self.output(),
        )

    def output(self, limit: int = OUTPUT_TAIL) -> str | None:
        """The last bytes of standard output and error."""
        both = b"".join(data for _, data in self.streams())
        return both[-limit:].decode("utf-8", "replace") or None

    def streams(self) -> list[tuple[int, bytes]]:
        """Standard output and error: how many bytes of each are not kept any more, and those after them."""
        try:
            header, _, data = (self.path / "output").read_bytes().partition(b"\n")
        except OSError:  # it has written nothing (yet)
            return [(0, b""), (0, b"")]
        out = []
        for dropped, kept in json.loads(header).values():
            out.append((int(dropped), data[:kept]))
            data = data[kept:]
        return out

    def _end_orphans(self) -> None:
        """The runner was killed: end what it left running, if it is still the same processes."""
        for pid, began in self.read("tasks.json") or ():
            if began is not None and runner.started_at(pid) == began:
                with contextlib.suppress(OSError):
                    os.killpg(pid, signal.SIGKILL)


def _locked(path: Path) -> bool:
    """Whether a living process holds the lock on `path`."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


class _Job:
    """A job this executor has in its queue or watches. `pid` is its runner's when we started that one."""

    __slots__ = ("demand", "duration", "folder", "over", "pid", "pidfd", "pipe", "queued")

    def __init__(self, folder: Folder, demand: Demand, duration: float | None = None) -> None:
        self.folder = folder
        self.demand = demand
        self.duration = duration
        self.queued = False
        self.pid: int | None = None
        self.pidfd: int | None = None
        self.pipe: int | None = None
        self.over = False


class LocalExecutor:
    """See the module. One thread starts jobs and watches them end (through pidfds: no poll per job)."""

    def __init__(self, context: Context, listener: Listener) -> None:
        options = read_options(
            "local",
            context.options,
            output_bytes=102400,
            kill_after=5.0,
            max_tasks=256,
            path=PATH,
            keep_s=3600.0,
        )
        self._output_bytes: int = options["output_bytes"]
        self._kill_after: float = options["kill_after"]
        self._max_tasks: int = options["max_tasks"]
        self._path: str = options["path"]
        self._keep: float = options["keep_s"]
        self._listener = listener
        self._slots = Slots(context.capacity)
        self._lock = threading.RLock()
        self._jobs: dict[str, _Job] = {}
        self._closed = False
        root = context.state_dir
        self._active, self._over = root / "active", root / "ended"
        for folder in (root, self._active, self._over):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._name = secrets.token_hex(8)
        self._own = os.open(root / f"{self._name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._own, fcntl.LOCK_EX)
        self._sweep_locks(root)
        self.incarnation = self._incarnation(root / "incarnation")
        self._selector = selectors.DefaultSelector()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._watch, name="local-executor", daemon=True)
        self._thread.start()
        listener(Up(self.incarnation))

    # -- the contract ----------------------------------------------------------------------------------

    def submit(self, works: Sequence[Work]) -> None:
        for work in works:
            handle = f"{work.mark.id}.{work.mark.attempt}.{work.mark.claim}"
            try:
                description = self._describe(work)
                self._make(handle, description)
            except _Unfit as exc:
                self._listener(Refused(work.mark, "no-fit", str(exc)))
            except OSError as exc:  # disk full, no inodes: no fault of the job
                self._listener(Refused(work.mark, "error", f"the job cannot be written down: {exc.strerror}"))
            else:
                with self._lock:
                    folder = Folder(self._active / handle, work.mark)
                    self._jobs[handle] = _Job(folder, work.demand, _lasts(description["units"]))
                self._listener(Submitted(work.mark, handle, self.incarnation))

    def release(self, jobs: Sequence[Held]) -> None:
        with self._lock:
            for held in jobs:
                job = self._job(held)
                if job is None or job.queued or job.folder.started() is not None:
                    continue
                try:
                    runner.write(str(job.folder.path), "queued.json", self._name)
                except FileNotFoundError:  # another agent ended it, and moved the folder
                    self._jobs.pop(held.handle, None)
                    continue
                job.queued = True
                self._slots.add(held.handle, job.demand, held.priority, job.duration)
        self._poke()

    def cancel(self, jobs: Sequence[Held], reason: str) -> None:
        for held in jobs:
            with self._lock:
                job = self._job(held)
                if job is None:
                    continue
                ended = None
                try:
                    first = job.folder.cancel_first()
                except FileNotFoundError:
                    self._forget(job)
                    continue
                if first:
                    ended = Ended(held.mark, held.handle, time.time(), "cancelled", -128, "cancel", reason)
                    self._finish(job)
                else:
                    self._terminate(job.folder)
                    self._attend(job)
            if ended is not None:
                self._listener(ended)
        self._poke()

    def usage(self) -> Usage:
        with self._lock:
            return self._slots.usage()

    def outlook(self) -> Outlook:
        with self._lock:
            return self._slots.outlook()

    def output(self, job: Held, stdout: int, stderr: int, limit: int) -> Piece | None:
        if job.handle != f"{job.mark.id}.{job.mark.attempt}.{job.mark.claim}" or "/" in job.handle:
            return None
        for root in (self._active, self._over):
            if (root / job.handle).is_dir():
                (out_lost, out), (err_lost, err) = Folder(root / job.handle, job.mark).streams()
                out_piece, out_from = cut(out, stdout, limit, out_lost)
                err_piece, err_from = cut(err, stderr, limit, err_lost)
                return Piece(out_piece, err_piece, out_from, err_from, out_lost + len(out), err_lost + len(err))
        return None

    def recover(self, expected: Sequence[Held]) -> Recovery:
        wanted = {held.handle: held for held in expected}
        found: list[Found] = []
        for folder in list(self._folders(self._active)):
            with self._lock:
                phase = folder.phase()
                status = folder.read("status.json")
                if phase == "running":
                    job = self._jobs.get(folder.handle) or self._adopt(folder)
                    self._attend(job)
                try:
                    ended = folder.ended() if phase == "ended" else None
                except FileNotFoundError:  # another agent moved it meanwhile: looked for below
                    continue
            if ended is None or folder.handle in wanted:
                wanted.pop(folder.handle, None)
                found.append(Found(folder.mark, folder.handle, phase, (status or {}).get("started_at"), ended))
            if ended is not None:
                self._move(folder)
        for held in wanted.values():
            over = Folder(self._over / held.handle, held.mark)
            if over.path.is_dir():
                found.append(Found(held.mark, held.handle, "ended", None, over.ended()))
        self._prune()
        self._poke()
        return Recovery(self.incarnation, tuple(found))

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._poke()
        self._thread.join(5.0)
        os.close(self._own)

    # -- what a job is ----------------------------------------------------------------------------------

    def _describe(self, work: Work) -> dict[str, Any]:
        misfit = self._slots.misfit(work.demand)
        if misfit is not None:
            raise _Unfit(misfit)
        units = [self._unit(work, unit.document) for unit in work.units]
        return {
            "mark": work.mark.as_dict(),
            "name": work.name,
            "user": work.user,
            "demand": [work.demand.nodes, work.demand.cores, work.demand.gpus],
            "units": units,
            "output_bytes": self._output_bytes,
            "kill_after": self._kill_after,
        }

    def _unit(self, work: Work, document: Mapping[str, Any]) -> dict[str, Any]:
        system = document["attributes"]["system"]
        task = document["tasks"][0]
        command = [str(word) for word in task["command"]]
        if system.get("files") or any("{{" in word for word in command):
            raise _Unfit("the job brings files or is a batch job of Flux: the local executor runs plain commands only")
        if work.image:
            raise _Unfit(f"the job wants image {work.image!r}: the local executor runs no containers")
        cwd = system.get("cwd")
        if cwd is not None and not os.path.isdir(cwd):
            raise _Unfit(f"its working folder {cwd!r} does not exist here")
        ntasks = _ntasks(document)
        if ntasks > self._max_tasks:
            raise _Unfit(f"the job has {ntasks} tasks: at most {self._max_tasks} run at a time here")
        return {
            "command": command,
            "ntasks": ntasks,
            "cwd": cwd,
            "environment": {
                **minimal(work.mark, self._path),
                "FLUX_JOB_SIZE": str(ntasks),
                **(system.get("environment") or {}),
            },
            "duration": float(system.get("duration") or 0.0),
        }

    def _make(self, handle: str, description: Mapping[str, Any]) -> None:
        """The folder, whole or not at all."""
        temporary = self._active / f".{handle}"
        temporary.mkdir(mode=0o700)
        for unit in description["units"]:
            if unit["cwd"] is None:
                (temporary / "work").mkdir(mode=0o700, exist_ok=True)
                unit["cwd"] = str(self._active / handle / "work")
        write_private(temporary / "job.json", json.dumps(description))
        temporary.rename(self._active / handle)

    # -- starting and watching ------------------------------------------------------------------------------

    def _watch(self) -> None:
        while True:
            with self._lock:
                if self._closed:
                    break
                told = self._start_ready()
            self._tell(told)
            for key, _ in self._selector.select(60.0):
                if key.fd == self._wake:
                    with contextlib.suppress(BlockingIOError):
                        os.eventfd_read(self._wake)
                elif key.fd == key.data.pipe:
                    self._started_now(key.data)
                else:
                    self._over_now(key.data)
        self._selector.close()

    def _start_ready(self) -> list[Happening]:
        told: list[Happening] = []
        for handle in self._slots.ready():
            job = self._jobs[str(handle)]
            try:
                self._spawn(job)
            except OSError as exc:
                log.warning("no process for a job: %s", exc, extra={"action": "local.start", "handle": handle})
                if job.folder.cancel_first():
                    ended = Ended(
                        job.folder.mark, job.folder.handle, time.time(), "failed", -128, "exec", str(exc.strerror)
                    )
                    self._finish(job)
                    told.append(ended)
        return told

    def _spawn(self, job: _Job) -> None:
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
        self._attend(job, job.pid)

    def _started_now(self, job: _Job) -> None:
        """The runner wrote that it starts the job, or ended without."""
        assert job.pipe is not None
        started = os.read(job.pipe, 64)
        self._selector.unregister(job.pipe)
        os.close(job.pipe)
        job.pipe = None
        if started:
            self._listener(Started(job.folder.mark, job.folder.handle, time.time()))

    def _attend(self, job: _Job, pid: int | None = None) -> None:
        """Be told when the runner of `job` ends."""
        if job.pidfd is not None:
            return
        pid = pid if pid is not None else job.folder.read("runner.json")
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
        self._poke()

    def _over_now(self, job: _Job) -> None:
        if job.pipe is not None:
            self._started_now(job)  # so that the start is told before the end
        with self._lock:
            assert job.pidfd is not None
            self._selector.unregister(job.pidfd)
            os.close(job.pidfd)
            job.pidfd = None
            if job.pid is not None:
                os.waitpid(job.pid, 0)
                job.pid = None
            if job.over:
                return
            try:
                ended = self._end_of(job)
            except FileNotFoundError:
                self._forget(job)
                return
        if ended is not None:
            self._listener(ended)

    def _end_of(self, job: _Job) -> Ended | None:
        """What became of a job whose runner ended. FileNotFoundError when another agent moved its folder."""
        phase = job.folder.phase()
        if phase == "running":  # ours lost to another runner, which is to be watched
            self._attend(job)
            return None
        if phase == "ended":
            ended = job.folder.ended()
        elif job.folder.cancel_first():  # the runner did not get as far as starting anything
            why = "the job's runner could not start"
            ended = Ended(job.folder.mark, job.folder.handle, time.time(), "failed", -128, "exec", why)
        else:
            return None
        self._finish(job)
        return ended

    def _forget(self, job: _Job) -> None:
        """Another agent saw its end first, and moved its folder."""
        job.over = True
        self._slots.done(job.folder.handle)
        self._jobs.pop(job.folder.handle, None)

    def _finish(self, job: _Job) -> None:
        job.over = True
        self._slots.done(job.folder.handle)
        self._jobs.pop(job.folder.handle, None)
        self._move(job.folder)

    def _move(self, folder: Folder) -> None:
        with contextlib.suppress(FileNotFoundError):  # another agent was first
            folder.path.rename(self._over / folder.handle)
            folder.path = self._over / folder.handle

    def _terminate(self, folder: Folder) -> None:
        """SIGTERM to the runner, which ends its tasks."""
        pid = folder.read("runner.json")
        if not isinstance(pid, int):
            return
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            # Through the pidfd, and only while the lock is held: never to a stranger with the same pid.
            if folder.runner_lives():
                signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        except ProcessLookupError:
            pass
        finally:
            os.close(descriptor)

    # -- folders of others, and of before -------------------------------------------------------------------

    def _job(self, held: Held) -> _Job | None:
        job = self._jobs.get(held.handle)
        if job is None and held.handle and "/" not in held.handle and (self._active / held.handle).is_dir():
            job = self._adopt(Folder(self._active / held.handle, held.mark))
        return job if job is not None and job.folder.mark == held.mark else None

    def _adopt(self, folder: Folder) -> _Job:
        description = folder.read("job.json") or {}
        demand = Demand(*description.get("demand", (0, 1, 0)))
        job = self._jobs[folder.handle] = _Job(folder, demand, _lasts(description.get("units", ())))
        if folder.phase() == "running":
            since = (folder.read("status.json") or {}).get("started_at")
            self._slots.occupy(folder.handle, demand, job.duration, since)
        return job

    @staticmethod
    def _folders(root: Path) -> Iterator[Folder]:
        for path in root.iterdir():
            parts = path.name.rsplit(".", 2)
            if len(parts) == 3 and parts[0] and parts[1].isdigit():
                yield Folder(path, Mark(parts[0], int(parts[1]), parts[2]))

    def _prune(self) -> None:
        limit = time.time() - self._keep
        aged = sorted((path.stat().st_mtime, path) for path in self._over.iterdir())
        for number, (changed, path) in enumerate(reversed(aged)):
            if changed < limit or number >= _KEEP_ENDED:
                shutil.rmtree(path, ignore_errors=True)

    def _sweep_locks(self, root: Path) -> None:
        """Locks of agents that are gone."""
        for path in root.glob("*.lock"):
            if path.stem != self._name and not _locked(path):
                path.unlink(missing_ok=True)

    @staticmethod
    def _incarnation(path: Path) -> str:
        """One for the life of the folder: jobs are found in it again whoever looks."""
        try:
            return path.read_text().strip()
        except FileNotFoundError:
            fresh = secrets.token_hex(8)
            temporary = path.with_name(f".incarnation.{fresh}")
            write_private(temporary, fresh)
            with contextlib.suppress(FileExistsError):
                os.link(temporary, path)
            temporary.unlink()
            return path.read_text().strip()

    def _poke(self) -> None:
        os.eventfd_write(self._wake, 1)

    def _tell(self, happenings: Sequence[Happening]) -> None:
        for happening in happenings:
            self._listener(happening)


def _lasts(units: Sequence[Mapping[str, Any]]) -> float | None:
    """The time limit of a job of these units, which run one after the other; None when one has none."""
    durations = [float(unit.get("duration") or 0.0) for unit in units]
    return sum(durations) if durations and all(durations) else None


def _ntasks(document: Mapping[str, Any]) -> int:
    """How many tasks a V1 document starts."""
    count = document["tasks"][0]["count"]
    if "total" in count:
        return int(count["total"])
    slots = 0
    level: list[tuple[Mapping[str, Any], int]] = [(r, 1) for r in document["resources"]]
    while level:
        resource, times = level.pop()
        number = resource["count"]
        times *= int(number["min"] if isinstance(number, Mapping) else number)
        if resource["type"] == "slot":
            slots += times
        else:
            level += [(r, times) for r in resource.get("with", ())]
    return max(1, slots) * int(count.get("per_slot", 1))
