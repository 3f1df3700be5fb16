"""Store plugins (entry points `rainbow.stores`), chosen by URL."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from rainbow import plugins
from rainbow.brokers import Tls
from rainbow.errors import InvalidSettings
from rainbow.paths import check_socket
from rainbow.urls import addresses, redact, split, usual
from rainbow_workers.stores.base import Store

_SCHEMES = {"redis": "redis", "rediss": "redis", "rediss+sentinel": "redis", "unix": "redis", "memory": "memory"}


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """What a store plugin is made with.

    `keep` is how long records of ended jobs stay, in seconds, and `jobspec_bytes` how large a jobspec may be,
    compressed, to be kept with its job (0: none is).
    """

    url: str
    prefix: str = "rainbow:"
    tls: Tls | None = None
    timeout: float = 5.0
    keep: float = 7 * 86400.0
    max_history: int = 64
    alive_after: float = 35.0
    jobspec_bytes: int = 16_384


def open_store(options: StoreOptions) -> Store:
    """Connect to the store at ``options.url``.

    Schemes: ``redis(s)://``, ``valkey(s)://``, each also as ``redis(s)+sentinel://``, ``unix://``, ``memory://NAME``
    (inside this process), ``PLUGIN+SCHEME://`` for others.

    Raises:
        InvalidSettings: The URL has no scheme.
        UnknownPlugin: No plugin serves the scheme.
    """
    options = replace(options, url=usual(options.url))
    check_socket(options.url)
    scheme = split(addresses(options.url, "store")[0], "store").scheme
    name = _SCHEMES.get(scheme) or scheme.partition("+")[0]
    if name == "sentinel":
        raise InvalidSettings("store URL sentinel://...: use redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DB")
    if not name:
        raise InvalidSettings(f"store URL {redact(options.url)!r} has no scheme: use redis://HOST/0")
    return cast(Store, plugins.load("rainbow.stores", name)(options))
