"""Follow one job to its end: its output as it comes, and its exit code as ours."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from rainbow.backoff import Backoff
from rainbow.cli.render import output
from rainbow.client.output import LATER, SOON, OutputReader

if TYPE_CHECKING:
    from rainbow.client import Client
    from rainbow.models.job import JobRecord
    from rainbow.models.requests import Output

#: How often the end of the output is asked for again after the job has ended: the agent may be writing it down.
_LAST_LOOKS = 20


def follow(
    rainbow: Client, job_id: str, changed: Callable[[JobRecord], None], timeout: float | None = None
) -> JobRecord:
    """Print the job's output as it comes, stdout to stdout and stderr to stderr, and return the record of its end.

    Args:
        changed: called with the record each time the job changes.
        timeout: seconds until TimedOut is raised; None for no limit. The job goes on.
    """
    news: queue.SimpleQueue[JobRecord | Exception] = queue.SimpleQueue()

    def listen() -> None:
        try:
            for record in rainbow.events([job_id], timeout=timeout, patient=True):
                news.put(record)
        except Exception as exc:
            news.put(exc)

    threading.Thread(target=listen, name="rainbow-follow", daemon=True).start()
    reader = OutputReader(rainbow.output_fetcher(job_id))
    pause = Backoff(SOON, LATER)
    running = False
    while True:
        try:
            change = news.get(timeout=pause.next() if running else None)
        except queue.Empty:
            while True:
                piece, more = reader.read()
                if piece.source == "job":
                    show(piece)
                    if piece.stdout or piece.stderr:
                        pause.reset()
                if not more:
                    break
            continue
        if isinstance(change, Exception):
            raise change
        changed(change)
        # An array has no output of its own.
        running = change.state == "running" and change.indices is None
        if change.terminal:
            if change.indices is None and ("accepted" in change.times or "running" in change.times or change.output):
                _rest(reader)
            return change


def _rest(reader: OutputReader) -> None:
    """Print what is left of the output of a job that has ended."""
    pause = Backoff(0.05, 0.5)
    for _ in range(_LAST_LOOKS):
        piece, more = reader.read()
        while more:
            show(piece)
            piece, more = reader.read()
        show(piece)
        if piece.ended or piece.source != "job":
            return
        threading.Event().wait(pause.next())
    output.note("rainbow: this may not be all of its output: `rainbow logs` shows what its cluster keeps")


def show(piece: Output) -> None:
    """Print a piece of output byte for byte, and on stderr what is missing of it."""
    for name, skipped in (("output", piece.stdout_skipped), ("error", piece.stderr_skipped)):
        if skipped:
            output.note(
                f"rainbow: {skipped} bytes of standard {name} are left out here: the cluster keeps the rest only"
            )
    for stream, data in piece.in_order():
        output.raw(data, sys.stderr if stream else None)
    if piece.ended:
        for text in piece.notes:
            output.note(f"rainbow: {text}")
    if piece.source != "job" and piece.detail:
        kept = "this is the end of its output as recorded" if piece.stdout else "no output was recorded"
        output.note(f"rainbow: {piece.detail}; {kept}")


def exit_code(record: JobRecord) -> int:
    """Return the exit code of a job as a shell has it: 128 + N for signal N, 1 for an end without an exit code."""
    if record.state == "completed":
        return 0
    code = record.returncode
    if not code:
        return 1
    return 128 - code if code < 0 else min(code, 255)
