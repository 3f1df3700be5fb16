"""Dead letters: what could not be processed, kept with its reason."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rainbow.cli.lazy import make_app
from rainbow.cli.options import Config, Json, Token
from rainbow.cli.render import output
from rainbow.cli.session import connection, load_settings
from rainbow.errors import TimedOut, Unavailable

if TYPE_CHECKING:
    from rainbow.brokers.base import Broker, Consumer
    from rainbow.client.connection import Connection
    from rainbow.client.dead_letters import Letter
    from rainbow.security.tokens import KeyRing

app = make_app()

#: Seconds for the registrar to answer: less than after which a question is sent again.
_ANSWER_S = 4.0

Keys = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY...]", help="Those with these keys.", show_default=False)
]
All = Annotated[bool, typer.Option("--all", help="All of them (with --reason: all of that reason).")]
Reason = Annotated[str | None, typer.Option("--reason", metavar="CODE", help="Only those that died of this.")]
Look = Annotated[int, typer.Option("--limit", "-l", min=1, max=10_000, help="Look at the oldest so many.")]


@app.callback()
def dead() -> None:
    """List, show, replay or drop what could not be processed. For operators: it needs the
    broker's own account and, to replay or drop, an administrator's token.

    \b
    Examples:
      rainbow dead list
      rainbow dead replay --all --reason invalid
    """


@app.command("list")
def list_letters(reason: Reason = None, limit: Look = 100, as_json: Json = False, config: Config = None) -> None:
    """List dead letters, oldest first. They stay where they are.

    \b
    Example:
      rainbow dead list --reason invalid
    """
    from rainbow.client import dead_letters

    with _letters(config, limit) as (_, _, letters):
        found = dead_letters.chosen(letters, (), reason)
    if as_json:
        output.document({"letters": [letter.plain() for letter in found]})
        return
    rows = [(x.key, output.stamp(x.at), x.queue, x.reason, x.delivery.message_id, x.detail) for x in found]
    output.table(("key", "died", "queue", "reason", "message id", "detail"), rows, empty="no dead letters")


@app.command("show")
def show(
    key: Annotated[str, typer.Argument(metavar="KEY", help="As `dead list` shows it.", show_default=False)],
    limit: Look = 1000,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Show a dead letter with its body. Tokens in it were taken out when it died.

    \b
    Example:
      rainbow dead show 4f0c1a2b3d
    """
    from rainbow.client import dead_letters

    with _letters(config, limit) as (_, _, letters):
        letter = dead_letters.chosen(letters, (key,), None)[0]
    if as_json:
        output.document({**letter.plain(), "body": letter.body()})
        return
    output.fields({**letter.plain(), "time": output.stamp(letter.at), "history": "; ".join(letter.history) or None})
    body = letter.body()
    output.line("")
    output.line(body if isinstance(body, str) else json.dumps(body, indent=2, ensure_ascii=False, default=str))


@app.command("replay")
def replay(
    keys: Keys = None,
    everything: All = False,
    reason: Reason = None,
    limit: Look = 1000,
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    with_my_token: Annotated[
        bool,
        typer.Option("--with-my-token", help="Put your token into submissions that lost theirs: the jobs are yours."),
    ] = False,
) -> None:
    """Send dead letters to where they came from, once more: after the cause is fixed.

    A letter that the workers signed goes back to its exchange; one that RabbitMQ itself put aside goes to
    rainbow.submit only.

    \b
    Example:
      rainbow dead replay 4f0c1a2b3d
    """
    from rainbow.settings import secret

    own = (token or secret(load_settings(config).token)) if with_my_token else None

    def act(broker: Broker, chosen: Sequence[Letter]) -> None:
        broker.publish([letter.replay(own) for letter in chosen]).check(30.0)

    _settle(
        "replay",
        act,
        keys,
        everything=everything,
        reason=reason,
        limit=limit,
        as_json=as_json,
        config=config,
        token=token,
    )


@app.command("drop")
def drop(
    keys: Keys = None,
    everything: All = False,
    reason: Reason = None,
    limit: Look = 1000,
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
) -> None:
    """Drop dead letters for good.

    \b
    Example:
      rainbow dead drop --all --reason too-large
    """
    _settle(
        "drop",
        lambda *_: None,
        keys,
        everything=everything,
        reason=reason,
        limit=limit,
        as_json=as_json,
        config=config,
        token=token,
    )


def _settle(
    what: Literal["replay", "drop"],
    act: Callable[[Broker, Sequence[Letter]], None],
    keys: list[str] | None,
    *,
    everything: bool,
    reason: str | None,
    limit: int,
    as_json: bool,
    config: Path | None,
    token: str | None,
) -> None:
    """Do `act` with the letters chosen, and take them out of the queue afterwards."""
    from rainbow.client import dead_letters

    done = {"replay": "replayed", "drop": "dropped"}[what]
    if bool(keys) == everything:
        raise typer.BadParameter("say which: their keys (`rainbow dead list`), or --all")
    with _letters(config, limit, token) as (made, consumer, letters):
        chosen = dead_letters.chosen(letters, keys or (), reason)
        if chosen:
            _say_who(made, what, chosen, config, token)
        act(made.broker, chosen)
        consumer.ack([letter.delivery for letter in chosen])
        letters[:] = [letter for letter in letters if letter not in chosen]
    if as_json:
        output.document({done: [letter.key for letter in chosen]})
    else:
        output.note(f"{done} {len(chosen)} dead letter(s)")


def _say_who(
    made: Connection, what: Literal["replay", "drop"], chosen: Sequence[Letter], config: Path | None, token: str | None
) -> None:
    """Have the registrar write down who does it; it refuses all but administrators. While none runs, the question waits
    for one in its queue."""
    from rainbow.client.credentials import Credentials

    speaks = Credentials.from_settings(load_settings(config), token).for_cluster()
    try:
        made.call(f"dead-{what}", speaks, _ANSWER_S, keys=[letter.key for letter in chosen])
    except (TimedOut, Unavailable) as exc:
        output.note(f"not in the audit log yet: {exc}")


@contextmanager
def _letters(
    config: Path | None, limit: int, token: str | None = None
) -> Iterator[tuple[Connection, Consumer, list[Letter]]]:
    """The oldest letters, held while the block runs; those still in the list afterwards go back to the queue."""
    from rainbow.client.dead_letters import held

    settings = load_settings(config)
    ring = _ring(settings.keyring)
    with connection(settings, "rainbow-dead", token) as made, held(made.broker, limit, ring) as (consumer, letters):
        yield made, consumer, letters


def _ring(path: Path) -> KeyRing | None:
    """The key ring that verifies what the workers signed; None where it is not at hand."""
    from rainbow.errors import InvalidSettings
    from rainbow.security.tokens import KeyRing

    if not path.exists():
        return None
    try:
        return KeyRing.load(path)
    except InvalidSettings as exc:
        output.note(f"letters cannot be verified: {exc.message}")
        return None
