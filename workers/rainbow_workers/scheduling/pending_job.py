"""A pending job: one delivery on its way through the scheduler, as a job to be placed or as a refusal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rainbow.brokers.base import Delivery, Message
from rainbow.models.arrays import Element
from rainbow.models.job import AnswerStatus
from rainbow.security.tokens import Principal
from rainbow_workers.audit import DONE, Audit
from rainbow_workers.scheduling.decide import Job


@dataclass(slots=True)
class Refusal:
    """Why a delivery is not a job: `status` for the answer, `error` one plain line."""

    status: AnswerStatus
    error: str
    code: str
    dead: bool = False


@dataclass(slots=True)
class PendingJob:
    """`job` or `refusal` is set. `hold_headers` go with the message when it must wait. `who` submitted it, if that is
    known; `fresh` says that it comes from outside, and not from one of our own queues again."""

    delivery: Delivery
    id: str
    job: Job | None = None
    refusal: Refusal | None = None
    reply_to: str | None = None
    correlation_id: str | None = None
    hold_headers: dict[str, Any] = field(default_factory=dict)
    #: Messages that must be confirmed before the delivery is acked.
    messages: list[Message] = field(default_factory=list)
    #: For the cluster it comes back from: that attempt is off. Goes out when the job is assigned elsewhere, not before.
    fence: Message | None = None
    who: Principal | None = None
    #: Which element of an array it is.
    element: Element | None = None
    #: Of an array: how far it is (`array_progress.Progress.as_route`).
    progress: Mapping[str, Any] = field(default_factory=dict)
    fresh: bool = False
    #: It waited in the queue of a cluster that is lost: placed elsewhere at a bounded rate.
    failover: bool = False
    #: It has had its turn, where it needs one (see `failover`).
    admitted: bool = False
    #: It is held by the waiting room: while it has to wait it stays there.
    parked: bool = False
    #: Its dispatch came back from a cluster.
    back: bool = False
    #: The cluster whose charge is to be given back, since its dispatch came back from there.
    refund: str = ""
    #: A try before this one may be unfinished: the ledger may have an assignment that was never dispatched.
    again: bool = False


def of_two(known: PendingJob, came: PendingJob) -> tuple[PendingJob, PendingJob]:
    """Which of two copies of a job stays, and which is to be acked; their deliveries are both unsettled.

    There are two when a message was published twice since its confirm was lost, or was delivered again. The one with
    the later attempt stays; what the other one began may be unfinished.
    """
    assert known.job is not None
    assert came.job is not None
    stays, goes = (came, known) if came.job.attempt >= known.job.attempt else (known, came)
    stays.again = True
    return stays, goes


def note_submission(audit: Audit, pending: PendingJob) -> None:
    """Write into the audit log how a submission was received."""
    refusal = pending.refusal
    result, detail = (DONE, None) if refusal is None else (refusal.code, refusal.error)
    who = {} if pending.who or not pending.job else {"sub": pending.job.user, "jti": pending.job.jti}
    audit.note(pending.who, "submit", pending.id, result, detail, **who)
