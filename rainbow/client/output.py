"""Reading a job's output to its end, piece by piece."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rainbow.backoff import Backoff
from rainbow.errors import TimedOut

if TYPE_CHECKING:
    from rainbow.models.requests import Output

#: Seconds between two looks at a job that writes, and that has been quiet for a while.
SOON, LATER = 0.3, 3.0


class OutputReader:
    """Reads on from where the last piece ended, and from the start when the job runs again elsewhere.

    Args:
        fetch: returns the piece of both streams from the byte offsets `stdout` and `stderr` on.
    """

    def __init__(self, fetch: Callable[..., Output]) -> None:
        self._fetch = fetch
        self._stdout = self._stderr = self._attempt = 0
        self._found_any = False

    def read(self) -> tuple[Output, bool]:
        """Return the next piece, and whether there is more of it right now.

        A piece that is only what was recorded (`source` ``tail``) has no text once pieces came from the job itself:
        it would be a repetition.
        """
        piece = self._fetch(stdout=self._stdout, stderr=self._stderr)
        if self._attempt and piece.attempt > self._attempt:
            self._stdout = self._stderr = self._attempt = 0
            self._found_any = False
            piece = self._fetch(stdout=0, stderr=0)
        self._attempt = piece.attempt
        if piece.source != "job":
            return (piece.model_copy(update={"stdout": ""}) if self._found_any else piece), False
        moved = (piece.stdout_next, piece.stderr_next) != (self._stdout, self._stderr)
        self._stdout, self._stderr = piece.stdout_next, piece.stderr_next
        self._found_any = self._found_any or bool(piece.stdout or piece.stderr)
        return piece, piece.more and moved and not piece.ended


def pieces(fetch: Callable[..., Output], follow: bool, timeout: float | None) -> Iterator[Output]:
    """Yield what `fetch` returns from where the piece before ended; to `follow`, until the job has ended.

    Raises:
        TimedOut: the job has not ended within `timeout` seconds.
    """
    end = None if timeout is None else time.monotonic() + timeout
    pause = Backoff(SOON, LATER)
    reader = OutputReader(fetch)
    while True:
        piece, more = reader.read()
        if piece.source != "job":
            if piece.ended or not follow:
                yield piece
                return
        elif piece.stdout or piece.stderr or piece.ended:
            pause.reset()
            yield piece
        if more:
            continue
        if piece.ended or not follow:
            return
        wait = pause.next()
        if end is not None and time.monotonic() + wait > end:
            raise TimedOut(f"the job has not ended within {timeout:g} s")
        time.sleep(wait)
