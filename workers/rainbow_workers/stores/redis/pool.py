"""The connection pool for a store URL: of one server, or of the primary that Sentinels name.

``redis+sentinel://USER:PASSWORD@HOST:PORT,HOST:PORT/SERVICE/DB`` names the Sentinels (port 26379 unless given), the
service they watch, and the login at its servers; the options `sentinel_username` and `sentinel_password` are the login
at the Sentinels themselves. With ``rediss+sentinel://`` all of them are reached through TLS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import redis
from redis.backoff import NoBackoff
from redis.connection import ConnectionPool, SSLConnection, parse_url
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool, SentinelManagedConnection, SentinelManagedSSLConnection

from rainbow.brokers import redact
from rainbow.errors import InvalidSettings
from rainbow.urls import addresses, split
from rainbow_workers.stores import StoreOptions

_parse: Callable[[str], dict[str, Any]] = parse_url
# redis-py does not type these two.
_Pool: Any = SentinelConnectionPool
_Sentinel: Any = Sentinel

SENTINEL_PORT = 26379
#: Seconds for one Sentinel to answer: when one is down, the next is asked while the call still has time.
SENTINEL_TIMEOUT = 1.0


def make_pool(options: StoreOptions, greet: Callable[[Any], None], wait: float) -> ConnectionPool:
    """The pool for ``options.url``, whose connections call `greet` once they are made. `wait`: seconds for one step.

    Raises InvalidSettings.
    """
    where = place(options.url)
    if split(addresses(options.url, "store")[0], "store").scheme.endswith("+sentinel"):
        pool: ConnectionPool = _sentinel_pool(options, greet, wait)
    else:
        pool = ConnectionPool(**_settings(options.url, options, wait), redis_connect_func=greet)
    try:
        pool.connection_class(**pool.connection_kwargs)
    except TypeError:
        raise InvalidSettings(f"store URL {where!r} has an option after ? that redis-py does not know") from None
    return pool


def place(url: str) -> str:
    """The URL for logs and errors."""
    return redact(url).partition("?")[0]


def close_pool(pool: ConnectionPool) -> None:
    """Disconnect the pool, and those of its sentinels."""
    pool.disconnect()
    if isinstance(pool, SentinelConnectionPool):
        for sentinel in pool.proxy.sentinel_manager.sentinels:
            sentinel.close()


def _sentinel_pool(options: StoreOptions, greet: Callable[[Any], None], wait: float) -> ConnectionPool:
    listed = [split(url, "store") for url in addresses(options.url, "store")]
    first = listed[0]
    service, _, db = first.path.strip("/").partition("/")
    if not service or not all(parts.hostname for parts in listed) or not (db or "0").isdigit():
        raise InvalidSettings(
            f"store URL {place(options.url)!r} cannot be read: use redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DB"
        )
    login = f"{first.netloc.rpartition('@')[0]}@" if "@" in first.netloc else ""
    query = f"?{first.query}" if first.query else ""
    scheme = first.scheme.removesuffix("+sentinel")
    settings = _settings(f"{scheme}://{login}server/{db or '0'}{query}", options, wait)
    tls = settings.pop("connection_class", None) is SSLConnection
    for name in ("host", "port"):
        settings.pop(name, None)
    own = {
        "username": settings.pop("sentinel_username", None),
        "password": settings.pop("sentinel_password", None),
        "ssl": tls,
        **{key: value for key, value in settings.items() if key.startswith(("socket_", "ssl_"))},
        "retry": settings["retry"],
        "protocol": 2,
        "socket_timeout": min(wait, SENTINEL_TIMEOUT),
        "socket_connect_timeout": min(wait, SENTINEL_TIMEOUT),
    }
    hosts = [(parts.hostname, parts.port or SENTINEL_PORT) for parts in listed]
    pool: ConnectionPool = _Pool(
        unquote(service),
        _Sentinel(hosts, sentinel_kwargs=own),
        connection_class=SentinelManagedSSLConnection if tls else SentinelManagedConnection,
        redis_connect_func=greet,
        **settings,
    )
    return pool


def _settings(url: str, options: StoreOptions, wait: float) -> dict[str, Any]:
    """Arguments of the connection pool. What the URL says cannot weaken how a server is checked."""
    where = place(options.url)
    try:
        settings = _parse(url)
    except ValueError as exc:
        # The text of a parse error may quote what it could not parse, a password among it.
        raise InvalidSettings(f"store URL {where!r} cannot be read: use redis://USER:PASSWORD@HOST:PORT/DB") from exc
    settings.update(
        socket_timeout=wait,
        socket_connect_timeout=wait,
        retry=Retry(NoBackoff(), 0),
        decode_responses=False,
        protocol=2,
        health_check_interval=0,
    )
    if settings.get("connection_class") is not redis.UnixDomainSocketConnection:
        settings["socket_keepalive"] = True
    tls = options.tls
    if settings.get("connection_class") is SSLConnection:
        settings.update(ssl_cert_reqs="required", ssl_check_hostname=True)
        if tls is not None:
            given = {"ssl_ca_certs": tls.ca, "ssl_certfile": tls.cert, "ssl_keyfile": tls.key}
            settings.update({key: value for key, value in given.items() if value is not None})
    elif tls is not None and (tls.ca or tls.cert or tls.key):
        raise InvalidSettings(f"TLS files are given, but {where!r} is not encrypted: use rediss://")
    return settings
