"""The jobs in a cluster's queue, for a holder of its secret: looked at without an agent, and accepted."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rainbow import codec, topology
from rainbow.brokers.base import Broker, Consumer, Delivery, Message
from rainbow.errors import Denied, RainbowError
from rainbow.jobspec import read
from rainbow.models.job import Dispatch, JobEvent
from rainbow.models.wire import parse
from rainbow.security import signing

#: How many jobs one look at a queue holds at most.
MOST = 10_000
#: Seconds without a further job after which the queue is taken to be empty.
_QUIET = 0.5


@dataclass(frozen=True, slots=True)
class Waiting:
    """A dispatch in the queue; `problem` says why it must not run."""

    delivery: Delivery
    dispatch: Dispatch | None
    nodes: int = 0
    command: str = ""
    problem: str | None = None


def take(broker: Broker, consumer: Consumer, wanted: int) -> list[Delivery]:
    """Up to `wanted` deliveries, until none has come for a moment.

    Raises Denied when all stay in their queue: a broker that lets us read none of them sends a consumer nothing.
    """
    found: list[Delivery] = []
    while len(found) < wanted:
        more = consumer.take(wanted - len(found), 5.0 if not found else _QUIET)
        if not more:
            break
        found.extend(more)
    if wanted and not found and broker.stats(consumer.address).messages >= wanted:
        raise Denied(
            f"the broker gives us nothing from queue {consumer.address}: our credentials have no right to read it"
        )
    return found


def listed(broker: Broker, consumer: Consumer, wanted: int, keys: Mapping[str, bytes], cluster: str) -> list[Waiting]:
    """Up to `wanted` jobs of the queue, oldest first. They stay there unless they are accepted."""
    waiting = [_read(delivery, keys, cluster) for delivery in take(broker, consumer, wanted)]
    # What was looked at before may come back behind the others (quorum queues do that): oldest first again.
    waiting.sort(key=lambda w: w.dispatch.assigned_at if w.dispatch is not None else 0.0)
    return waiting


def _read(delivery: Delivery, keys: Mapping[str, bytes], cluster: str) -> Waiting:
    try:
        signing.check(keys, delivery.body, delivery.headers.get(signing.HEADER))
        dispatch = parse(Dispatch, codec.decode(delivery.body, delivery.content_type, max_bytes=8 << 20, max_depth=80))
        if dispatch.cluster != cluster:
            return Waiting(delivery, None, problem=f"it is for cluster {dispatch.cluster}")
        if dispatch.expires_at is not None and dispatch.expires_at < time.time():
            return Waiting(delivery, dispatch, problem="it has expired")
        jobspec = read(dispatch.jobspec)
    except RainbowError as exc:
        return Waiting(delivery, None, problem=str(exc))
    command = " ".join(jobspec.tasks[0].command) if jobspec.tasks else ""
    return Waiting(delivery, dispatch, jobspec.demand.nodes, command)


def accept(
    broker: Broker,
    consumer: Consumer,
    chosen: Sequence[Waiting],
    keys: Mapping[str, bytes],
    cluster: str,
    registration: str,
) -> None:
    """Tell that they are accepted, and only then take them out of the queue."""
    events = [
        JobEvent(
            id=w.dispatch.id,
            attempt=w.dispatch.attempt,
            cluster=w.dispatch.cluster,
            state="accepted",
            at=time.time(),
            user=w.dispatch.user,
            name=w.dispatch.name,
        ).model_dump(exclude_none=True)
        for w in chosen
        if w.dispatch is not None
    ]
    body = codec.encode_json({"events": events})
    headers = {
        signing.HEADER: signing.sign(keys, body),
        "rainbow-cluster": cluster,
        "rainbow-registration": registration,
    }
    key = topology.event_key(cluster, "accepted")
    broker.publish([Message(topology.EVENTS, key, body, headers=headers)]).check(30.0)
    consumer.ack([w.delivery for w in chosen])
