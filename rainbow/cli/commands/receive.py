"""A cluster's side by hand: look at the jobs that wait for it, accept some."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rainbow.cli.options import Cluster, Config, Json, Limit
from rainbow.cli.render import output
from rainbow.cli.session import connection, load_settings
from rainbow.errors import Denied, RainbowError

if TYPE_CHECKING:
    from rainbow.brokers.base import Broker, Consumer, Delivery
    from rainbow.models.job import Dispatch
    from rainbow.settings import ClusterSettings

#: How many jobs one look at a queue holds at most.
_MOST = 10_000
#: Seconds without a further job after which the queue is taken to be empty.
_QUIET = 0.5


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A dispatch in the queue; `problem` says why it must not run."""

    delivery: Delivery
    dispatch: Dispatch | None
    nodes: int = 0
    command: str = ""
    problem: str | None = None


def receive(
    cluster: Cluster,
    max_jobs: Annotated[int, typer.Option("--max-jobs", min=0, metavar="N", help="Look at so many; 0 is all.")] = 0,
    accept: Annotated[int, typer.Option("--accept", min=0, metavar="K", help="Accept the first K of them.")] = 0,
    as_json: Json = False,
    config: Config = None,
    timeout: Limit = 30.0,
) -> None:
    """List the jobs that wait for a cluster, and accept the first K: they are then yours to run.

    A running agent does all this by itself, and tells how each job ends: this command is for looking, and for sites
    that start jobs in their own way. It needs what `rainbow register --save` left in the settings. Jobs not accepted
    go back to where they were; one looked at very often (20 times) is given to another cluster.

    \b
    Example:
      rainbow receive blue --max-jobs 3 --accept 1
    """
    from rainbow.settings import secret

    settings = load_settings(config)
    mine = settings.cluster
    if mine.name != cluster or not mine.keys or mine.registration is None:
        raise Denied(
            f"the settings hold no secret of cluster {cluster}: register it here with "
            f"`rainbow register {cluster} --save`"
        )
    with connection(settings, f"rainbow-receive-{cluster}", secret(mine.secret), timeout) as made:
        _receive(made.broker, mine, cluster, max_jobs, accept, as_json)


def _receive(broker: Broker, mine: ClusterSettings, cluster: str, max_jobs: int, accept: int, as_json: bool) -> None:
    from rainbow import topology

    keys = {kid: bytes.fromhex(key.get_secret_value()) for kid, key in mine.keys.items()}
    queue = topology.jobs_queue(cluster)
    wanted = min(max_jobs or _MOST, _MOST, broker.stats(queue).messages)
    consumer = broker.consume(queue, prefetch=max(1, wanted))
    try:
        waiting = [_read(delivery, keys, cluster) for delivery in take(broker, consumer, wanted)]
        # What was looked at before may come back behind the others (quorum queues do that): oldest first again.
        waiting.sort(key=lambda w: w.dispatch.assigned_at if w.dispatch is not None else 0.0)
        good = [w for w in waiting if w.problem is None]
        accepted = good[:accept]
        if accepted:
            _accept(broker, consumer, accepted, keys, mine)
    finally:
        consumer.cancel()  # what was not accepted goes back
    if as_json:
        output.document({"cluster": cluster, "waiting": [_plain(w) for w in waiting], "accepted": _ids(accepted)})
        return
    rows = [(i, *_row(w), "accepted" if w in accepted else w.problem) for i, w in enumerate(waiting, 1)]
    output.table(
        ("#", "id", "name", "nodes", "command", "note"), rows, empty=f"no jobs wait for {cluster}", narrow=("name",)
    )
    if accept > len(good):
        output.note(f"asked to accept {accept}: there are {len(good)}")


def take(broker: Broker, consumer: Consumer, wanted: int) -> list[Delivery]:
    """Up to `wanted` deliveries, until none has come for a moment.

    Raises Denied when all stay in their queue: a broker that lets us read none of them tells a consumer nothing.
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


def _read(delivery: Delivery, keys: dict[str, bytes], cluster: str) -> _Waiting:
    from rainbow import codec
    from rainbow.jobspec import read
    from rainbow.models.job import Dispatch
    from rainbow.models.wire import parse
    from rainbow.security import signing

    try:
        signing.check(keys, delivery.body, delivery.headers.get(signing.HEADER))
        dispatch = parse(Dispatch, codec.decode(delivery.body, delivery.content_type, max_bytes=8 << 20, max_depth=80))
        if dispatch.cluster != cluster:
            return _Waiting(delivery, None, problem=f"it is for cluster {dispatch.cluster}")
        if dispatch.expires_at is not None and dispatch.expires_at < time.time():
            return _Waiting(delivery, dispatch, problem="it has expired")
        jobspec = read(dispatch.jobspec)
    except RainbowError as exc:
        return _Waiting(delivery, None, problem=str(exc))
    command = " ".join(jobspec.tasks[0].command) if jobspec.tasks else ""
    return _Waiting(delivery, dispatch, jobspec.demand.nodes, command)


def _accept(
    broker: Broker, consumer: Consumer, chosen: Sequence[_Waiting], keys: dict[str, bytes], mine: ClusterSettings
) -> None:
    """Tell that they are accepted, and only then take them out of the queue."""
    from rainbow import codec, topology
    from rainbow.brokers.base import Message
    from rainbow.models.job import JobEvent
    from rainbow.security import signing

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
        "rainbow-cluster": mine.name,
        "rainbow-registration": mine.registration,
    }
    key = topology.event_key(mine.name, "accepted")
    broker.publish([Message(topology.EVENTS, key, body, headers=headers)]).check(30.0)
    consumer.ack([w.delivery for w in chosen])


def _ids(waiting: Sequence[_Waiting]) -> list[str]:
    return [w.dispatch.id for w in waiting if w.dispatch is not None]


def _row(w: _Waiting) -> tuple[Any, ...]:
    if w.dispatch is None:
        return (w.delivery.message_id, None, None, None)
    return (w.dispatch.id, w.dispatch.name, w.nodes or None, w.command)


def _plain(waiting: _Waiting) -> dict[str, Any]:
    d = waiting.dispatch
    shown: dict[str, Any] = {"id": waiting.delivery.message_id, "problem": waiting.problem}
    if d is not None:
        shown |= {
            "id": d.id,
            "attempt": d.attempt,
            "name": d.name,
            "user": d.user,
            "priority": d.priority,
            "submitted_at": d.submitted_at,
            "nodes": waiting.nodes,
            "command": waiting.command,
            "image": d.image,
            "jobspec": d.jobspec,
        }
    return shown
