"""Groups of clusters: `@gpu`, `@everyone`."""

from __future__ import annotations

from typing import Annotated, ClassVar

import typer

from rainbow.cli.lazy import DefaultGroup, make_app
from rainbow.cli.options import Config, Json, Limit, Token
from rainbow.cli.render import output
from rainbow.cli.session import client


class _Groups(DefaultGroup):
    default: ClassVar[str] = "list"


app = make_app(cls=_Groups)


@app.callback()
def groups() -> None:
    """List groups of clusters, or set one. Tokens and submissions may name a group in place of a cluster.

    \b
    Example:
      rainbow groups set @gpu blue red
    """


@app.command("list")
def list_groups(as_json: Json = False, config: Config = None, token: Token = None, timeout: Limit = 30.0) -> None:
    """List the groups. `list` may be left out.

    \b
    Example:
      rainbow groups
    """
    with client(config, token, timeout) as rainbow:
        found = rainbow.groups()
    _show(found, as_json)


@app.command("set")
def set_group(
    group: Annotated[str, typer.Argument(metavar="@GROUP", help="Name of the group.", show_default=False)],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[CLUSTER...]", help="All its members.", show_default=False)
    ] = None,
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    timeout: Limit = 30.0,
) -> None:
    """Make a group exactly these clusters; none removes it.

    \b
    Example:
      rainbow groups set @gpu blue red
    """
    with client(config, token, timeout) as rainbow:
        name = group if group.startswith("@") else f"@{group}"
        found = rainbow.set_group(name, names or [])
    _show(found, as_json)
    if name not in found and not as_json:
        output.note(f"group {name} has no clusters any more: it is gone")


def _show(found: dict[str, list[str]], as_json: bool) -> None:
    if as_json:
        output.document({"groups": found})
    else:
        rows = [(name, " ".join(members)) for name, members in sorted(found.items())]
        output.table(("group", "clusters"), rows, empty="there are no groups")
