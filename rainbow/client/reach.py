"""Why a broker cannot be reached: one try at the socket, for an error that says what to do."""

from __future__ import annotations

import socket

from rainbow.errors import InvalidSettings
from rainbow.urls import split

_PORTS = {"amqp": 5672, "amqps": 5671, "redis": 6379, "rediss": 6379, "valkey": 6379}


def endpoint(url: str) -> tuple[str, int] | None:
    """Host and port of a broker or store URL; None when it has none that we know (``memory://``, ``unix://``)."""
    try:
        parts = split(url, "broker")
    except InvalidSettings:
        return None
    scheme = parts.scheme.rpartition("+")[2]
    port = parts.port or _PORTS.get(scheme)
    if port is None or scheme == "memory":
        return None
    return parts.hostname or "127.0.0.1", port


def why_not(url: str, timeout: float = 3.0) -> str | None:
    """What stands in the way of a TCP connection to `url`, as one line; None when one can be made."""
    where = endpoint(url)
    if where is None:
        return None
    host, port = where
    try:
        with socket.create_connection(where, timeout):
            return None
    except ConnectionRefusedError:
        return f"nothing listens at {host}:{port}"
    except socket.gaierror:
        return f"host {host!r} is not known"
    except TimeoutError:
        return f"{host}:{port} does not answer within {timeout:g} s"
    except OSError as exc:
        return f"{host}:{port}: {exc.strerror or exc}"


__all__ = ["endpoint", "why_not"]
