"""Serve the application with uvicorn until told to stop."""

from __future__ import annotations

import asyncio
import os
import socket
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
    # Before the broker is looked for.
    with _listening(host, port) as listening:
        shown = f"[{host}]" if ":" in host else host
        url = f"http{'s' if cert else ''}://{shown}:{listening.getsockname()[1]}"
        config = uvicorn.Config(
            make_app(settings),
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            date_header=True,
            timeout_graceful_shutdown=2,
            limit_concurrency=4000,
            h11_max_incomplete_event_size=65_536,
            ssl_certfile=None if cert is None else str(cert),
            ssl_keyfile=key,
        )
        asyncio.run(_run(uvicorn.Server(config), listening, lambda: ready(url)))


def _listening(host: str, port: int) -> socket.socket:
    """A socket of ours: uvicorn would end the whole process where it cannot have one."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as exc:
        why = os.strerror(exc.errno) if exc.errno and exc.errno > 0 else exc.strerror
        raise InvalidSettings(f"cannot listen on {host}:{port}: {why}") from None


async def _run(server: uvicorn.Server, listening: socket.socket, ready: Callable[[], None]) -> None:
    task = asyncio.create_task(server.serve(sockets=[listening]))
    while not server.started and not task.done():
        await asyncio.sleep(0.02)
    if server.started:
        ready()
    await task
