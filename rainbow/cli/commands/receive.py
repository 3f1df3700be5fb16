"""A cluster's side by hand: look at the jobs that wait for it, accept some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rainbow.cli.options import Cluster, Config, Json, Limit
from rainbow.cli.render import output
from rainbow.cli.session import connection, load_settings
from rainbow.errors import Denied

if TYPE_CHECKING:
    from rainbow.brokers.base import Broker
    from rainbow.client.waiting import Waiting
    from rainbow.settings import ClusterSettings


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
    from rainbow.client import waiting as queue_view

    keys = {kid: bytes.fromhex(key.get_secret_value()) for kid, key in mine.keys.items()}
    queue = topology.jobs_queue(cluster)
    wanted = min(max_jobs or queue_view.MOST, queue_view.MOST, broker.stats(queue).messages)
    consumer = broker.consume(queue, prefetch=max(1, wanted))
    try:
        waiting = queue_view.listed(broker, consumer, wanted, keys, cluster)
        good = [w for w in waiting if w.problem is None]
        accepted = good[:accept]
        if accepted:
            queue_view.accept(broker, consumer, accepted, keys, cluster, mine.registration or "")
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


def _ids(waiting: Sequence[Waiting]) -> list[str]:
    return [w.dispatch.id for w in waiting if w.dispatch is not None]


def _row(w: Waiting) -> tuple[Any, ...]:
    if w.dispatch is None:
        return (w.delivery.message_id, None, None, None)
    return (w.dispatch.id, w.dispatch.name, w.nodes or None, w.command)


def _plain(waiting: Waiting) -> dict[str, Any]:
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
