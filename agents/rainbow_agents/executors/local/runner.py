"""Runs one job of the `local` executor: a program of its own (``python -I -S runner.py FOLDER``), stdlib only.

It outlives the agent, so that a job neither ends nor starts twice when the agent is killed:

- it holds a lock on ``FOLDER/lock`` for as long as it lives (a lock goes with its process, whatever ends it);
- whoever makes the link ``FOLDER/started`` decides whether the job ever starts: it points to ``runner``, or to
  ``cancelled`` when a cancel came first; a second runner finds it there and goes away;
- how it ended is in ``FOLDER/status.json``, written whole or not at all.

Standard output is a pipe to the agent: ``started`` is written there when the job is ours to start.

``FOLDER/job.json``: ``{units: [{command, ntasks, cwd, environment, duration, streams}], output_bytes, kill_after}``.
Units run one after another, the next only after success. SIGTERM ends the job as cancelled: its tasks get SIGTERM, and
SIGKILL `kill_after` seconds later. A task runs in a session of its own, with standard input from /dev/null and its
environment exactly as given; `streams` names files for its output. Of all other output the last `output_bytes` of each
stream are kept, in ``FOLDER/output``: a line ``{stdout: [dropped, kept], stderr: [dropped, kept]}`` in bytes, then what
is kept of both.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from types import FrameType
from typing import Any

#: What Flux's shell reports for a task ended by a signal, and for a command that is not there or not executable.
_SIGNALLED, _NOT_FOUND, _NOT_EXECUTABLE = 128, 127, 126
#: Seconds that whoever inherited a task's output may keep it open after the task's end.
_DRAIN = 0.5
#: Seconds between copies of the output to the folder while the job runs.
_COPY = 1.0
#: The exit code when nothing was started because the disk is full: the job may be started again.
TRY_AGAIN = 75
#: Seconds between tries to write how a job ended.
_RETRY = 1.0


class Stop(Exception):
    """Why the job must end before its time: `timeout` or `cancel`."""


class Tail:
    """The last `limit` bytes of a stream."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.data = bytearray()
        self.dropped = 0
        self.fresh = False

    def add(self, block: bytes) -> None:
        self.data += block
        self.fresh = True
        if len(self.data) > 2 * self.limit + 65536:
            self.cut()

    def cut(self) -> None:
        over = len(self.data) - self.limit
        if over > 0:
            del self.data[:over]
            self.dropped += over


class Runner:
    def __init__(self, folder: str, job: dict[str, Any], wake: int) -> None:
        self.folder = folder
        self.units: list[dict[str, Any]] = job["units"]
        self.kill_after: float = job["kill_after"]
        self.out = {"stdout": Tail(job["output_bytes"]), "stderr": Tail(job["output_bytes"])}
        self.selector = selectors.DefaultSelector()
        self.selector.register(wake, selectors.EVENT_READ)
        self.tasks: list[subprocess.Popen[bytes]] = []
        self.streams = 0
        self.stopped: str | None = None
        self.copied = time.monotonic()

    def run(self) -> dict[str, Any]:
        """The status: returncode as Flux would have it, and what ended the job when it did not end by itself."""
        code, detail = 0, None
        for unit in self.units:
            code, detail = self.unit(unit)
            if code != 0 or self.stopped:
                break
        if self.stopped == "timeout":
            code = 142
        elif self.stopped == "cancel":
            code = 143
        return {"returncode": code, "exception": self.stopped, "detail": detail}

    def unit(self, unit: dict[str, Any]) -> tuple[int, str | None]:
        deadline = time.monotonic() + unit["duration"] if unit["duration"] else None
        self.tasks = []
        codes: list[int] = []
        detail = None
        try:
            for rank in range(unit["ntasks"]):
                if self.stopped:
                    break
                self.tasks.append(self.spawn(unit, rank))
        except OSError as exc:
            codes.append(_NOT_FOUND if isinstance(exc, FileNotFoundError) else _NOT_EXECUTABLE)
            detail = f"{exc.filename or unit['command'][0]}: {exc.strerror}"
            self.out["stderr"].add(f"{detail}\n".encode())
            self.kill(signal.SIGKILL)
        self.note_tasks()
        self.follow(deadline)
        for task in self.tasks:
            code = task.wait()
            codes.append(code if code >= 0 else _SIGNALLED - code)
        self.kill(signal.SIGKILL)  # what a task left behind in its session
        return max(codes, default=0), detail

    def spawn(self, unit: dict[str, Any], rank: int) -> subprocess.Popen[bytes]:
        environment = {**unit["environment"], "FLUX_TASK_RANK": str(rank)}
        with contextlib.ExitStack() as opened:
            files = {
                name: opened.enter_context(open(os.path.join(unit["cwd"], path), "ab"))
                for name, path in unit.get("streams", {}).items()
            }
            task = subprocess.Popen(  # noqa: S603 - running what the job says is what this program is for
                unit["command"],
                stdin=subprocess.DEVNULL,
                stdout=files.get("stdout", subprocess.PIPE),
                stderr=files.get("stderr", subprocess.PIPE),
                cwd=unit["cwd"],
                env=environment,
                start_new_session=True,
            )
        for name, pipe in (("stdout", task.stdout), ("stderr", task.stderr)):
            if pipe is None:
                continue
            os.set_blocking(pipe.fileno(), False)
            self.selector.register(pipe, selectors.EVENT_READ, name)
            self.streams += 1
        return task

    def note_tasks(self) -> None:
        """Who is to be ended if this program is killed: the leaders of the tasks' sessions."""
        with contextlib.suppress(OSError):  # a full disk: they run nevertheless
            write(self.folder, "tasks.json", [(t.pid, started_at(t.pid)) for t in self.tasks])

    def follow(self, deadline: float | None) -> None:
        """Copy output until the tasks are over, or have been ended."""
        kill_at = drain_until = None
        while True:
            now = time.monotonic()
            if deadline is not None and now >= deadline and self.stopped is None:
                self.stopped = "timeout"
            if self.stopped is not None and kill_at is None:
                self.kill(signal.SIGTERM)
                kill_at = now + self.kill_after
            if kill_at is not None and now >= kill_at:
                self.kill(signal.SIGKILL)
                kill_at = now + 1.0
            over = all(t.poll() is not None for t in self.tasks)
            if over and drain_until is None:
                drain_until = now + _DRAIN
            if over and (not self.streams or (drain_until is not None and now >= drain_until)):
                break
            self.copy_output(now)
            times = [t for t in (deadline if not self.stopped else None, kill_at, drain_until) if t is not None]
            # Output that is closed early gives no word of the end: look for it often then.
            wait = min([t - now for t in times] + [1.0 if self.streams else 0.02])
            self.read(max(0.0, wait))
        for key in list(self.selector.get_map().values()):
            if key.data is not None:
                self.close(key.fileobj)

    def read(self, timeout: float) -> None:
        for key, _ in self.selector.select(timeout):
            try:
                block = os.read(key.fd, 65536)
            except BlockingIOError:
                continue
            if key.data is None:
                continue  # woken by a signal
            if block:
                self.out[key.data].add(block)
            else:
                self.close(key.fileobj)

    def close(self, pipe: Any) -> None:
        self.selector.unregister(pipe)
        pipe.close()
        self.streams -= 1

    def kill(self, signum: int) -> None:
        for task in self.tasks:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(task.pid, signum)

    def copy_output(self, now: float, *, last: bool = False) -> None:
        if not last and now - self.copied < _COPY:
            return
        self.copied = now
        if not any(tail.fresh for tail in self.out.values()):
            return
        for tail in self.out.values():
            tail.cut()
        header = {name: [tail.dropped, len(tail.data)] for name, tail in self.out.items()}
        data = b"".join([json.dumps(header).encode(), b"\n", *(bytes(tail.data) for tail in self.out.values())])
        try:
            write(self.folder, "output", data)
        except OSError:  # a full disk: tried again at the next copy
            return
        for tail in self.out.values():
            tail.fresh = False


def write(folder: str, name: str, value: Any) -> None:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    temporary = os.path.join(folder, f".{name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
        os.replace(temporary, os.path.join(folder, name))
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def write_surely(folder: str, name: str, value: Any) -> None:
    """Write, and wait while the disk is full: what a job has done must not be lost. Ends when the folder is gone."""
    while True:
        try:
            write(folder, name, value)
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(_RETRY)
        else:
            return


def started_at(pid: int) -> str | None:
    """When a process started, in the kernel's own count: a pid that is used again has another."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return None


def main(folder: str) -> int:
    os.chdir("/")
    stopped: list[str] = []
    runner: Runner | None = None

    def on_term(_signum: int, _frame: FrameType | None) -> None:
        stopped.append("cancel")
        if runner is not None:
            runner.stopped = runner.stopped or "cancel"

    # A signal wakes the selector, so that a cancel need not wait for output.
    wake, waker = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(waker, False)
    signal.signal(signal.SIGTERM, on_term)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    try:
        lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        write(folder, "runner.json", os.getpid())
        os.symlink("runner", os.path.join(folder, "started"))
    except (BlockingIOError, FileExistsError):
        return 0  # another runner has it, or had it, or it was cancelled before
    except OSError:
        return TRY_AGAIN
    started = time.time()
    with contextlib.suppress(OSError):  # the agent may be gone
        os.write(1, b"started")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with open(os.path.join(folder, "job.json"), "rb") as file:
        runner = Runner(folder, json.load(file), wake)
    if stopped:
        runner.stopped = "cancel"
    status = runner.run()
    runner.copy_output(0, last=True)
    write_surely(folder, "status.json", {**status, "started_at": started, "ended_at": time.time()})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
