"""Submission, answer, dispatch, event and record of a job (docs/reference/messages)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from rainbow.errors import InvalidInput
from rainbow.models.arrays import MAX_TEXT, Element, read_array
from rainbow.models.dependencies import read_dependencies
from rainbow.models.ids import read_id as read_id
from rainbow.models.shares import AccountName
from rainbow.models.wire import OpenWire, Text, Wire

State = Literal[
    "submitted",
    "held",
    "assigned",
    "rejected",
    "accepted",
    "running",
    "completed",
    "failed",
    "cancelled",
    "no-match",
    "unsatisfiable",
    "denied",
    "invalid",
    "expired",
    "lost",
]

#: In the order of a job's life.
STATES: tuple[str, ...] = get_args(State)

#: States that never change again.
TERMINAL: frozenset[str] = frozenset(
    {
        "completed",
        "failed",
        "cancelled",
        "no-match",
        "unsatisfiable",
        "denied",
        "invalid",
        "expired",
        "lost",
    }
)

#: Ends that a scheduler gives a job that no cluster runs. Of a dispatch that was sent twice, one copy may come back and
#: be judged so while the other runs: these never end an attempt that began.
UNRUN: frozenset[str] = frozenset({"no-match", "unsatisfiable", "denied", "invalid", "expired"})
BEGUN: frozenset[str] = frozenset({"accepted", "running"})
#: States that an agent may report. All others are decided by a scheduler.
REPORTED: frozenset[str] = frozenset({"accepted", "running", "rejected", "completed", "failed", "cancelled", "lost"})
#: Reported states which say that the attempt really started on the cluster.
STARTED: frozenset[str] = frozenset({"accepted", "running", "completed", "failed"})

#: Within one attempt a job only moves to a higher rank; a terminal state has the highest and stays.
RANK: Mapping[str, int] = {
    "submitted": 0,
    "assigned": 2,
    "accepted": 3,
    "running": 4,
    "rejected": 5,
    "held": 6,
    **dict.fromkeys(TERMINAL, 9),
}

#: What a job is held after: a new one, and one that came back from a cluster. Its next attempt has a higher number.
HOLDABLE: frozenset[str] = frozenset({"submitted", "rejected"})

#: Reasons an agent gives for refusing a job. After `busy` and `error` the same cluster may be asked again.
RejectCode = Literal["no-fit", "busy", "policy", "bad-spec", "bad-signature", "expired", "error"]
#: `timed-out`, `queue-full` and `deleted` are our own words for a dispatch that came back unseen.
RETRYABLE_REJECTS: frozenset[str] = frozenset({"busy", "error", "timed-out", "queue-full", "deleted"})


#: A number no scheduler would give could fence a job for good.
MAX_ATTEMPT = 100_000


JobId = Annotated[str, AfterValidator(read_id)]


#: Seconds since 1970 in the year 5138.
_LATEST = 1e11


def _time(value: Any) -> float:
    """Seconds since 1970, from a number of them or RFC 3339 text."""
    if isinstance(value, str):
        try:
            when = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError("must be RFC 3339 (2026-05-01T12:00:00Z) or seconds since 1970") from None
        if when.tzinfo is None:
            raise ValueError("needs a zone: add Z or an offset, such as +02:00")
        return when.timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("must be RFC 3339 (2026-05-01T12:00:00Z) or seconds since 1970")
    if value > _LATEST:
        raise ValueError("must be in seconds since 1970, and seems to be in milliseconds")
    return float(value)


Timestamp = Annotated[float, BeforeValidator(_time)]


#: Fields that, with `command`, make up the simple form of a job.
SIMPLE_FORM = ("nodes", "tasks", "cores_per_task", "gpus_per_task", "duration", "cwd", "environment", "requires")


class Algorithm(Wire):
    """A plugin by name, with its options."""

    name: Text
    options: dict[str, Any] = Field(default_factory=dict)


def _algorithm(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


class Reason(OpenWire):
    """Why a cluster was not chosen: a stable code, and a line with the numbers."""

    code: str
    detail: str = ""

    @property
    def retryable(self) -> bool:
        """May the same cluster be asked again, later?"""
        return self.code in RETRYABLE_REJECTS


def _whole(value: Any) -> Any:
    """1.0 is 1: some writers of JSON have no other whole numbers."""
    return int(value) if type(value) is float and value.is_integer() else value


def environment_text(value: Any) -> Any:
    """The value of a variable as text: numbers as they are written, true and false in lower case."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _environment(value: Any) -> Any:
    return {name: environment_text(text) for name, text in value.items()} if isinstance(value, dict) else value


Whole = BeforeValidator(_whole)
Environment = Annotated[
    dict[str, str],
    BeforeValidator(_environment),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}),
]


class SubmitRequest(Wire):
    """What a submitter publishes to `rainbow.submit`. Give `jobspec`, or `command` and the simple form.

    A field that is null is as one that is left out. Whole numbers may be written as 1.0. Values in `environment` may be
    numbers, true and false: they become text. `account` is what the job is charged to, one that its token may charge.
    `array` submits a job for each of these indices (`rainbow.models.arrays`), and `id` is then the array's.
    """

    version: Literal[1] = 1
    id: JobId | None = None
    token: str | None = Field(default=None, repr=False, max_length=16384)
    tokens: list[Annotated[str, Field(max_length=16384)]] | None = Field(default=None, repr=False, max_length=256)
    jobspec: dict[str, Any] | str | None = None
    command: list[str] | str | None = None
    nodes: Annotated[int, Field(ge=1), Whole] | None = None
    tasks: Annotated[int, Field(ge=1), Whole] | None = None
    cores_per_task: Annotated[int, Field(ge=1), Whole] | None = None
    gpus_per_task: Annotated[int, Field(ge=0), Whole] | None = None
    duration: float | int | str | None = None
    cwd: str | None = None
    environment: Environment | None = None
    name: Text | None = None
    account: AccountName | None = None
    image: Text | None = None
    requires: list[dict[str, Any]] | None = None
    compatibility: list[dict[str, Any]] | None = Field(default=None, max_length=64)
    clusters: list[Text] | None = Field(default=None, max_length=10_000)
    match: Annotated[Algorithm, BeforeValidator(_algorithm)] | None = None
    selection: Annotated[Algorithm, BeforeValidator(_algorithm)] | None = None
    satisfy_only: bool = False
    hold: Annotated[float, Field(ge=0, le=30 * 86400)] = 0.0
    priority: Annotated[int, Field(ge=1, le=31), Whole] = 16  # 0 would be Flux's hold: nothing here holds a job
    expires: Timestamp | None = None
    dependency: list[str] | str | None = None
    begin_time: Timestamp | None = None
    array: Annotated[str, Field(max_length=MAX_TEXT)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        if isinstance(data, dict) and None in data.values():
            return {name: value for name, value in data.items() if value is not None}
        return data

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.jobspec is None) == (self.command is None):
            raise InvalidInput("give either jobspec or command")
        if self.jobspec is not None:
            extra = [
                f
                for f in (
                    "nodes",
                    "tasks",
                    "cores_per_task",
                    "gpus_per_task",
                    "duration",
                    "cwd",
                    "environment",
                    "requires",
                )
                if getattr(self, f) is not None
            ]
            if extra:
                raise InvalidInput(f"{', '.join(extra)} belong(s) to the simple form: with jobspec, say it there")
        if not self.command and self.jobspec is None:
            raise InvalidInput("command is empty: say what to run")
        if self.dependency is not None:
            read_dependencies(self.dependency)
        if self.array is not None:
            read_array(self.array)
            if self.satisfy_only:
                raise InvalidInput("array and satisfy_only do not go together: ask for one element")
        return self


AnswerStatus = Literal[
    "assigned", "satisfied", "no-match", "held", "denied", "invalid", "duplicate", "expired", "unsatisfiable"
]


class Answer(OpenWire):
    """The scheduler's answer to a submission (to `reply_to`, and as the event's detail)."""

    version: int = 1
    id: str
    status: AnswerStatus
    cluster: str | None = None
    clusters: list[str] = Field(default_factory=list)
    attempt: int = 0
    total_clusters: int = 0
    total_matches: int = 0
    total_mismatches: int = 0
    reasons: dict[str, Reason] = Field(default_factory=dict)
    code: str | None = None
    error: str | None = None
    state: str | None = None


class Dispatch(OpenWire):
    """A job on its way to one cluster. `attempt` counts assignments of this job from 1 and fences everything.

    `route` is for the scheduler alone: what it needs to place the job elsewhere. An agent can read it, and not
    change it: the whole is signed a second time, with a key that only schedulers have. `grant` is the scheduler's
    signed statement that this attempt was given to this cluster: the agent returns it with the job's events. `epoch` is
    the epoch of the store in which the attempt was assigned (0: unknown). `lives` is for how many seconds after
    `assigned_at` it stays in its cluster's queue (0: unknown). `repeated` says that the same attempt may have been
    dispatched before: the other copy may have come back by now. `element` says which of an array the job is.
    """

    version: Literal[1] = 1
    id: str
    attempt: Annotated[int, Field(ge=1, le=MAX_ATTEMPT)]
    cluster: str
    name: str | None = None
    jobspec: dict[str, Any]
    image: str | None = None
    user: str
    priority: int = 16
    submitted_at: float
    assigned_at: float
    expires_at: float | None = None
    route: bytes = b""
    grant: str = ""
    epoch: int = 0
    lives: float = 0.0
    repeated: bool = False
    element: Element | None = None


#: Characters of an event's detail, and of the end of a job's output, that are kept: longer ones are cut.
MAX_DETAIL, MAX_TAIL = 8192, 4096


def _first(value: Any) -> Any:
    return value[:MAX_DETAIL] if isinstance(value, str) else value


def _last(value: Any) -> Any:
    return value[-MAX_TAIL:] if isinstance(value, str) else value


class JobEvent(OpenWire):
    """Something that happened to a job. `at` is seconds since 1970 on the clock of the sender.

    `flux_id` comes with accepted, `returncode` with completed and failed, `code` and `detail` with every
    state that has a reason, `answer` with the scheduler's decisions. An agent's event carries the `grant` of the
    dispatch that it received. `held` comes with accepted: the job does not start before the ledger confirms it.
    Events of the workers have `array` and `index` for an element of an array, and for an array its `indices`.
    """

    version: Literal[1] = 1
    id: Annotated[str, Field(max_length=64)]
    attempt: Annotated[int, Field(ge=0, le=MAX_ATTEMPT)] = 0
    cluster: Text | None = None
    state: State
    at: Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]
    user: Text | None = None
    account: Text | None = None
    name: Text | None = None
    flux_id: Text | None = None
    returncode: int | None = None
    code: Text | None = None
    detail: Annotated[str, BeforeValidator(_first)] | None = None
    output: Annotated[str, BeforeValidator(_last)] | None = None
    answer: dict[str, Any] | None = None
    held: bool | None = None
    array: Text | None = None
    index: int | None = None
    indices: Annotated[str, Field(max_length=MAX_TEXT)] | None = None
    grant: Annotated[str, Field(max_length=16_384)] | None = Field(default=None, repr=False)


class JobRecord(OpenWire):
    """What is known of a job. `history` is every event seen, stale ones marked, oldest first.

    An element of an array has its `index` and the id of the `array`. An array has its `indices` as they were written,
    how many of its elements that are known are in which state (`counts`), and the largest exit code of those that ended
    (`exit_code`, as a shell has it).
    """

    id: str
    state: State
    attempt: int = 0
    cluster: str | None = None
    user: str | None = None
    account: str | None = None
    name: str | None = None
    flux_id: str | None = None
    returncode: int | None = None
    code: str | None = None
    detail: str | None = None
    output: str | None = None
    answer: dict[str, Any] | None = None
    times: dict[str, float] = Field(default_factory=dict)
    cancel_requested: bool = False
    array: str | None = None
    index: int | None = None
    indices: str | None = None
    counts: dict[str, int] = Field(default_factory=dict)
    exit_code: int | None = None
    history: list[dict[str, Any]] = Field(default_factory=list)

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def elements(self) -> dict[str, int]:
        """Of an array: how many of its elements are in which state, in the order of a job's life."""
        if self.indices is None:
            return {}
        left = read_array(self.indices).size - sum(self.counts.values())
        found = Counter(self.counts)
        found["cancelled" if self.terminal else "submitted"] += left
        return {state: found[state] for state in STATES if found[state] > 0}
