"""Clusters: list, show, drain, resume, delete."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rainbow.cli.lazy import DefaultGroup, make_app
from rainbow.cli.options import Cluster, Config, Json, Limit, Token
from rainbow.cli.render import output
from rainbow.cli.session import client
from rainbow.cli.watching import Watch, repeated
from rainbow.errors import NotFound

if TYPE_CHECKING:
    from rainbow.client import ClusterView

app = make_app(cls=DefaultGroup)
_COLUMNS = (
    "name",
    "status",
    "nodes",
    "cores",
    "gpus",
    "memory",
    "free",
    "reserved",
    "heard",
    "groups",
    "drained because",
)


@app.callback()
def clusters() -> None:
    """List clusters (or show one: `rainbow clusters NAME`); drain, resume or delete one.

    \b
    Examples:
      rainbow clusters
      rainbow clusters blue --json
      rainbow clusters drain blue --reason "new disks"
    """


@app.command("show")
def show(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Only this cluster, in full.", show_default=False)
    ] = None,
    every: Watch = None,
    tree: Annotated[
        bool, typer.Option("--tree", help="Draw its resources: equal subtrees are one line with their number.")
    ] = False,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Write this drawing as a picture into FILE.")
    ] = None,
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    timeout: Limit = 30.0,
) -> None:
    """List the clusters, or show one in full. `show` may be left out.

    \b
    Examples:
      rainbow clusters blue
      rainbow clusters blue --tree
    """
    from rainbow.client.views import plain

    if (tree or svg) and name is None:
        raise typer.BadParameter("--tree and --svg draw one cluster: give its name")
    put = output.document if every is None else output.json_line

    def draw() -> None:
        found = rainbow.clusters() if name is None else [rainbow.cluster(name)]
        if svg is not None:
            _picture(found[0], svg)
        if as_json:
            put({"clusters": [plain(c) for c in found]} if name is None else plain(found[0]))
        elif tree:
            for line in _drawing(found[0]):
                output.line(line)
        elif name is None:
            _table(found)
        else:
            _details(found[0])

    with client(config, token, timeout) as rainbow:
        repeated(draw, every)


@app.command("drain")
def drain(
    name: Cluster,
    reason: Annotated[str, typer.Option("--reason", help="Why: shown to all.")] = "drained",
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    timeout: Limit = 30.0,
) -> None:
    """Send no new jobs to a cluster. What it has goes on.

    \b
    Example:
      rainbow clusters drain blue --reason "new disks"
    """
    with client(config, token, timeout) as rainbow:
        rainbow.drain(name, reason)
    _done(as_json, {"cluster": name, "drained": reason}, f"{name} is drained: {reason}")


@app.command("resume")
def resume(
    name: Cluster, as_json: Json = False, config: Config = None, token: Token = None, timeout: Limit = 30.0
) -> None:
    """Send jobs to a drained cluster again.

    \b
    Example:
      rainbow clusters resume blue
    """
    with client(config, token, timeout) as rainbow:
        rainbow.resume(name)
    _done(as_json, {"cluster": name, "drained": None}, f"{name} takes jobs again")


@app.command("delete")
def delete(
    name: Cluster, as_json: Json = False, config: Config = None, token: Token = None, timeout: Limit = 30.0
) -> None:
    """Forget a cluster, with its queues, state and keys. It may be registered again.

    \b
    Example:
      rainbow clusters delete blue
    """
    with client(config, token, timeout) as rainbow:
        rainbow.delete(name)
    _done(as_json, {"cluster": name, "deleted": True}, f"{name} is deleted")


def _drawing(cluster: ClusterView) -> list[str]:
    from rainbow.pictures import tree

    return tree.lines(_outline(cluster))


def _picture(cluster: ClusterView, path: Path) -> None:
    from rainbow.cli.files import write_picture
    from rainbow.pictures import tree

    write_picture(path, tree.document(_outline(cluster), cluster.name))


def _outline(cluster: ClusterView) -> dict[str, Any]:
    if cluster.tree is None:
        raise NotFound(f"the scheduler does not tell the resources of {cluster.name}: it is of a release before")
    return cluster.tree


def _done(as_json: bool, document: dict[str, object], text: str) -> None:
    if as_json:
        output.document(document)
    else:
        output.note(text)


def _amount(value: object) -> str | None:
    return f"{value:g}" if isinstance(value, int | float) else None


def _table(found: Sequence[ClusterView]) -> None:
    """Print a line for each cluster. Memory has a column where a cluster says how much it has."""
    with_memory = any(c.totals.get("memory") for c in found)
    shown = [i for i, column in enumerate(_COLUMNS) if with_memory or column != "memory"]
    rows = [[row[i] for i in shown] for row in map(_row, found)]
    output.table([_COLUMNS[i] for i in shown], rows, empty="no clusters are registered")


def _row(c: ClusterView) -> tuple[str | None, ...]:
    free = [_amount(c.state.get(f"{kind}_free")) for kind in ("nodes", "cores", "gpus")]
    reserved = [_amount(c.reserved.get(kind)) for kind in ("nodes", "cores", "gpus")]
    return (
        c.name,
        c.status,
        *(_amount(c.totals.get(kind, 0)) for kind in ("node", "core", "gpu")),
        _amount(c.totals.get("memory")),
        "/".join(f or "-" for f in free) if any(free) else None,
        "/".join(r or "0" for r in reserved) if any(c.reserved.values()) else None,
        output.age(c.heartbeat_at),
        " ".join(c.groups) or None,
        c.drained,
    )


def _details(c: ClusterView) -> None:
    output.fields(
        {
            "name": c.name,
            "status": c.status,
            "drained": c.drained,
            "resources": c.description or output.listing(c.totals),
            "subsystems": " ".join(c.subsystems) or None,
            "groups": " ".join(c.groups) or None,
            "matcher": c.matcher,
            "state": output.listing(c.state),
            "heard": output.stamp(c.heartbeat_at),
            "reserved": output.listing(c.reserved),
            "registered": output.stamp(c.registered_at),
            "updated": output.stamp(c.updated_at),
        }
    )
    for warning in c.warnings:
        output.note(f"warning: {warning}")
