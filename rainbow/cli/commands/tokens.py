"""Tokens: issue, show, verify, revoke; and the keys that sign them."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rainbow.cli import files
from rainbow.cli.lazy import make_app
from rainbow.cli.options import Config, Json, Limit, Token, secret_text
from rainbow.cli.render import output
from rainbow.cli.session import client, load_settings
from rainbow.errors import BadCredentials, Denied, InvalidInput
from rainbow.paths import expand, user_name

if TYPE_CHECKING:
    from rainbow.security.tokens import KeyRing
    from rainbow.settings import Settings

app = make_app()

Given = Annotated[
    str | None,
    typer.Argument(
        metavar="[TOKEN|@FILE|-]",
        help="The token, a file with it, or - for stdin; else the one in the settings.",
        show_default=False,
        callback=secret_text,
    ),
]
KeyRingFile = Annotated[
    Path | None, typer.Option("--keyring", metavar="FILE", help="Key ring (else the one in the settings).")
]


@app.callback()
def token() -> None:
    """Issue, show, verify and revoke tokens; rotate the keys that sign them.

    Issuing, verifying and rotating need the key ring: they are for the administrator, on the scheduler's side.

    \b
    Example:
      rainbow token issue --role submit --sub alice --cluster blue --ttl 30d
    """


@app.command("issue")
def issue(
    role: Annotated[
        Literal["submit", "agent", "register", "admin"], typer.Option("--role", help="What it allows.")
    ] = "submit",
    sub: Annotated[str | None, typer.Option("--sub", help="Who it is for (else you).")] = None,
    cluster: Annotated[
        list[str] | None,
        typer.Option("--cluster", "-C", metavar="NAME", help="Cluster or @group; may be repeated; all if left out."),
    ] = None,
    account: Annotated[
        list[str] | None,
        typer.Option("--account", "-A", metavar="NAME", help="Account it may charge, the usual one first; may repeat."),
    ] = None,
    ttl: Annotated[str, typer.Option("--ttl", metavar="TIME", help="How long it is good: 90s, 12h, 30d.")] = "30d",
    save: Annotated[bool, typer.Option("--save", help="Write it as `token` into the settings file.")] = False,
    body: Annotated[
        Path | None,
        typer.Option("--body", metavar="FILE", help="Good for one message with this body alone, in its header."),
    ] = None,
    keyring: KeyRingFile = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Issue a token, printed on stdout.

    Its scopes say what it opens at a RabbitMQ that takes tokens (`rainbow broker setup --oauth-config`), on the vhost
    of broker.url. The broker knows no groups: an agent's queues open by name, or all of them with no --cluster.

    \b
    Example:
      rainbow token issue --role submit --sub alice --cluster blue --ttl 30d
    """
    from rainbow.cli.values import seconds
    from rainbow.security import scopes, tokens

    names = _names(cluster)
    vhost = scopes.vhost_of(load_settings(config).broker.url.get_secret_value())
    made = tokens.issue(
        _ring(keyring, config),
        sub=sub or user_name(),
        role=role,
        clusters=names,
        ttl=seconds(ttl, "--ttl"),
        scope=scopes.for_token(role, names, vhost),
        body=body.read_bytes() if body else None,
        accounts=account or (),
    )
    path = files.in_force(config)
    if save:
        files.change(path, lambda _: {"token": made})
    if as_json:
        output.document({"token": made, "claims": _claims(made), "saved": str(path) if save else None})
    elif save:
        output.note(f"saved a token of role {role} in {path}")
    else:
        output.line(made)


@app.command("show")
def show(given: Given = None, as_json: Json = False, config: Config = None) -> None:
    """Show what a token says, without verifying it. Its signature is never shown.

    \b
    Example:
      rainbow token show @alice.token
    """
    text = _text(given, config)
    claims = _claims(text)
    if as_json:
        output.document({"kid": _kid(text), "claims": claims})
        return
    times = {
        name: f"{output.stamp(claims.get(key))}" if isinstance(claims.get(key), int | float) else None
        for name, key in (("issued", "iat"), ("expires", "exp"))
    }
    rest = {key: value for key, value in claims.items() if key not in ("iat", "exp")}
    for key in ("clusters", "account"):
        if isinstance(rest.get(key), list):
            rest[key] = " ".join(str(name) for name in rest[key])
    output.fields({**rest, **times, "key": _kid(text)})
    output.note("not verified: `rainbow token verify` does")


@app.command("verify")
def verify(given: Given = None, keyring: KeyRingFile = None, as_json: Json = False, config: Config = None) -> None:
    """Verify a token with the key ring: exit 3, and why, if it is not good.

    Revocations are known only to the scheduler: they are not looked at here.

    \b
    Example:
      rainbow token verify @alice.token
    """
    from rainbow.security import tokens

    who = tokens.verify(_ring(keyring, config), _text(given, config))
    left = who.expires_at - time.time()
    if as_json:
        claims = {"sub": who.sub, "role": who.role, "clusters": sorted(who.clusters), "jti": who.jti}
        output.document({"valid": True, **claims, "iat": who.issued_at, "exp": who.expires_at})
    else:
        output.line(
            f"good: {who.sub} may {who.role} on {' '.join(sorted(who.clusters))} "
            f"until {output.stamp(who.expires_at)} ({max(0.0, left) / 86400:.1f} days)"
        )


@app.command("revoke")
def revoke(
    given: Annotated[
        str | None,
        typer.Argument(metavar="[TOKEN|@FILE|-]", help="Revoke this token.", show_default=False, callback=secret_text),
    ] = None,
    jti: Annotated[str | None, typer.Option("--jti", help="Revoke the token with this jti.")] = None,
    sub: Annotated[str | None, typer.Option("--sub", help="Revoke all of its tokens issued until now.")] = None,
    as_json: Json = False,
    config: Config = None,
    token: Token = None,
    timeout: Limit = 30.0,
) -> None:
    """Revoke a token, or all of someone's issued until now: in force everywhere within seconds.

    \b
    Example:
      rainbow token revoke --sub alice
    """
    if sum(x is not None for x in (given, jti, sub)) != 1:
        raise typer.BadParameter("say what to revoke: a token, --jti or --sub, one of them")
    if given is not None:
        jti = _claims(_text(given, config)).get("jti")
        if not isinstance(jti, str):
            raise InvalidInput("the token has no jti: use --sub")
    with client(config, token, timeout) as rainbow:
        rainbow.revoke(jti=jti, sub=sub)
    if as_json:
        output.document({"revoked": {"jti": jti} if jti else {"sub": sub}})
    else:
        output.note(f"revoked {'token ' + jti if jti else f'all tokens of {sub} issued until now'}")


@app.command("rotate")
def rotate(
    keep: Annotated[int, typer.Option("--keep", min=0, help="How many old keys still verify.")] = 2,
    prepare: Annotated[
        bool,
        typer.Option("--prepare", help="Only make the new key known: it verifies, and signs after the next rotate."),
    ] = False,
    keyring: KeyRingFile = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Put a new signing key in front of the key ring. Tokens signed with the keys that are kept stay good.

    Whoever verifies must know a key before anybody signs with it. Where tokens open the broker (broker.oauth), or
    several schedulers have copies of the ring, rotate in two steps: --prepare, hand out the ring and RabbitMQ's
    configuration (`rainbow broker setup --oauth-config`, `rainbow broker reload-keys`), then rotate.

    \b
    Example:
      rainbow token rotate --prepare
      rainbow token rotate --keep 2
    """
    from rainbow.security.tokens import KeyRing

    path = _ring_path(keyring, config)
    old = KeyRing.load(path)
    if prepare:
        _prepared(old, path, as_json)
        return
    settings = load_settings(config)
    if settings.broker.oauth:
        _known_to_broker(old, settings)
    new = old.rotated(keep)
    new.save(path)
    kids = [kid for kid, _ in new.keys]
    dropped = [kid for kid, _ in old.keys if kid not in kids]
    if as_json:
        output.document({"keyring": str(path), "signing": kids[0], "verifying": kids, "dropped": dropped})
        return
    output.note(f"new tokens are signed with {kids[0]}; {len(kids) - 1} older key(s) still verify")
    if dropped:
        output.note(f"dropped {' '.join(dropped)}: tokens and registrations signed with it are void")


def _prepared(old: KeyRing, path: Path, as_json: bool) -> None:
    new = old.prepared()
    new.save(path)
    kids = [kid for kid, _ in new.keys]
    if as_json:
        output.document({"keyring": str(path), "signing": kids[0], "verifying": kids, "next": new.next, "dropped": []})
    else:
        output.note(f"{new.next} is known and signs after the next `rainbow token rotate`; {kids[0]} signs until then")


def _known_to_broker(ring: KeyRing, settings: Settings) -> None:
    """Raise unless the broker lets in who comes with a token of the prepared key: else all would be locked out."""
    from rainbow.cli.session import connection
    from rainbow.security import scopes, tokens

    if ring.next is None:
        raise InvalidInput(
            "tokens open the broker, which does not know the new key: run `rainbow token rotate --prepare`, then "
            "`rainbow broker setup --oauth-config`, have RabbitMQ read it, and rotate then"
        )
    vhost = scopes.vhost_of(settings.broker.url.get_secret_value())
    trial = tokens.issue(
        ring.rotated(0),
        sub="rotation",
        role="register",
        clusters=(),
        ttl=60,
        scope=scopes.for_token("register", (), vhost),
    )
    try:
        with connection(settings, "rainbow-rotate", trial):
            pass
    except BadCredentials:
        raise Denied(
            f"the broker does not know key {ring.next} yet: write its configuration with `rainbow broker setup "
            "--oauth-config`, have RabbitMQ read it (`rainbow broker reload-keys`), and rotate then"
        ) from None


def _ring_path(keyring: Path | None, config: Path | None) -> Path:
    return expand(keyring) if keyring is not None else load_settings(config).keyring


def _ring(keyring: Path | None, config: Path | None) -> KeyRing:
    from rainbow.security.tokens import KeyRing

    return KeyRing.load(_ring_path(keyring, config))


def _names(clusters: list[str] | None) -> list[str]:
    """Cluster names, @groups and *, each checked: a token with a misspelt name opens nothing."""
    from rainbow.topology import check_cluster_name

    for name in clusters or ():
        if name != "*":
            check_cluster_name(name.removeprefix("@"))
    return list(clusters or ["*"])


def _text(given: str | None, config: Path | None) -> str:
    if given == "-":
        return sys.stdin.read().strip()
    if given is not None:
        return given
    from rainbow.client.credentials import Credentials

    own = Credentials.from_settings(load_settings(config)).own
    if own is None:
        raise Denied("no token given, and none in the settings")
    return own


def _claims(text: str) -> dict[str, Any]:
    from rainbow.client.credentials import peek

    claims = peek(text)
    if not claims:
        raise Denied("this is not a token: ask for one with `rainbow token issue`")
    return claims


def _kid(text: str) -> str | None:
    import jwt

    try:
        kid = jwt.get_unverified_header(text).get("kid")
    except jwt.PyJWTError:
        return None
    return kid if isinstance(kid, str) else None
