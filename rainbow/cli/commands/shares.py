"""Shares of accounts and users: what they are due, what they had, and what is set for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import typer

from rainbow.cli.lazy import DefaultGroup, make_app
from rainbow.cli.options import Config, Json, Limit, Token
from rainbow.cli.render import output
from rainbow.cli.session import client
from rainbow.errors import InvalidInput
from rainbow.models.shares import ShareTerms
from rainbow.models.wire import parse


class _Shares(DefaultGroup):
    default: ClassVar[str] = "list"


app = make_app(cls=_Shares)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A user, or an account.", show_default=False)]
IsAccount = Annotated[bool, typer.Option("--account", help="NAME is an account.")]


@app.callback()
def shares() -> None:
    """List the shares of accounts and users, or set their weights and limits.

    \b
    Example:
      rainbow shares set physics --account --weight 3
    """


@app.command("list")
def list_shares(as_json: Json = False, config: Config = None, token: Token = None, timeout: Limit = 30.0) -> None:
    """List accounts and their users: weight, the share that it asks for, the share of what was used lately, limits.

    Usage counts half after the half-life. `list` may be left out.

    \b
    Example:
      rainbow shares
    """
    with client(config, token, timeout) as rainbow:
        found = rainbow.shares()
    if as_json:
        output.document(found)
        return
    output.table(
        ("account", "user", "weight", "share", "usage", "running", "waiting", "rate", "set by"),
        [_row(row) for row in found["shares"]],
        empty="no jobs were charged lately, and no weight is set",
    )
    if found["shares"]:
        output.note(f"half-life of usage: {found['half_life']:g} s; running, waiting and rate: at most")


@app.command("set")
def set_share(
    name: Name,
    account: IsAccount = False,
    weight: Annotated[str | None, typer.Option("--weight", metavar="W", help="Its weight: 1 if none is set.")] = None,
    max_running: Annotated[
        str | None, typer.Option("--max-running", metavar="N", help="Jobs that are on clusters, at most.")
    ] = None,
    max_waiting: Annotated[
        str | None, typer.Option("--max-waiting", metavar="N", help="Jobs that wait, at most.")
    ] = None,
    max_rate: Annotated[
        str | None, typer.Option("--max-rate", metavar="R", help="Submissions a second, at most.")
    ] = None,
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    timeout: Limit = 30.0,
) -> None:
    """Set the weight or limits of a user or an account, for all schedulers and until `unset`. What is not named stays.

    \b
    Example:
      rainbow shares set alice --weight 2 --max-running 100
    """
    given = {"weight": weight, "max_running": max_running, "max_waiting": max_waiting, "max_rate": max_rate}
    terms = _checked({key: _number(key, text) for key, text in given.items() if text is not None})
    with client(config, token, timeout) as rainbow:
        found = rainbow.set_share(name, account=account, terms=terms)
    _said(found, name, as_json)


@app.command("unset")
def unset_share(
    name: Name,
    account: IsAccount = False,
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    timeout: Limit = 30.0,
) -> None:
    """Drop what was set for a user or an account: what the settings say holds again.

    \b
    Example:
      rainbow shares unset alice
    """
    with client(config, token, timeout) as rainbow:
        found = rainbow.set_share(name, account=account, unset=True)
    _said(found, name, as_json)


def _number(key: str, text: str) -> float | int:
    whole = key in ("max_running", "max_waiting")
    try:
        return int(text) if whole else float(text)
    except ValueError:
        option = "--" + key.replace("_", "-")
        raise typer.BadParameter(f"{option}: {text!r} is not a {'whole ' if whole else ''}number") from None


def _checked(terms: dict[str, float | int]) -> dict[str, float | int]:
    try:
        parse(ShareTerms, terms)
    except InvalidInput as exc:
        named = re.sub(r"^field '(\w+)':", lambda field: "--" + field[1].replace("_", "-"), exc.message)
        raise InvalidInput(named) from None
    return terms


def _said(found: Mapping[str, Any], name: str, as_json: bool) -> None:
    if as_json:
        output.document(found)
        return
    terms = [f"{key.replace('_', ' ')} {value:g}" for key, value in found["terms"].items() if value is not None]
    output.note(f"{name}: {', '.join(terms) or 'nothing is set'}")


def _row(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        row["account"],
        row["user"],
        f"{row['weight']:g}",
        None if row["share"] is None else f"{100 * row['share']:.1f} %",
        f"{100 * row['usage']:.1f} %",
        row["max_running"],
        row["max_waiting"],
        None if row["max_rate"] is None else f"{row['max_rate']:g}",
        row["set_by"],
    )
