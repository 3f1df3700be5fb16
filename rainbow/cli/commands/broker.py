"""The message broker's side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rainbow.cli.lazy import make_app
from rainbow.cli.options import Config, Json
from rainbow.cli.render import output
from rainbow.cli.session import connection, load_settings

if TYPE_CHECKING:
    from rainbow.brokers.base import Broker
    from rainbow.security.tokens import KeyRing
    from rainbow.topology import Topology

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
    oauth_form: Annotated[
        Literal["3.10", "4.x"],
        typer.Option("--oauth-form", help="For which RabbitMQ; for 4.x FILE.conf is written too."),
    ] = "3.10",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be declared.")] = False,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Declare exchanges and queues. Repeating is harmless; what exists otherwise than wanted is named, not changed.

    With --oauth-config, also write the configuration with which RabbitMQ takes our tokens as passwords. It holds the
    signing keys: it is written with mode 0600, for the broker's own account. After `rainbow token rotate`, write it
    anew, and have the broker read it: by a restart, or by what `rainbow broker reload-keys` prints.

    \b
    Example:
      rainbow broker setup --oauth-config advanced.config
    """
    from rainbow import topology
    from rainbow.brokers import redact
    from rainbow.settings import limits

    settings = load_settings(config)
    bounds = limits(settings)
    differs: str | None = None
    wanted = sum((topology.cluster(name, bounds) for name in cluster or ()), topology.core(bounds))
    if oauth_config is not None:
        from rainbow.security.tokens import KeyRing

        _write(oauth_config, KeyRing.load(settings.keyring), oauth_form)
    if not dry_run:
        with connection(settings, "rainbow-setup") as made:
            differs = _declared(made.broker, wanted)
    names = {"exchanges": [e.name for e in wanted.exchanges], "queues": [q.name for q in wanted.queues]}
    if as_json:
        written = str(oauth_config) if oauth_config else None
        output.document({**names, "declared": not dry_run, "oauth_config": written, "differs": differs})
        return
    if differs is not None:
        output.note(differs)
    verb = "would declare" if dry_run else "declared"
    where = redact(settings.broker.url.get_secret_value())
    output.note(f"{verb} {len(names['exchanges'])} exchanges and {len(names['queues'])} queues on {where}")
    if oauth_config is not None:
        output.note(
            f"wrote {oauth_config}: put it beside rabbitmq.conf, enable rabbitmq_auth_backend_oauth2, restart RabbitMQ"
        )
        if oauth_form == "4.x":
            output.note(f"wrote {_conf(oauth_config)}: add it to rabbitmq.conf, or put it into conf.d")


@app.command("migrate")
def migrate(
    cluster: Annotated[
        list[str] | None,
        typer.Option("--cluster", "-C", metavar="NAME", help="Only this cluster's queues and ours; may be repeated."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be changed.")] = False,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Change queues that exist to what the settings say, and keep their messages.

    Stop rainbow-scheduler before, and the agents of clusters whose queues are changed: their jobs go on. Messages to a
    queue are refused while it is changed. When this is interrupted, run it again: nothing is lost. The clusters are
    those in the store, or those that the registrar knows, or those given.

    \b
    Example:
      rainbow broker migrate --dry-run
    """
    from rainbow import topology
    from rainbow.brokers.rabbitmq.migration import Migration
    from rainbow.cli.known_clusters import known_clusters
    from rainbow.client.connection import connect_options
    from rainbow.client.credentials import Credentials
    from rainbow.settings import limits

    settings = load_settings(config)
    bounds = limits(settings)
    names = cluster or known_clusters(settings)
    if names is None:
        output.note("neither the store nor the registrar names the clusters: use --cluster for their queues")
    wanted = sum((topology.cluster(name, bounds) for name in names or ()), topology.core(bounds))
    options = connect_options(settings, Credentials.from_settings(settings), "rainbow-migrate")
    migration = Migration(options, (lambda _: None) if as_json else output.note)
    try:
        plan = migration.plan(list(wanted.queues))
        moved = {} if dry_run else migration.run(list(wanted.queues))
    finally:
        migration.close()
    if as_json:
        found = {name: [str(one) for one in differences] for name, differences in plan.items()}
        output.document({"differs": found, "moved": moved, "clusters": names})
        return
    for name, differences in plan.items():
        for one in differences:
            output.note(f"{'changed' if name in moved else 'would change'}: {one}")
        if not differences:
            output.note(f"{'finished' if name in moved else 'would finish'}: queue {name!r}")
    if not plan:
        output.note(f"all {len(wanted.queues)} queues are as the settings say")


@app.command("reload-keys")
def reload_keys(
    path: Annotated[str, typer.Argument(metavar="PATH", help="advanced.config, where the broker has it.")],
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Print what makes a running RabbitMQ read new signing keys from its advanced.config, for `rabbitmqctl eval`.

    No connection is lost, and no key is shown in the list of processes.

    \b
    Example:
      rainbow broker reload-keys /etc/rabbitmq/advanced.config
    """
    from rainbow.security.oauth import reload_command

    expression = reload_command(path)[1]
    if as_json:
        output.document({"eval": expression})
    else:
        output.line(expression)


def _declared(broker: Broker, wanted: Topology) -> str | None:
    """Declare; what differs from the settings and can be worked with."""
    from rainbow.errors import TopologyMismatch

    try:
        broker.declare(wanted)
    except TopologyMismatch as exc:
        if not exc.tolerable:
            raise
        return str(exc)
    return None


def _write(path: Path, ring: KeyRing, form: Literal["3.10", "4.x"]) -> None:
    from rainbow.cli.files import write_private
    from rainbow.security import oauth

    files = oauth.render(ring, form)
    write_private(path.absolute(), files[oauth.ADVANCED])
    if oauth.CONF in files:
        write_private(_conf(path).absolute(), files[oauth.CONF])


def _conf(path: Path) -> Path:
    return path.with_name(f"{path.name}.conf")
