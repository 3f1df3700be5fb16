"""The folder of one job, and what it says. Any process may read it; see `runner` for who writes what."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from rainbow_agents.executors.base import OUTPUT_TAIL, Ended, EndState, Phase, SubmissionKey
from rainbow_agents.executors.flux.session.ending import end_of
from rainbow_agents.executors.local import runner


class Folder:
    """See the module."""

    def __init__(self, path: Path, mark: SubmissionKey) -> None:
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
        """`runner` or `cancelled`, by which came first; None when neither did."""
        try:
            return os.readlink(self.path / "started")
        except OSError:
            return None

    def cancel_first(self) -> bool:
        """Make sure that it never starts. False when it has started already. FileNotFoundError when it is gone."""
        try:
            os.symlink("cancelled", self.path / "started")
        except FileExistsError:
            return self.started() == "cancelled"
        return True

    def runner_lives(self) -> bool:
        """Whether a runner holds the lock."""
        return locked(self.path / "lock")

    def phase(self) -> Phase:
        by = self.started()
        if by is None:
            owner = self.read("queued.json")
            return "queued" if isinstance(owner, str) and locked(self.path.parent.parent / f"{owner}.lock") else "held"
        if by == "cancelled" or (self.path / "status.json").exists():
            return "ended"
        # The lock is let go of after the status is written, so look for a status again once it is free.
        return "running" if self.runner_lives() else "ended"

    def ended(self) -> Ended:
        """How it ended (phase `ended`). Raises OSError where that cannot be written down."""
        if self.started() == "cancelled":
            return self.end("cancelled", "cancel", "cancelled before it started")
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

    def end(self, state: EndState, code: str, detail: str) -> Ended:
        """The end of a job that never started."""
        return Ended(self.mark, self.handle, time.time(), state, 1 if state == "failed" else None, code, detail)

    def output(self, limit: int = OUTPUT_TAIL) -> str | None:
        """The end of standard output and error."""
        return end_of(b"".join(data for _, data in self.streams()), limit)

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

    def terminate(self) -> None:
        """SIGTERM to the runner, which ends its tasks."""
        pid = self.read("runner.json")
        if not isinstance(pid, int):
            return
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            # Through the pidfd, and only while the lock is held: never to a stranger with the same pid.
            if self.runner_lives():
                signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        except ProcessLookupError:
            pass
        finally:
            os.close(descriptor)

    def _end_orphans(self) -> None:
        """The runner was killed: end what it left running, if it is still the same processes."""
        for pid, began in self.read("tasks.json") or ():
            if began is not None and runner.started_at(pid) == began:
                with contextlib.suppress(OSError):
                    os.killpg(pid, signal.SIGKILL)


def locked(path: Path) -> bool:
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


__all__ = ["Folder", "locked"]
