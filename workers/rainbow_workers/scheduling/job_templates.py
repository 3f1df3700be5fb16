"""What jobs have in common whose submissions differ by their id alone: it is worked out once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rainbow.brokers.base import Delivery
from rainbow.models.job import SubmitRequest
from rainbow.security.tokens import Principal, Verifier, check_body
from rainbow_workers.headers import AUTHORIZATION, ROUTE
from rainbow_workers.scheduling.decide import Job
from rainbow_workers.scheduling.pending_job import PendingJob


@dataclass(frozen=True, slots=True)
class JobTemplate:
    """The fields of a job before its time of submission, between that and `hold_until`, and behind it.

    Only of submissions with one token, in the body, that were never held: nothing else is known of them.
    """

    token: str
    principal: Principal
    hold: float | None
    first: tuple[Any, ...]
    middle: tuple[Any, ...]
    begin_at: float
    last: tuple[Any, ...]

    def job(self, ticket: PendingJob, verifier: Verifier, now: float) -> Job | None:
        """The job of another such submission; None where it has to be read. Raises Denied."""
        if not _plain(ticket.delivery):
            return None
        who = verifier.verify(self.token, now=now)
        check_body(who, ticket.delivery.body)
        if who is not self.principal:
            return None
        ticket.who, ticket.again = who, ticket.delivery.redelivered
        hold_until = max(now, self.begin_at) + self.hold if self.hold else 0.0
        fields: tuple[Any, ...] = (ticket.id, *self.first, now, *self.middle, hold_until, *self.last)
        return Job(*fields)


def template_of(ticket: PendingJob, request: SubmitRequest) -> JobTemplate | None:
    """The template of the job of `ticket`; None where more than the request decided on it."""
    token, job, who = request.token, ticket.job, ticket.who
    if token is None or job is None or who is None or request.tokens or not _plain(ticket.delivery):
        return None
    if job.after or job.array is not None or (who.role == "admin" and request.account is not None):
        return None
    return JobTemplate(
        token,
        who,
        request.hold,
        (job.user, job.jobspec, job.allowed),
        (
            job.jti,
            job.token_issued_at,
            job.own,
            job.others,
            job.account,
            job.name,
            job.image,
            job.restrict,
            job.selection,
            job.priority,
            job.expires_at,
        ),
        job.begin_at,
        (job.after, job.begin_at, job.freed_at, job.unmet, job.satisfy_only),
    )


def _plain(delivery: Delivery) -> bool:
    headers = delivery.headers
    return ROUTE not in headers and AUTHORIZATION not in headers
