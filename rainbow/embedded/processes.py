"""Child processes of an embedded instance: started, watched and ended by their own id, never by name."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rainbow.errors import RainbowError
from rainbow.paths import private_folder


class Child:
    """A program of ours (a module run by this interpreter) that logs to a file."""

    def __init__(self, name: str, arguments: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.log = log
        private_folder(log.parent)
        with log.open("ab") as out:
            # A session of its own: Ctrl-C reaches the parent alone, which ends its children in order.
            self.process = subprocess.Popen(  # noqa: S603 - our own modules
                [sys.executable, "-m", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
            )

    def check(self) -> None:
        """Raise RainbowError when it ended."""
        code = self.process.poll()
        if code is not None:
            last = self.log.read_text(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
            raise RainbowError(f"{self.name} ended with code {code}: {last[0]} (see {self.log})")

    def stop(self, grace: float = 15.0) -> None:
        """Ask it to end; after `grace` seconds make it."""
        if self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(grace)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def started_at(pid: int) -> str | None:
    """When process `pid` was started, in the kernel's clock ticks; None when there is none.

    Together with the id it names one process for good, since ids are used again (proc(5), stat field 22).
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        # Without /proc (macOS) the id alone has to do.
        with contextlib.suppress(OSError):
            os.kill(pid, 0)
            return "unknown"
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]


def end(pid: int, mark: str, grace: float = 30.0) -> bool:
    """End the process that has `pid` and was started at `mark`. False when it is gone already."""
    if started_at(pid) != mark:
        return False
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while started_at(pid) == mark:
        if time.monotonic() > deadline:
            raise RainbowError(f"process {pid} does not end: look at it, or `kill -9 {pid}`")
        time.sleep(0.05)
    return True
