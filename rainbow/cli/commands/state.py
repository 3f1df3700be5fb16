"""A cluster's state, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rainbow.cli.options import Cluster, Config, Json, Limit, Token
from rainbow.cli.render import output
from rainbow.cli.session import client
from rainbow.cli.values import flat_file, pairs, typed


def state(
    cluster: Cluster,
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE...]", help="Numbers, true, false, or text.", show_default=False),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="Keys and values in JSON or YAML.")
    ] = None,
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    timeout: Limit = 30.0,
) -> None:
    """Update what is known of a cluster's state, for selection to use. Values are merged into what is there.

    \b
    Example:
      rainbow state blue cost_per_node_hour=2.5 queue_open=true
    """
    wanted = {**(flat_file(file) if file else {}), **{k: typed(v) for k, v in pairs(values or (), "state").items()}}
    if not wanted:
        raise typer.BadParameter("nothing to set: give KEY=VALUE or --file FILE")
    with client(config, token, timeout) as rainbow:
        now = rainbow.set_state(cluster, wanted)
    if as_json:
        output.document({"cluster": cluster, "values": now})
    else:
        output.fields(now)
