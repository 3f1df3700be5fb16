"""Why a broker cannot be reached: one try at each socket, for an error that says what to do."""

from __future__ import annotations

import socket

from rainbow.errors import InvalidSettings
from rainbow.urls import addresses, split

_PORTS = {
    "https": 443,
    "http": 80,
    "amqp": 5672,
    "amqps": 5671,
    "redis": 6379,
    "rediss": 6379,
    "valkey": 6379,
    "sentinel": 26379,
}


def endpoints(url: str) -> list[tuple[str, int]]:
    """Hosts and ports of a broker or store URL; none where it has none that we know (``memory://``, ``unix://``)."""
    try:
        listed = [split(one, "broker") for one in addresses(url, "broker")]
    except InvalidSettings:
        return []
    ports = [(parts, parts.port or _PORTS.get(parts.scheme.rpartition("+")[2])) for parts in listed]
    return [(p.hostname or "127.0.0.1", port) for p, port in ports if port is not None and p.scheme != "memory"]


def why_not(url: str, timeout: float = 3.0) -> str | None:
    """What stands in the way of a TCP connection to any host of `url`, as one line; None when one can be made."""
    problems = [problem for path in _sockets(url) if (problem := _why_no_socket(path, timeout)) is not None]
    for where in endpoints(url):
        problem = _why_not(where, timeout)
        if problem is None:
            return None
        problems.append(problem)
    return "; ".join(problems) or None


def _sockets(url: str) -> list[str]:
    """The Unix socket of a URL, as the embedded instance has one."""
    try:
        parts = split(url, "broker")
    except InvalidSettings:
        return []
    return [parts.path] if parts.scheme.endswith(("+socket", "unix")) and parts.path else []


def _why_no_socket(path: str, timeout: float) -> str | None:
    with socket.socket(socket.AF_UNIX) as tried:
        tried.settimeout(timeout)
        try:
            tried.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return f"nothing listens at {path} (`rainbow up` starts the instance on this machine)"
        except OSError as exc:
            return f"{path}: {exc.strerror or exc}"
    return None


def _why_not(where: tuple[str, int], timeout: float) -> str | None:
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


__all__ = ["endpoints", "why_not"]
