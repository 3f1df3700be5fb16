"""The contract of an executor: what runs jobs on a cluster. Six methods, and a listener that is told what happens.

Everything is asynchronous and pipelined: `submit`, `release` and `cancel` return at once and may be called with many
jobs at a time; what became of them reaches the listener, in any thread. The listener only puts what it is told into a
queue, so it may be called with a lock held.

Exactly one start: a job is submitted *held*, its handle is written down by the agent, and only then is it
released.
`SubmissionKey` travels with the job: `claim` is random for each try to submit it, so that a held job that no agent
wrote down is recognized, and an id that a fresh instance hands out again is never mistaken for an old one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeGuard, runtime_checkable

from rainbow.jobspec.flux.v1 import FluxJob
from rainbow.jobspec.request import Demand
from rainbow.models.arrays import Element
from rainbow.models.job import RejectCode

#: How a job ended: what the event is called.
EndState = Literal["completed", "failed", "cancelled", "lost"]

#: Bytes of a job's output that travel with its last event.
OUTPUT_TAIL = 4096


@dataclass(frozen=True, slots=True)
class SubmissionKey:
    """Whose job this is: the rainbow job, its attempt, and the one try to submit it."""

    id: str
    attempt: int
    claim: str

    def as_dict(self) -> dict[str, Any]:
        return {"id": self.id, "attempt": self.attempt, "claim": self.claim}

    @staticmethod
    def from_dict(data: object) -> SubmissionKey | None:
        """The mark in what a job carries; None when it is not ours."""
        if not isinstance(data, Mapping):
            return None
        job, attempt, claim = data.get("id"), data.get("attempt"), data.get("claim")
        if isinstance(job, str) and isinstance(attempt, int) and isinstance(claim, str):
            return SubmissionKey(job, attempt, claim)
        return None


@dataclass(frozen=True, slots=True)
class Work:
    """A job to run: V1 documents in order, each after those it depends on (one, for most jobs).

    `demand` is what it takes in all. `priority` is Flux's urgency (0..31), applied at release. `element` says which
    of an array it is.
    """

    mark: SubmissionKey
    units: tuple[FluxJob, ...] = field(hash=False, compare=False)
    demand: Demand
    name: str | None = None
    user: str = ""
    priority: int = 16
    image: str | None = None
    element: Element | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """A job that was written down, to be released: with the urgency it is to have."""

    mark: SubmissionKey
    handle: str
    priority: int = 16


# -- what the listener is told -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Submitted:
    """The job is in, held. `handle` names it in the instance `incarnation`."""

    mark: SubmissionKey
    handle: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The executor will never run this job: `code` is the reject code, `detail` its own words."""

    mark: SubmissionKey
    code: RejectCode
    detail: str


@dataclass(frozen=True, slots=True)
class Undecided:
    """It is not known whether the job is in: the executor went away or did not answer. It is held at most."""

    mark: SubmissionKey
    detail: str


@dataclass(frozen=True, slots=True)
class Started:
    mark: SubmissionKey
    handle: str
    at: float


@dataclass(frozen=True, slots=True)
class Ended:
    """The job is over. `returncode` as `os.waitstatus_to_exitcode` has it; `code`, `detail` where there is a reason."""

    mark: SubmissionKey
    handle: str
    at: float
    state: EndState
    returncode: int | None = None
    code: str | None = None
    detail: str | None = None
    output: str | None = None


@dataclass(frozen=True, slots=True)
class Up:
    """The executor can be used. What was told of jobs before may have gaps: recover."""

    incarnation: str


@dataclass(frozen=True, slots=True)
class Down:
    """The executor cannot be used now. It comes back by itself, with Up."""

    reason: str


@dataclass(frozen=True, slots=True)
class Changed:
    """Resources went down, were drained or came back: usage is worth reporting; `graph` when what exists changed."""

    graph: bool = False


@dataclass(frozen=True, slots=True)
class Crashed:
    """A thread of the executor died of something unexpected: the agent must end, and be started again."""

    error: BaseException


Outcome = Submitted | Refused | Undecided
News = Started | Ended
ExecutorEvent = Outcome | News | Up | Down | Changed | Crashed
Listener = Callable[[ExecutorEvent], None]


def is_outcome(happening: ExecutorEvent) -> TypeGuard[Outcome]:
    return isinstance(happening, Submitted | Refused | Undecided)


def is_news(happening: ExecutorEvent) -> TypeGuard[News]:
    return isinstance(happening, Started | Ended)


# -- what it is asked ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Usage:
    """Numbers for the state report: free and whole resources, jobs waiting and running (None: not known)."""

    nodes_free: int | None = None
    cores_free: int | None = None
    gpus_free: int | None = None
    nodes_up: int | None = None
    jobs_pending: int | None = None
    jobs_running: int | None = None
    #: Further values worth reporting, such as which queues are stopped.
    notes: tuple[tuple[str, str], ...] = ()

    def values(self) -> dict[str, int | str]:
        pairs: dict[str, int | str | None] = {
            "nodes_free": self.nodes_free,
            "cores_free": self.cores_free,
            "gpus_free": self.gpus_free,
            "nodes_up": self.nodes_up,
            "jobs_pending": self.jobs_pending,
            "jobs_running": self.jobs_running,
            **dict(self.notes),
        }
        return {name: value for name, value in pairs.items() if value is not None}


#: `held`: submitted and never released. A job that was released and is held by an operator now is `queued`.
Phase = Literal["held", "queued", "running", "ended"]


@dataclass(frozen=True, slots=True)
class Found:
    """A job carrying our mark. `ended` is set when it is over and how is known."""

    mark: SubmissionKey
    handle: str
    phase: Phase
    started_at: float | None = None
    ended: Ended | None = None


@dataclass(frozen=True, slots=True)
class Trouble:
    """An expected job that could not be looked up, and why. It may be there or not."""

    mark: SubmissionKey
    reason: str


@dataclass(frozen=True, slots=True)
class Recovery:
    """All active jobs that carry our mark, and of those asked for by handle also the ended ones."""

    incarnation: str
    jobs: tuple[Found, ...]
    trouble: tuple[Trouble, ...] = ()


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the registered graph holds in all, for executors that have no resources of their own to ask."""

    nodes: int = 1
    cores: int = 1
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class Context:
    """What an executor is made with. `state_dir` is its own folder; `owner` marks our jobs among those of others."""

    cluster: str
    owner: str
    state_dir: Path
    capacity: Capacity = Capacity()
    options: Mapping[str, Any] = field(default_factory=dict)


# -- what an executor may be asked besides ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Busy:
    """A job that holds resources until `ends_at` at the latest (seconds since 1970; None: it has no time limit)."""

    demand: Demand
    ends_at: float | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job in the queue. `priority` as Flux's urgency has it: the higher goes first."""

    demand: Demand
    duration: float | None
    priority: int = 16


@dataclass(frozen=True, slots=True)
class Outlook:
    """The queue as a forecast needs it: all resources, the free ones, who holds the rest, and who waits, in order.

    `up` are the resources that are neither down nor drained; None: all of them. `closed` are queues that start no jobs
    or take none now, with the reason; the name "" stands for the queue of an instance that has no named ones.
    """

    total: Demand
    free: Demand
    busy: tuple[Busy, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    up: Demand | None = None
    closed: Mapping[str, str] = field(default_factory=dict, hash=False)
    #: The queue of jobs that name none.
    default_queue: str = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """Output of a job: bytes of each stream from where it was asked for. The sizes are of all there is now.

    `order` says how the two pieces interleave: (0 for stdout or 1 for stderr, bytes), empty where that is not known.
    `notes` say what is missing: output that was cut, or redirected to a file.
    """

    stdout: bytes = b""
    stderr: bytes = b""
    stdout_from: int = 0
    stderr_from: int = 0
    stdout_size: int = 0
    stderr_size: int = 0
    order: tuple[tuple[int, int], ...] = ()
    notes: tuple[str, ...] = ()


class ExecutorDown(Exception):
    """The executor cannot be asked now; it has told (or will tell) the listener."""


class Executor(Protocol):
    """Runs jobs. Made as ``Executor(context, listener)``: connects in the background, tells `Up` when it can be used.

    Options that are wrong raise InvalidSettings from the constructor.
    """

    def submit(self, works: Sequence[Work]) -> None:
        """Submit, held. Each ends in one of Submitted, Refused, Undecided within the executor's own time limit."""

    def release(self, jobs: Sequence[Held]) -> None:
        """Let them run. Idempotent; no word of it, but `recover` shows what is still held."""

    def cancel(self, jobs: Sequence[Held], reason: str) -> None:
        """End them, whatever they are doing. Idempotent; each ends in Ended (also one that never started)."""

    def usage(self) -> Usage:
        """Free resources and waiting jobs now. Raises ExecutorDown."""

    def recover(self, expected: Sequence[Held]) -> Recovery:
        """What there is of ours. An expected job that the answer does not name is gone. Raises ExecutorDown."""

    def close(self) -> None:
        """Let go of everything; jobs go on running. Idempotent."""


@runtime_checkable
class Forecasts(Protocol):
    """An executor that can say when it would start a job; without this its cluster bids without an ETA."""

    def outlook(self) -> Outlook:
        """The queue now. Raises ExecutorDown."""


@runtime_checkable
class KeepsOutput(Protocol):
    """An executor that keeps what its jobs write, for a while after their end too."""

    def output(self, job: Held, stdout: int, stderr: int, limit: int) -> Piece | None:
        """At most `limit` bytes of each stream from these places on (negative: from the end). None when nothing is
        kept of the job any more. Raises ExecutorDown."""


def cut(data: bytes, start: int, limit: int, lost: int = 0) -> tuple[bytes, int]:
    """The piece of a stream from `start` on (negative: from the end), and where it really begins: `data` is what is
    kept of it, after the first `lost` bytes."""
    begin = max(0, len(data) + start) if start < 0 else max(0, min(start - lost, len(data)))
    return data[begin : begin + limit], lost + begin
