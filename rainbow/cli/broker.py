"""The message broker's side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rainbow.cli import output
from rainbow.cli.lazy import make_app
from rainbow.cli.options import Config, Json
from rainbow.cli.session import connection, load_settings

if TYPE_CHECKING:
    from rainbow.tokens import KeyRing

app = make_app()


@app.callback()
def broker() -> None:
    """Set up the message broker.

    \b
    Example:
      rainbow broker setup
    """


@app.command("setup")
def setup(
    cluster: Annotated[
        list[str] | None,
        typer.Option("--cluster", "-C", metavar="NAME", help="Also this cluster's queues; may be repeated."),
    ] = None,
    oauth_config: Annotated[
        Path | None,
        typer.Option("--oauth-config", metavar="FILE", help="Write RabbitMQ's advanced.config for our tokens."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be declared.")] = False,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Declare exchanges and queues. Repeating is harmless; what exists otherwise than wanted is named, not changed.

    With --oauth-config, also write the configuration with which RabbitMQ takes our tokens as passwords. It holds the
    signing keys: it is written with mode 0600, for the broker's own account.

    \b
    Example:
      rainbow broker setup --oauth-config advanced.config
    """
    from rainbow import topology
    from rainbow.brokers import redact
    from rainbow.settings import limits

    settings = load_settings(config)
    bounds = limits(settings)
    wanted = sum((topology.cluster(name, bounds) for name in cluster or ()), topology.core(bounds))
    if oauth_config is not None:
        from rainbow.cli.files import write_private
        from rainbow.tokens import KeyRing

        write_private(oauth_config.absolute(), oauth(KeyRing.load(settings.keyring)))
    if not dry_run:
        with connection(settings, "rainbow-setup") as made:
            made.broker.declare(wanted)
    names = {"exchanges": [e.name for e in wanted.exchanges], "queues": [q.name for q in wanted.queues]}
    if as_json:
        output.document({**names, "declared": not dry_run, "oauth_config": str(oauth_config) if oauth_config else None})
        return
    verb = "would declare" if dry_run else "declared"
    where = redact(settings.broker.url.get_secret_value())
    output.note(f"{verb} {len(names['exchanges'])} exchanges and {len(names['queues'])} queues on {where}")
    if oauth_config is not None:
        output.note(
            f"wrote {oauth_config}: put it beside rabbitmq.conf, enable rabbitmq_auth_backend_oauth2, restart RabbitMQ"
        )


def oauth(ring: KeyRing) -> str:
    """RabbitMQ's advanced.config (Erlang terms) for its OAuth 2 plugin to verify our tokens: HS256 with each key of
    the ring, resource server `rainbow`; users of its own database stay (rabbitmq.com/docs/oauth2)."""
    import base64

    keys = ",\n".join(
        f'        <<"{kid}">> => {{map, #{{<<"kty">> => <<"oct">>, <<"alg">> => <<"HS256">>, '
        f'<<"k">> => <<"{base64.urlsafe_b64encode(key).rstrip(b"=").decode()}">>}}}}'
        for kid, key in ring.keys
    )
    return f"""\
%% Written by `rainbow broker setup --oauth-config`. It holds signing keys: for the broker's account only.
[
  {{rabbit, [
    {{auth_backends, [rabbit_auth_backend_internal, rabbit_auth_backend_oauth2]}}
  ]}},
  {{rabbitmq_auth_backend_oauth2, [
    {{resource_server_id, <<"rainbow">>}},
    {{key_config, [
      {{signing_keys, #{{
{keys}
      }}}}
    ]}}
  ]}}
].
"""
