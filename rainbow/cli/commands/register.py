"""Register a cluster by hand: what its agent does by itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rainbow.cli import files
from rainbow.cli.options import Cluster, Config, Json, Limit, Nodes, Save, Token, secret_text
from rainbow.cli.render import output
from rainbow.cli.render.progress import bar
from rainbow.cli.session import client, load_settings
from rainbow.cli.values import pairs, text_of_stdin

if TYPE_CHECKING:
    from rainbow.client import Registration


def register(
    cluster: Cluster,
    nodes: Nodes = None,
    rset: Annotated[
        Path | None, typer.Option("--R", metavar="FILE", help="Resources as Flux has them (`flux kvs get resource.R`).")
    ] = None,
    subsystem: Annotated[
        list[str] | None,
        typer.Option("--subsystem", metavar="NAME=FILE", help="A further graph (io, spack, ...); may be repeated."),
    ] = None,
    matcher: Annotated[
        Literal["count", "fluxion"], typer.Option("--matcher", help="How its own scheduler places jobs.")
    ] = "count",
    secret: Annotated[
        str | None,
        typer.Option("--secret", metavar="SECRET|@FILE", help="Registration secret, if allowed.", callback=secret_text),
    ] = None,
    save: Save = False,
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    timeout: Limit = 60.0,
) -> None:
    """Register a cluster by its resource graph; from the same place it may be done again, and replaces all of it.

    What comes back: a token to submit to this cluster, for its users; and a secret for its agent alone. With --save
    both go into the settings file (all else in it stays), ready for `rainbow submit` and `rainbow receive` here.

    \b
    Examples:
      rainbow register blue --nodes cluster-nodes.json --save
      rainbow register blue --R R.json --subsystem io=io.json --token @register.token
    """
    from rainbow.client.identity import identity
    from rainbow.resources.readers.reader import read_graph

    if (nodes is None) == (rset is None):
        raise typer.BadParameter("give the cluster's resources: either --nodes FILE or --R FILE")
    graphs = {name: Path(path) for name, path in pairs(subsystem or (), "--subsystem").items()}
    source: Path | str = nodes or rset or Path()
    if str(source) == "-":
        source = text_of_stdin("--nodes" if nodes else "--R")
    settings = load_settings(config)
    with bar("registering", 2) as advance:
        summary = read_graph(source, subsystems=graphs)
        advance(1)
        with client(config, token, timeout) as rainbow:
            made = rainbow.register(
                cluster,
                identity=identity(settings.agent.state_dir / cluster),
                summary=summary.to_bytes(),
                matcher=matcher,
                secret=secret,
            )
    path = None
    try:
        path = files.change(files.in_force(config), lambda old: _saved(old, made)) if save else None
    finally:
        # Told in full when it cannot be saved: it cannot be asked for again.
        _tell(made, summary.describe(), [*summary.warnings, *made.warnings], path, as_json=as_json)


def _tell(made: Registration, resources: str, warnings: list[str], path: Path | None, *, as_json: bool) -> None:
    for warning in dict.fromkeys(warnings):
        output.note(f"warning: {warning}")
    if as_json:
        output.document({**_revealed(made), "saved": str(path) if path else None})
        return
    output.note(f"{'registered' if made.created else 'changed'} {made.cluster}: {resources}")
    if path is not None:
        output.note(f"its token and its agent's secret are kept in {path}")
    else:
        output.fields({"token": made.token.get_secret_value(), "secret": made.secret.get_secret_value()})
        output.note("the token is for who may submit to it, the secret for its agent alone; --save keeps them")


def _revealed(made: Registration) -> dict[str, Any]:
    """With its secrets: they are what was asked for."""
    return {
        "cluster": made.cluster,
        "registration": made.registration,
        "token": made.token.get_secret_value(),
        "secret": made.secret.get_secret_value(),
        "keys": {kid: key.get_secret_value() for kid, key in made.keys.items()},
        "created": made.created,
        "warnings": made.warnings,
    }


def _saved(old: Mapping[str, Any], made: Registration) -> dict[str, Any]:
    """The sections `cluster` and `clusters` with this registration: other clusters' tokens stay."""
    shown = _revealed(made)
    before = old.get("cluster")
    mine = {
        **(before if isinstance(before, dict) and before.get("name") == made.cluster else {}),
        "name": made.cluster,
        "secret": shown["secret"],
        "keys": shown["keys"],
        "registration": made.registration,
    }
    listed = [item for item in old.get("clusters") or [] if item.get("name") != made.cluster]
    return {"cluster": mine, "clusters": [*listed, {"name": made.cluster, "token": shown["token"]}]}
