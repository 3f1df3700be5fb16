"""Enrollment: agents that have no token yet ask, an administrator lets them in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from rainbow.cli.lazy import DefaultGroup, make_app
from rainbow.cli.options import Config, Json, Limit, Token
from rainbow.cli.render import output
from rainbow.cli.session import client, load_settings

if TYPE_CHECKING:
    from rainbow.client.views import EnrollmentView


class _Enrollments(DefaultGroup):
    default: ClassVar[str] = "list"


app = make_app(cls=_Enrollments)

Code = Annotated[str, typer.Argument(metavar="CODE", help="The code that the agent shows.", show_default=False)]


@app.callback()
def enroll() -> None:
    """Let agents in that have no token yet: `rainbow-agent enroll` asks and shows a code, you compare and approve.

    \b
    Example:
      rainbow enroll approve 3K7Q-ZT4M-B2XA
    """


@app.command("list")
def list_enrollments(as_json: Json = False, config: Config = None, token: Token = None, timeout: Limit = 30.0) -> None:
    """List who asks. `list` may be left out.

    \b
    Example:
      rainbow enroll list
    """
    with client(config, token, timeout) as rainbow:
        found = rainbow.enrollments()
    if as_json:
        output.document({"enrollments": [e.model_dump(mode="json") for e in found]})
        return
    rows = [(e.code, e.cluster, e.status, e.place or None, output.age(e.asked_at)) for e in found]
    output.table(("code", "cluster", "status", "from", "asked"), rows, empty="nobody asks")


@app.command("approve")
def approve(
    code: Code, as_json: Json = False, config: Config = None, token: Token = None, timeout: Limit = 30.0
) -> None:
    """Let the agent with this code serve its cluster: it collects its token within the hour.

    \b
    Example:
      rainbow enroll approve 3K7Q-ZT4M-B2XA
    """
    with client(config, token, timeout) as rainbow:
        _show(rainbow.decide_enrollment(code, approve=True), as_json)


@app.command("deny")
def deny(code: Code, as_json: Json = False, config: Config = None, token: Token = None, timeout: Limit = 30.0) -> None:
    """Do not let the agent with this code in.

    \b
    Example:
      rainbow enroll deny 3K7Q-ZT4M-B2XA
    """
    with client(config, token, timeout) as rainbow:
        _show(rainbow.decide_enrollment(code, approve=False), as_json)


@app.command("pass")
def enrollment_pass(
    ttl: Annotated[str, typer.Option("--ttl", metavar="TIME", help="How long it is good: 12h, 30d.")] = "30d",
    keyring: Annotated[
        Path | None, typer.Option("--keyring", metavar="FILE", help="Key ring (else the one in the settings).")
    ] = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Print a pass with which agents reach a broker that only tokens open (`broker.oauth`), to ask there and no more.

    It is no secret: it opens nothing but the question, which an administrator answers.

    \b
    Example:
      rainbow enroll pass --ttl 30d
    """
    from rainbow.cli.values import seconds
    from rainbow.security import scopes, tokens

    settings = load_settings(config)
    made = tokens.issue(
        tokens.KeyRing.load(keyring or settings.keyring),
        sub="enrollment",
        role="enroll",
        clusters=(),
        ttl=seconds(ttl, "--ttl"),
        scope=scopes.for_token("enroll", (), scopes.vhost_of(settings.broker.url.get_secret_value())),
    )
    if as_json:
        output.document({"pass": made})
    else:
        output.line(made)


def _show(decided: EnrollmentView, as_json: bool) -> None:
    if as_json:
        output.document(decided.model_dump(mode="json"))
    else:
        output.note(f"{decided.status} the agent with code {decided.code} for cluster {decided.cluster}")
