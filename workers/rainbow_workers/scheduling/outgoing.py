"""Messages that carry a job on: to its cluster, into a hold queue, to where clusters are asked."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rainbow import codec, topology, tracing
from rainbow.brokers.base import MSGPACK, Delivery, Message
from rainbow.jobspec import Jobspec
from rainbow.security import signing
from rainbow.security.tokens import KeyRing
from rainbow_workers import grants
from rainbow_workers.clusters.cache import ClusterCache
from rainbow_workers.grants import Grant
from rainbow_workers.headers import BID_DISPATCH, KIND, ORIGIN, REGISTRATION, ROUTE
from rainbow_workers.keys import ClusterKeys
from rainbow_workers.scheduling.decide import Job
from rainbow_workers.scheduling.pending_job import PendingJob
from rainbow_workers.scheduling.submissions import route_of

#: How many packed parts are kept, and up to how many bytes each.
KEPT, LARGE = 1024, 4096


class Outgoing:
    """Signs and seals with the keys in force. Used by one thread."""

    def __init__(
        self,
        world: ClusterCache,
        keys: ClusterKeys,
        ring: Callable[[], KeyRing],
        *,
        lives: float = 0.0,
        lane: Callable[[str], str] = topology.waiting_lane,
    ) -> None:
        """`lives` is for how many seconds a dispatch stays in its cluster's queue (0: not known). `lane` gives the
        routing key of the waiting queue for a user's job."""
        self._world = world
        self._keys = keys
        self._ring = ring
        self._lives = lives
        self._lane = lane
        self._known: OrderedDict[tuple[Any, ...], tuple[Jobspec, codec.Pairs]] = OrderedDict()

    def dispatch(self, job: Job, cluster: str, now: float, *, repeated: bool = False) -> Message:
        """The job for `cluster`, assigned at `now`; `repeated` when this attempt may have been dispatched before."""
        registration = self._world.clusters[cluster].record.registration
        body = codec.encode_msgpack(
            {
                "version": 1,
                "id": job.id,
                "attempt": job.attempt,
                "cluster": cluster,
                "submitted_at": job.submitted_at,
                "assigned_at": now,
                "epoch": self._world.epoch,
                "lives": self._lives,
                **({"repeated": True} if repeated else {}),
                **({} if job.element is None else {"element": job.element.model_dump()}),
                "grant": grants.issue(
                    self._keys.grant,
                    Grant(
                        job.id,
                        job.attempt,
                        cluster,
                        registration,
                        job.user,
                        job.name,
                        job.submitted_at,
                        now,
                        self._world.epoch,
                        None if job.element is None else (job.element.array, job.element.index),
                    ),
                ),
            },
            self._alike(job),
        )
        return Message(
            topology.JOBS,
            cluster,
            body,
            content_type=MSGPACK,
            message_id=job.id,
            priority=job.priority,
            headers={
                signing.HEADER: signing.sign(self._keys.of(cluster, registration), body),
                ORIGIN: signing.sign(self._keys.origin, body),
                REGISTRATION: registration,
            },
        )

    def _alike(self, job: Job) -> codec.Pairs:
        """What dispatches of one kind of job of one user say alike: packed once."""
        if job.tried or job.others or job.selection or job.hold_until:
            return _pairs(job)
        key = (
            id(job.jobspec),
            job.user,
            job.account,
            job.name,
            job.image,
            job.priority,
            job.expires_at,
            job.jti,
            job.token_issued_at,
            job.allowed,
            job.own,
            job.restrict,
        )
        known = self._known.get(key)
        if known is not None:
            return known[1]
        pairs = _pairs(job)
        if len(pairs.packed) <= LARGE:
            # The jobspec is kept with it: its id is of no other for as long.
            self._known[key] = job.jobspec, pairs
            if len(self._known) > KEPT:
                self._known.popitem(last=False)
        return pairs

    def to_bidding(self, ticket: PendingJob) -> Message:
        """A message to the bidding worker: asking clusters takes longer than other jobs should wait here."""
        message = self.hold(ticket, 0)
        headers = dict(message.headers or {})
        if KIND in headers:
            headers[KIND] = BID_DISPATCH
        return replace(message, exchange=topology.BIDS, routing_key="bid", headers=headers)

    def to_waiting(self, pending: PendingJob) -> Message:
        """To where it waits for an event (`waiting.WaitingRoom`)."""
        assert pending.job is not None
        lane = self._lane(pending.job.user)
        return replace(self.hold(pending, 0), exchange=topology.WAITING, routing_key=lane)

    def to_dependents(self, pending: PendingJob) -> Message:
        """To where it waits for other jobs (`dependents.Dependents`)."""
        return replace(self.hold(pending, 0), exchange=topology.WAITING, routing_key=topology.DEPENDENTS)

    def to_arrays(self, pending: PendingJob, progress: Mapping[str, Any] | None = None) -> Message:
        """To where its elements become jobs (`arrays.Arrays`); with how far they are, if that is not as it came."""
        progress = progress or pending.progress or {"array": {"epoch": self._world.epoch}}
        return replace(self.hold(pending, 0, progress=progress), exchange=topology.WAITING, routing_key=topology.ARRAYS)

    def elements(self, pending: PendingJob, indices: Sequence[int]) -> list[Message]:
        """Elements of an array, to the schedulers: the array's submission with a route of their own."""
        job, delivery, now = pending.job, pending.delivery, time.time()
        assert job is not None
        assert job.array is not None
        # What it waited for has happened.
        common = {**route_of(job), "attempt": 1, "submitted_at": job.submitted_at, "held_at": now, "freed_at": now}
        trace = tracing.parent_of(delivery.headers)
        headers = pending.hold_headers if trace is None else {**pending.hold_headers, tracing.HEADER: trace}
        messages: list[Message] = []
        for index in indices:
            element = job.array.element(job.id, index)
            route = {**common, "id": element.id, "element": element.model_dump()}
            messages.append(
                Message(
                    topology.SUBMIT,
                    "submit",
                    delivery.body,
                    content_type=delivery.content_type or codec.JSON,
                    message_id=element.id,
                    priority=delivery.priority,
                    headers={**headers, ROUTE: signing.seal(self._ring(), codec.encode_msgpack(route))},
                )
            )
        return messages

    def freed(self, pending: PendingJob, unknown: str) -> Message:
        """Back to the schedulers: what it waited for has happened, or is not known and why it is no job."""
        return replace(self.hold(pending, 0, unknown), exchange=topology.SUBMIT, routing_key="submit")

    def hold(
        self, ticket: PendingJob, seconds: float, unknown: str = "", *, progress: Mapping[str, Any] | None = None
    ) -> Message:
        """What came, to come again in about so many seconds, with what is known of its job sealed beside it."""
        delivery, job = ticket.delivery, ticket.job
        assert job is not None
        route = {**route_of(job), "id": job.id, "attempt": job.attempt, "submitted_at": job.submitted_at}
        route["held_at"] = time.time()
        if ticket.again:
            route["again"] = True
        if progress:
            route |= progress
        if job.element is not None:
            route["element"] = job.element.model_dump()
        if job.freed_at:
            route |= {"freed_at": job.freed_at, "unmet": job.unmet, "unknown": unknown}
        headers = {**ticket.hold_headers, ROUTE: signing.seal(self._ring(), codec.encode_msgpack(route))}
        if (trace := tracing.parent_of(delivery.headers)) is not None:
            headers[tracing.HEADER] = trace
        return Message(
            topology.HOLD,
            str(topology.hold_delay(seconds)),
            delivery.body,
            content_type=delivery.content_type or codec.JSON,
            message_id=ticket.id,
            correlation_id=ticket.correlation_id,
            reply_to=ticket.reply_to,
            priority=delivery.priority,
            headers=headers,
        )


def as_it_came(d: Delivery) -> Message:
    """A submission, to the schedulers once more."""
    return Message(
        topology.SUBMIT,
        "submit",
        d.body,
        content_type=d.content_type or codec.JSON,
        message_id=d.message_id,
        correlation_id=d.correlation_id,
        reply_to=d.reply_to,
        priority=d.priority,
        headers=dict(d.headers),
    )


def _pairs(job: Job) -> codec.Pairs:
    return codec.pack_pairs(
        {
            "name": job.name,
            "image": job.image,
            "user": job.user,
            "priority": job.priority,
            "expires_at": job.expires_at,
            "route": codec.encode_msgpack(route_of(job)),
            "jobspec": job.jobspec.document,
        }
    )
