"""A ticket: one delivery on its way through the scheduler, as a job to be placed or as a refusal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rainbow.brokers.base import Delivery, Message
from rainbow.models.job import AnswerStatus
from rainbow.tokens import Principal
from rainbow_workers.decide import Job

#: Headers that we put on our own messages.
KIND = "rainbow-kind"
ROUTE = "rainbow-route"
REGISTRATION = "rainbow-registration"
RECORDED = "rainbow-recorded"
#: It may have been handed out before the store lost its data.
DOUBTFUL = "rainbow-doubtful"
#: A second signature of a dispatch, by a key that only workers have.
ORIGIN = "rainbow-origin"

#: `rainbow-kind` of a dispatch that waits in a hold queue for another try.
HELD_DISPATCH = "held-dispatch"
#: `rainbow-kind` of a dispatch that came back and goes to whom clusters bid for next.
BID_DISPATCH = "bid-dispatch"


@dataclass(slots=True)
class Refusal:
    """Why a delivery is not a job: `status` for the answer, `error` one plain line."""

    status: AnswerStatus
    error: str
    code: str
    dead: bool = False


@dataclass(slots=True)
class Ticket:
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
    failed: bool = False
    who: Principal | None = None
    fresh: bool = False
    #: It waited in the queue of a cluster that is lost: placed elsewhere at a bounded rate.
    failover: bool = False
    #: Its dispatch came back from a cluster.
    back: bool = False
