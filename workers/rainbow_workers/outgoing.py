"""Messages that carry a job on: to its cluster, into a hold queue, to where clusters are asked."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

from rainbow import codec, signing, topology
from rainbow.brokers.base import MSGPACK, Message
from rainbow.jobspec import Jobspec
from rainbow.tokens import KeyRing
from rainbow_workers.decide import Job
from rainbow_workers.intake import route_of
from rainbow_workers.keys import ClusterKeys
from rainbow_workers.ticket import BID_DISPATCH, KIND, ORIGIN, REGISTRATION, ROUTE, Ticket
from rainbow_workers.world import World

#: How many packed documents are kept, and up to how many bytes each.
KEPT, LARGE = 1024, 4096


class Outgoing:
    """Signs and seals with the keys in force. Used by one thread."""

    def __init__(self, world: World, keys: ClusterKeys, ring: Callable[[], KeyRing]) -> None:
        self._world = world
        self._keys = keys
        self._ring = ring
        self._documents: OrderedDict[int, tuple[Jobspec, bytes]] = OrderedDict()

    def dispatch(self, job: Job, cluster: str, now: float) -> Message:
        """The job for `cluster`, assigned at `now`."""
        registration = self._world.clusters[cluster].record.registration
        body = codec.encode_msgpack(
            {
                "version": 1,
                "id": job.id,
                "attempt": job.attempt,
                "cluster": cluster,
                "name": job.name,
                "image": job.image,
                "user": job.user,
                "priority": job.priority,
                "submitted_at": job.submitted_at,
                "assigned_at": now,
                "expires_at": job.expires_at,
                "route": signing.seal(self._ring(), codec.encode_msgpack(route_of(job))),
            },
            {"jobspec": self._packed(job.jobspec)},
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

    def _packed(self, jobspec: Jobspec) -> bytes:
        """Its document. Jobs of one kind share a jobspec, which is packed once."""
        known = self._documents.get(id(jobspec))
        if known is not None:
            return known[1]
        packed = codec.encode_msgpack(jobspec.document)
        if len(packed) <= LARGE:
            self._documents[id(jobspec)] = jobspec, packed
            if len(self._documents) > KEPT:
                self._documents.popitem(last=False)
        return packed

    def to_bidding(self, ticket: Ticket) -> Message:
        """To where clusters are asked (`rainbow_workers.bidding`): it takes longer than others should wait here."""
        message = self.hold(ticket, 0)
        headers = dict(message.headers or {})
        if KIND in headers:
            headers[KIND] = BID_DISPATCH
        return replace(message, exchange=topology.BIDS, routing_key="bid", headers=headers)

    def hold(self, ticket: Ticket, seconds: float) -> Message:
        """What came, to come again in about so many seconds, with what is known of its job sealed beside it."""
        delivery, job = ticket.delivery, ticket.job
        assert job is not None
        route = signing.seal(self._ring(), codec.encode_msgpack(route_of(job)))
        return Message(
            topology.HOLD,
            str(topology.hold_delay(seconds)),
            delivery.body,
            content_type=delivery.content_type or codec.JSON,
            message_id=ticket.id,
            correlation_id=ticket.correlation_id,
            reply_to=ticket.reply_to,
            priority=delivery.priority,
            headers={**ticket.hold_headers, ROUTE: route},
        )
