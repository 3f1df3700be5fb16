"""The settings file: make one, show what is in force."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rainbow.cli import files
from rainbow.cli.lazy import make_app
from rainbow.cli.options import Config, Json
from rainbow.cli.render import output
from rainbow.cli.session import load_settings
from rainbow.errors import Conflict
from rainbow.paths import config_home, expand, make_folder

app = make_app()

_TEMPLATE = """\
# Settings of rainbow. Each is also an environment variable: broker.url is RAINBOW_BROKER_URL, and so on.
# Whoever submits, or runs an agent, needs only `broker` and a token.

{broker}
# The scheduler's side alone: where clusters and job records are kept ...
{store}
# ... and the keys that sign tokens (readable by their owner only).
{keyring}
# Your own token (`rainbow token issue --save` writes it here).
# token: ...

# Tokens for clusters you may submit to, and the cluster this machine serves (`rainbow register --save`).
# clusters:
# - name: blue
#   token: ...
# cluster:
#   name: blue
#   secret: ...
"""


@app.callback()
def config() -> None:
    """Make a settings file, or show the settings in force.

    \b
    Example:
      rainbow config init
    """


@app.command("init")
def init(
    broker: Annotated[str | None, typer.Option("--broker", metavar="URL", help="Where the message broker is.")] = None,
    store: Annotated[str | None, typer.Option("--store", metavar="URL", help="Where the store (Redis) is.")] = None,
    keyring: Annotated[
        Path | None, typer.Option("--keyring", metavar="FILE", help="Key ring; made (0600) if there is none.")
    ] = None,
    user: Annotated[bool, typer.Option("--user", help="Into ~/.config/rainbow, for all folders.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a settings file (never a key ring).")] = False,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """Write rainbow-config.yaml here (or where --config says), and make a key ring if there is none.

    \b
    Example:
      rainbow config init --broker amqp://rainbow:secret@mq.example.org/rainbow
    """
    import yaml

    from rainbow.security.tokens import KeyRing
    from rainbow.settings import FILE_NAME, Settings

    defaults = Settings()
    home = config_home() / "rainbow"
    path = config or (home / FILE_NAME if user else Path(FILE_NAME))
    path = expand(path).absolute()
    if path.exists() and not force:
        raise Conflict(f"{path} exists already: change it there, or use --force to replace it")
    ring = expand(keyring or defaults.keyring).absolute()
    made = not ring.exists()
    (KeyRing.generate().save if made else KeyRing.load)(ring)

    def section(value: dict[str, Any]) -> str:
        return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)

    text = _TEMPLATE.format(
        broker=section({"broker": {"url": broker or defaults.broker.url.get_secret_value()}}),
        store=section({"store": {"url": store or defaults.store.url.get_secret_value()}}),
        keyring=section({"keyring": str(ring)}),
    )
    make_folder(path.parent)
    files.write_private(path, text)
    if as_json:
        output.document({"config": str(path), "keyring": str(ring), "keyring_made": made})
        return
    output.note(f"wrote {path}")
    output.note(f"{'made' if made else 'kept'} the key ring {ring}")
    output.note("next: `rainbow broker setup`, start rainbow-scheduler, `rainbow token issue --role admin --save`")


@app.command("show")
def show(as_json: Json = False, config: Config = None) -> None:
    """Show the settings in force, from file, environment and defaults. Secrets are hidden.

    \b
    Example:
      rainbow config show
    """
    import yaml

    from rainbow.brokers import redact
    from rainbow.settings import find

    settings = load_settings(config)
    shown = settings.model_dump(mode="json", exclude_none=True)
    for name, url in (("broker", settings.broker.url), ("store", settings.store.url)):
        shown[name]["url"] = redact(url.get_secret_value())
    path = find(config)
    if as_json:
        output.document({"file": str(path) if path else None, "settings": shown})
        return
    output.note(f"from {path}" if path else "there is no settings file: defaults and environment")
    output.line(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True).rstrip())
