"""What the journal knows of a job: rows, views, events that wait, and what a round of decisions wrote."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rainbow.errors import RainbowError
from rainbow.models.job import JobEvent
from rainbow_agents.executors.base import Held, SubmissionKey, Submitted

#: An attempt that is over. `returned` is not here: it may be taken again.
OVER = frozenset({"rejected", "completed", "failed", "cancelled", "lost"})

#: An event that only goes out together with its delivery (see `intake`) is due never.
NEVER = 1e18

#: The reason of a cancel that ends an attempt here, but not its job.
ELSEWHERE = "the job goes on elsewhere"

JobState = Literal["taken", "returned", "accepted", "running", "rejected", "completed", "failed", "cancelled", "lost"]


class JournalDown(RainbowError):
    """The journal cannot be written (disk full, file damaged): no job can be taken."""

    code = "journal-down"
    exit_code = 4


@dataclass(slots=True, unsafe_hash=True)
class Row:
    """A job as the journal knows it. Not to be changed."""

    id: str
    attempt: int
    state: JobState
    claim: str
    handle: str | None
    incarnation: str | None
    released: bool
    priority: int
    user: str | None
    name: str | None
    cancel: str | None
    code: str | None
    detail: str | None
    changed_at: float
    returncode: int | None = None
    grant: str | None = None
    trace: str | None = None
    started_at: float | None = None

    @property
    def mark(self) -> SubmissionKey:
        return SubmissionKey(self.id, self.attempt, self.claim)

    @property
    def held(self) -> Held:
        return Held(self.mark, self.handle or "", self.priority)


COLUMNS = (
    "id, attempt, state, claim, handle, incarnation, released, priority, user, name, cancel, code, detail, changed_at,"
    ' returncode, "grant", trace, started_at'
)


def to_row(values: Sequence[Any]) -> Row:
    v = list(values)
    v[6] = bool(v[6])
    return Row(*v)


@dataclass(frozen=True, slots=True)
class View:
    """What is known of a job before it is taken: its row, the newest attempt seen, a cancel, tries without outcome."""

    row: Row | None = None
    newest: int = 0
    #: An older attempt of this job that still runs or is held here.
    older: Row | None = None
    cancel: str | None = None
    tries: int = 0


@dataclass(frozen=True, slots=True)
class Pending:
    """An event to be sent. `seq` orders them; `text` is the event as JSON."""

    seq: int
    event: JobEvent
    text: str


def new_claim() -> str:
    return secrets.token_hex(8)


class Decided:
    """What `Journal.decide` wrote: `superseded` were submitted by a claim that is no longer valid, and must go."""

    def __init__(self) -> None:
        self.accepted: list[tuple[Submitted, Pending]] = []
        self.cancelled: list[tuple[Submitted, Pending]] = []
        self.refused: list[Pending] = []
        self.superseded: list[Submitted] = []
        self.lapsed: list[SubmissionKey] = []
