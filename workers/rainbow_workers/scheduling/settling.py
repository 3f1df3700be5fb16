"""Settling, the last stage: `Published` in, `Settled` out, once the broker has confirmed or refused the messages."""

from __future__ import annotations

import logging

from rainbow import topology
from rainbow.errors import QueueFull, TooLarge, Unroutable
from rainbow.models.job import Reason
from rainbow_workers.scheduling.pending_job import PendingJob
from rainbow_workers.scheduling.stages import Published, Settled

log = logging.getLogger(__name__)


def settle(published: Published) -> Settled:
    """Sort the deliveries by what became of their messages.

    A dispatch that its cluster's queue did not take is tried elsewhere; after any other failure the delivery comes
    again.
    """
    elsewhere: list[PendingJob] = []
    failed: set[int] = set()
    outcomes = published.receipt.outcomes
    for owner, message, outcome in zip(published.owners, published.messages, outcomes, strict=True):
        if outcome is None or owner is None or not message.mandatory:
            continue
        code = _placement_failure(outcome)
        if code is not None and message.exchange == topology.JOBS and owner.job is not None:
            owner.job.tried[message.routing_key] = Reason(code=code, detail=str(outcome))
            elsewhere.append(owner)
        else:
            failed.add(id(owner))
            log.warning("publish failed", extra={"action": "publish", "job": owner.id, "detail": str(outcome)})
    again = {id(p) for p in elsewhere}
    return Settled(
        ack=[p.delivery for p in published.jobs if id(p) not in failed and id(p) not in again],
        requeue=[p.delivery for p in published.jobs if id(p) in failed],
        again=elsewhere,
    )


def _placement_failure(outcome: Exception) -> str | None:
    """The code for a dispatch that this cluster's queue did not take; None when it is the broker that fails."""
    if isinstance(outcome, Unroutable):
        return "no-queue"
    if isinstance(outcome, QueueFull):
        return "queue-full"
    if isinstance(outcome, TooLarge):
        return "too-large"
    return None
