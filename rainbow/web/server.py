"""Serve the application with uvicorn until told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import uvicorn

from rainbow.errors import InvalidSettings
from rainbow.settings import Settings
from rainbow.web.app import make_app


def address(text: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``. Raises InvalidSettings."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65_535:
        raise InvalidSettings("web.listen is HOST:PORT, such as 127.0.0.1:8080")
    return host.strip("[]") or "127.0.0.1", int(port)


def serve(settings: Settings, listen: str, ready: Callable[[str], None]) -> None:
    """Answer requests on `listen`; `ready` is called with the URL once it does.

    TLS is used where `web.cert` and `web.key` are set. SIGTERM and SIGINT end it: open answers have two seconds.
    """
    host, port = address(listen)
    cert, key = settings.web.cert, settings.web.key
    if (cert is None) != (key is None):
        raise InvalidSettings("web.cert and web.key go together: set both or neither")
    config = uvicorn.Config(
        make_app(settings),
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        timeout_graceful_shutdown=2,
        limit_concurrency=4000,
        h11_max_incomplete_event_size=65_536,
        ssl_certfile=None if cert is None else str(cert),
        ssl_keyfile=key,
    )
    server = uvicorn.Server(config)
    asyncio.run(_run(server, host, cert is not None, ready))
    if not server.started:
        raise InvalidSettings(f"cannot listen on {listen}: is the port in use?")


async def _run(server: uvicorn.Server, host: str, tls: bool, ready: Callable[[str], None]) -> None:
    task = asyncio.create_task(server.serve())
    while not server.started and not task.done():
        await asyncio.sleep(0.02)
    if server.started:
        port = server.servers[0].sockets[0].getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        ready(f"http{'s' if tls else ''}://{shown}:{port}")
    try:
        await task
    except SystemExit:  # uvicorn's answer to a port that is in use
        return
