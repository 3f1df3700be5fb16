"""Jobs of submissions that differ from one before by their id alone: what they have in common is worked out once."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from rainbow.brokers.base import Delivery
from rainbow.models.job import SubmitRequest
from rainbow.security.tokens import Principal, Verifier, check_body
from rainbow_workers.headers import AUTHORIZATION, ROUTE
from rainbow_workers.scheduling.decide import Job
from rainbow_workers.scheduling.pending_job import PendingJob

#: Bytes of a submission from which on no template of it is kept.
_LARGE = 4096


@dataclass(frozen=True, slots=True)
class JobTemplate:
    """The fields of a job before its time of submission, between that and `hold_until`, and behind it."""

    request: SubmitRequest
    token: str
    principal: Principal
    hold: float | None
    first: tuple[Any, ...]
    middle: tuple[Any, ...]
    begin_at: float
    last: tuple[Any, ...]

    def job(self, job_id: str, now: float) -> Job:
        """The same job with another id, submitted at `now`."""
        hold_until = max(now, self.begin_at) + self.hold if self.hold else 0.0
        fields: tuple[Any, ...] = (job_id, *self.first, now, *self.middle, hold_until, *self.last)
        return Job(*fields)


class JobTemplates:
    """By request, as `ParseCache` gives it. Bounded; the ones made first go first. Of one thread.

    Only for submissions with one token, in the body, that were never held: nothing else is known of them.
    """

    def __init__(self, size: int = 4096) -> None:
        self._size = size
        self._known: OrderedDict[int, JobTemplate] = OrderedDict()

    def job(self, ticket: PendingJob, request: SubmitRequest, verifier: Verifier, now: float) -> Job | None:
        """The job of a submission whose `request` was read before; None where it has to be read. Raises Denied."""
        found = self._known.get(id(request))
        if found is None or found.request is not request or not _plain(ticket.delivery):
            return None
        who = verifier.verify(found.token, now=now)
        check_body(who, ticket.delivery.body)
        if who is not found.principal:
            return None
        ticket.who, ticket.again = who, ticket.delivery.redelivered
        return found.job(ticket.id, now)

    def add(self, ticket: PendingJob, request: SubmitRequest) -> None:
        """Remember the job of `ticket`, unless more than the request decided on it."""
        token, job, who = request.token, ticket.job, ticket.who
        if len(ticket.delivery.body) > _LARGE:
            return
        if token is None or job is None or who is None or request.tokens or not _plain(ticket.delivery):
            return
        if job.after or job.array is not None or (who.role == "admin" and request.account is not None):
            return
        self._known[id(request)] = JobTemplate(
            request,
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
        if len(self._known) > self._size:
            self._known.popitem(last=False)


def _plain(delivery: Delivery) -> bool:
    headers = delivery.headers
    return ROUTE not in headers and AUTHORIZATION not in headers
