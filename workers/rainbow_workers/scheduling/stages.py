"""The values that a batch of jobs passes through: decided, committed, published, settled.

The order loses nothing: decide (no effect) -> compare-and-set in the ledger, one round trip -> publish with confirms ->
ack. The process may crash after any step: the deliveries are still with the broker. When they come again, the ledger
holds the same assignment, it is published again under the same attempt, and the agent runs an attempt once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rainbow.brokers.base import Delivery, Message, Receipt
from rainbow.models.job import JobRecord
from rainbow_workers.scheduling.decide import Decision, Job
from rainbow_workers.scheduling.pending_job import PendingJob


@dataclass(slots=True, eq=False)
class Decided:
    """Where each job is to go. What the decisions reserve is deducted in the cluster cache.

    Attributes:
        decisions: One for each of `jobs`; None for a delivery that is no job.
        at: When it was decided, seconds since 1970.
    """

    jobs: Sequence[PendingJob]
    decisions: Sequence[Decision | None]
    at: float

    def assigned(self) -> Iterator[tuple[int, Job, Decision]]:
        """The jobs that were given a cluster, with their positions."""
        for at, (pending, decision) in enumerate(zip(self.jobs, self.decisions, strict=True)):
            if pending.job is not None and decision is not None and decision.status == "assigned":
                yield at, pending.job, decision


class Outcome(NamedTuple):
    """The ledger's answer to one assignment: the record that prevents it, or None; `repeated` if it stood before."""

    standing: JobRecord | None
    repeated: bool


@dataclass(slots=True, eq=False)
class Committed:
    """The ledger has the assignments. `outcomes` has one entry for each assigned job, in order."""

    decided: Decided
    outcomes: Sequence[Outcome]


@dataclass(slots=True, eq=False)
class Published:
    """Messages are on their way to the broker.

    Attributes:
        owners: For each message the job it belongs to; None for events, which no delivery depends on.
        jobs: The jobs whose deliveries can be settled when the receipt is complete.
        again: Jobs whose cluster is gone since the decision.
        parked: Jobs of the waiting room that wait on.
    """

    jobs: Sequence[PendingJob]
    owners: Sequence[PendingJob | None]
    messages: Sequence[Message]
    receipt: Receipt
    again: Sequence[PendingJob]
    parked: Sequence[PendingJob] = ()


@dataclass(frozen=True, slots=True)
class Settled:
    """What becomes of the deliveries. `again` are jobs whose cluster did not take the dispatch: they stay unsettled and
    are decided again with the next batch."""

    ack: Sequence[Delivery]
    requeue: Sequence[Delivery]
    again: Sequence[PendingJob]
