"""A web program in a thread of the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import uvicorn

from rainbow.settings import Settings
from rainbow.web.app import make_app
from rig import eventually


def serve(settings: Settings, port: int = 0) -> Iterator[str]:
    """The URL of a web program in a thread of this process."""
    config = uvicorn.Config(
        make_app(settings), host="127.0.0.1", port=port, log_config=None, timeout_graceful_shutdown=1, lifespan="on"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    eventually(lambda: server.started)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(30)
    assert not thread.is_alive()
