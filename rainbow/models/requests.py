"""What is answered: pages of jobs by the registrar; and what workers ask an agent, bids for jobs and the output of one.

Questions to an agent travel in an `AgentCommand`; the agent's `AgentAnswer` (`rainbow.models.control`) goes to the
registrar, which hands it to the client that asked. Nothing of it is kept: a question that is not answered in time is
as good as none.
"""

from __future__ import annotations

import math
from base64 import b64decode
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any

from pydantic import Field

from rainbow.errors import InvalidInput
from rainbow.models.job import JobRecord
from rainbow.models.wire import OpenWire

#: Bytes of each stream that one answer carries at most.
MAX_OUTPUT = 262_144

_Amount = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]


class JobPage(OpenWire):
    """Jobs, newest first. The list goes on after `next`; None: it ends here.

    `at` has the time of each job's first event, in seconds since 1970: with its id, that is its position in the list.
    `looked` is how many jobs were looked at for it (0: not known).
    """

    jobs: list[JobRecord] = Field(default_factory=list)
    at: list[float] = Field(default_factory=list)
    next: str | None = None
    looked: int = 0

    def position(self, index: int) -> str:
        """After which the list goes on behind one of these jobs."""
        return position(self.at[index], self.jobs[index].id)


def position(at: float, job_id: str) -> str:
    """A position in a list of jobs, as text."""
    return f"{at!r}_{job_id}"


def read_position(text: str) -> tuple[float, str]:
    """The time and the id of a position. Raises InvalidInput."""
    at, _, job_id = text.partition("_")
    try:
        if job_id and math.isfinite(time := float(at)):
            return time, job_id
    except ValueError:
        pass
    raise InvalidInput(f"before is a position that a page of jobs gave as `next`, not {text[:80]!r}")


class BidAsk(OpenWire):
    """A job that looks for a cluster. `jobspec` is without the job's environment: only who runs it gets that."""

    id: str
    attempt: int = 1
    user: str
    name: str | None = None
    priority: int = 16
    jobspec: dict[str, Any]


class Bid(OpenWire):
    """What a cluster says to one job.

    `eta` is in how many seconds it would start (None: the cluster cannot tell), `cost` what it would cost in the
    site's own unit (None: it has no price). `code` and `detail` say why not.
    """

    id: str
    will: bool
    eta: _Amount | None = None
    cost: _Amount | None = None
    code: str | None = None
    detail: str | None = None


class OutputAsk(OpenWire):
    """The output of a job from these bytes on; negative ones count from its end. At most `limit` of each stream."""

    id: str
    attempt: int
    stdout: int = 0
    stderr: int = 0
    limit: Annotated[int, Field(gt=0, le=MAX_OUTPUT)] = MAX_OUTPUT


class Output(OpenWire):
    """A piece of the output of an attempt of a job. `stdout_next` and `stderr_next` are where the next piece begins.

    `source` is where it comes from: `job` (what the cluster keeps), or `tail` (the end of it that was recorded with
    the job's last event, standard output and error together, when there is no more to be had; `detail` says why).
    `ended` says that nothing will be added; `more` that there is more than this piece. `stdout_skipped` and
    `stderr_skipped` are how many bytes before this piece are not kept any more. Where a stream is not UTF-8,
    `stdout_base64` and `stderr_base64` have its bytes, and the text has U+FFFD in their place. `order` is how the two
    streams interleave: pairs of a stream (0 for stdout, 1 for stderr) and a number of bytes; it is empty where that is
    not known. `notes` say what is missing for good: output that was cut, or redirected to a file.
    """

    id: str
    attempt: int = 0
    source: str = "job"
    stdout: str = ""
    stderr: str = ""
    stdout_next: int = 0
    stderr_next: int = 0
    stdout_skipped: int = 0
    stderr_skipped: int = 0
    stdout_base64: str | None = None
    stderr_base64: str | None = None
    order: list[tuple[int, int]] = Field(default_factory=list, max_length=MAX_OUTPUT)
    notes: list[str] = Field(default_factory=list, max_length=1000)
    ended: bool = False
    more: bool = False
    detail: str | None = None

    def in_order(self) -> Iterator[tuple[int, bytes]]:
        """Give blocks of both streams (0 for stdout, 1 for stderr), as far as that is known in the order written."""
        left = [self.stdout_bytes, self.stderr_bytes]
        for stream, size in self.order:
            if stream in (0, 1) and size > 0 and left[stream]:
                yield stream, left[stream][:size]
                left[stream] = left[stream][size:]
        yield from ((stream, data) for stream, data in enumerate(left) if data)

    @property
    def stdout_bytes(self) -> bytes:
        """Standard output as the job wrote it."""
        return _bytes(self.stdout, self.stdout_base64)

    @property
    def stderr_bytes(self) -> bytes:
        """Standard error as the job wrote it."""
        return _bytes(self.stderr, self.stderr_base64)


def _bytes(text: str, encoded: str | None) -> bytes:
    if encoded is not None:
        with suppress(ValueError):
            return b64decode(encoded, validate=True)
    return text.encode("utf-8", "surrogatepass")
