"""`rainbow web`: the console and the HTTP API."""

from __future__ import annotations

from typing import Annotated

import typer

from rainbow.cli.options import Config
from rainbow.cli.render import output


def web(
    listen: Annotated[
        str | None, typer.Option("--listen", metavar="HOST:PORT", help="Address to serve on (else web.listen).")
    ] = None,
    config: Config = None,
) -> None:
    """Serve the web console and the HTTP API; Ctrl-C ends it.

    Callers sign in with their own token, and see what that token may see. Serve it on other addresses than loopback
    behind a proxy with TLS, or with web.cert and web.key.

    \b
    Example:
      rainbow web --listen 127.0.0.1:8080
    """
    from rainbow import logs, settings, tracing
    from rainbow.errors import InvalidSettings

    tracing.start("rainbow-web")
    given = settings.load(config)
    logs.setup(given.log_level, given.log_format, settings.secrets(given))
    try:
        from rainbow.web.server import serve
    except ImportError as exc:
        raise InvalidSettings(f"rainbow web needs {exc.name}: pip install 'rainbow-hpc[web]'") from None
    serve(given, listen or given.web.listen, lambda url: output.note(f"rainbow web is up: {url}"))
