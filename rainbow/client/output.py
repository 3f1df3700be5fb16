"""Reading a job's output to its end, piece by piece."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rainbow.backoff import Backoff
from rainbow.errors import TimedOut

if TYPE_CHECKING:
    from rainbow.models.asking import Output

#: Seconds between two looks at a job that writes, and that has been quiet for a while.
_SOON, _LATER = 0.3, 3.0


def pieces(fetch: Callable[..., Output], follow: bool, timeout: float | None) -> Iterator[Output]:
    """What `fetch` gives from where the piece before ended; to `follow`, until the job has ended."""
    end = None if timeout is None else time.monotonic() + timeout
    pause = Backoff(_SOON, _LATER)
    stdout = stderr = attempt = 0
    found_any = False
    while True:
        piece = fetch(stdout=stdout, stderr=stderr)
        if attempt and piece.attempt > attempt:  # it runs anew, elsewhere
            stdout, stderr, attempt, found_any = 0, 0, piece.attempt, False
            continue
        attempt = piece.attempt
        if piece.source != "job":
            # Only the end of it is to be had. Once pieces came from the job itself that would be a repetition.
            if piece.ended or not follow:
                yield piece.model_copy(update={"stdout": ""}) if found_any else piece
                return
        else:
            moved = (piece.stdout_next, piece.stderr_next) != (stdout, stderr)
            stdout, stderr = piece.stdout_next, piece.stderr_next
            if piece.stdout or piece.stderr or piece.ended:
                found_any = found_any or bool(piece.stdout or piece.stderr)
                pause.reset()
                yield piece
            if piece.ended or (not follow and not (piece.more and moved)):
                return
            if piece.more and moved:
                continue
        wait = pause.next()
        if end is not None and time.monotonic() + wait > end:
            raise TimedOut(f"the job has not ended within {timeout:g} s")
        time.sleep(wait)
