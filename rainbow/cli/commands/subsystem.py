"""A cluster's further resource graphs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from rainbow.cli.lazy import make_app
from rainbow.cli.options import Cluster, Config, Json, Limit, Token
from rainbow.cli.render import output
from rainbow.cli.session import client

app = make_app()
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the subsystem: io, spack, ...", show_default=False)]


@app.callback()
def subsystem() -> None:
    """Add or remove a cluster's subsystems: graphs of what its nodes have besides cores and GPUs.

    \b
    Example:
      rainbow subsystem add blue io --nodes io.json
    """


@app.command("add")
def add(
    cluster: Cluster,
    name: Name,
    nodes: Annotated[Path, typer.Option("--nodes", metavar="FILE", help="Its graph (JGF).", show_default=False)],
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    timeout: Limit = 30.0,
) -> None:
    """Add a subsystem to a registered cluster, or replace it.

    \b
    Example:
      rainbow subsystem add blue io --nodes io.json
    """
    graph = _document(nodes)
    with client(config, token, timeout) as rainbow:
        names = rainbow.set_subsystem(cluster, name, graph)
    _show(cluster, names, as_json)


@app.command("remove")
def remove(
    cluster: Cluster,
    name: Name,
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    timeout: Limit = 30.0,
) -> None:
    """Remove a subsystem from a cluster.

    \b
    Example:
      rainbow subsystem remove blue io
    """
    with client(config, token, timeout) as rainbow:
        names = rainbow.remove_subsystem(cluster, name)
    _show(cluster, names, as_json)


def _show(cluster: str, names: list[str], as_json: bool) -> None:
    if as_json:
        output.document({"cluster": cluster, "subsystems": names})
    else:
        output.note(f"subsystems of {cluster}: {' '.join(names) or 'none'}")


def _document(path: Path) -> Mapping[str, Any]:
    """The graph in a file: JSON or YAML, packed or not. Raises InvalidGraph."""
    from rainbow.errors import InvalidGraph
    from rainbow.resources.graph.document import from_yaml, text_of

    text = text_of(path)
    try:
        document = json.loads(text)
    except ValueError:
        document = from_yaml(text)
    if not isinstance(document, Mapping):
        raise InvalidGraph(f"{path} is no resource graph: give JSON Graph Format")
    return document
