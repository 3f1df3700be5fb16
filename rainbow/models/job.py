"""Submission, answer, dispatch, event and record of a job (docs/reference/messages)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from rainbow.errors import InvalidInput
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

#: Within one attempt a job only moves to a higher rank; a terminal state has the highest and stays.
RANK: Mapping[str, int] = {
    "submitted": 0,
    "held": 1,
    "assigned": 2,
    "accepted": 3,
    "running": 4,
    "rejected": 5,
    **dict.fromkeys(TERMINAL, 9),
}

#: Reasons an agent gives for refusing a job. After `busy` and `error` the same cluster may be asked again.
RejectCode = Literal["no-fit", "busy", "policy", "bad-spec", "bad-signature", "expired", "error"]
#: `timed-out`, `queue-full` and `deleted` are our own words for a dispatch that came back unseen.
RETRYABLE_REJECTS: frozenset[str] = frozenset({"busy", "error", "timed-out", "queue-full", "deleted"})


#: A number no scheduler would give could fence a job for good.
MAX_ATTEMPT = 100_000


_USUAL_ID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def read_id(value: str) -> str:
    """A UUID in its usual form, from any. Raises ValueError."""
    if _USUAL_ID.fullmatch(value):
        return value
    try:
        return str(UUID(value))
    except ValueError:
        raise ValueError("must be a UUID") from None


JobId = Annotated[str, AfterValidator(read_id)]


def _time(value: Any) -> float:
    """Seconds since 1970, from a number of them or RFC 3339 text."""
    if isinstance(value, str):
        try:
            when = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError("must be RFC 3339 (2026-05-01T12:00:00Z) or seconds since 1970") from None
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("must be RFC 3339 (2026-05-01T12:00:00Z) or seconds since 1970")
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


class SubmitRequest(Wire):
    """What a submitter publishes to `rainbow.submit`. Give `jobspec`, or `command` and the simple form."""

    version: Literal[1] = 1
    id: JobId | None = None
    token: str | None = Field(default=None, repr=False, max_length=16384)
    tokens: list[Annotated[str, Field(max_length=16384)]] | None = Field(default=None, repr=False, max_length=256)
    jobspec: dict[str, Any] | str | None = None
    command: list[str] | str | None = None
    nodes: Annotated[int, Field(ge=1)] | None = None
    tasks: Annotated[int, Field(ge=1)] | None = None
    cores_per_task: Annotated[int, Field(ge=1)] | None = None
    gpus_per_task: Annotated[int, Field(ge=0)] | None = None
    duration: float | int | str | None = None
    cwd: str | None = None
    environment: dict[str, str] | None = None
    name: Text | None = None
    image: Text | None = None
    requires: list[dict[str, Any]] | None = None
    clusters: list[Text] | None = Field(default=None, max_length=10_000)
    match: Annotated[Algorithm, BeforeValidator(_algorithm)] | None = None
    selection: Annotated[Algorithm, BeforeValidator(_algorithm)] | None = None
    satisfy_only: bool = False
    hold: Annotated[float, Field(ge=0, le=30 * 86400)] = 0.0
    priority: Annotated[int, Field(ge=0, le=31)] = 16
    expires: Timestamp | None = None

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
    error: str | None = None
    state: str | None = None


class Dispatch(OpenWire):
    """A job on its way to one cluster. `attempt` counts assignments of this job from 1 and fences everything.

    `route` is for the scheduler alone: what it needs to place the job elsewhere. An agent can read it, and not
    change it: the whole is signed a second time, with a key that only schedulers have.
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


class JobEvent(OpenWire):
    """Something that happened to a job. `at` is seconds since 1970 on the clock of the sender.

    `flux_id` comes with accepted, `returncode` with completed and failed, `code` and `detail` with every
    state that has a reason, `answer` with the scheduler's decisions.
    """

    version: Literal[1] = 1
    id: str
    attempt: Annotated[int, Field(ge=0, le=MAX_ATTEMPT)] = 0
    cluster: str | None = None
    state: State
    at: Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]
    user: str | None = None
    name: str | None = None
    flux_id: str | None = None
    returncode: int | None = None
    code: str | None = None
    detail: str | None = None
    output: str | None = None
    answer: dict[str, Any] | None = None


class JobRecord(OpenWire):
    """What is known of a job. `history` is every event seen, stale ones marked, oldest first."""

    id: str
    state: State
    attempt: int = 0
    cluster: str | None = None
    user: str | None = None
    name: str | None = None
    flux_id: str | None = None
    returncode: int | None = None
    code: str | None = None
    detail: str | None = None
    output: str | None = None
    answer: dict[str, Any] | None = None
    times: dict[str, float] = Field(default_factory=dict)
    cancel_requested: bool = False
    history: list[dict[str, Any]] = Field(default_factory=list)

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL
