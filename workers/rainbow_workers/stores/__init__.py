"""Store plugins (entry points `rainbow.stores`), chosen by URL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from rainbow import plugins
from rainbow.brokers import Tls
from rainbow.errors import InvalidSettings
from rainbow.urls import redact, split
from rainbow_workers.stores.base import Store

_SCHEMES = {"redis": "redis", "rediss": "redis", "unix": "redis", "memory": "memory"}


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """What a store plugin is made with. `keep` is how long records of ended jobs stay, in seconds."""

    url: str
    prefix: str = "rainbow:"
    tls: Tls | None = None
    timeout: float = 5.0
    keep: float = 7 * 86400.0
    max_history: int = 64
    alive_after: float = 35.0


def open_store(options: StoreOptions) -> Store:
    """A store for ``options.url``: ``redis(s)://``, ``unix://``, ``memory://NAME`` (inside this process), or
    ``PLUGIN+SCHEME://`` for others. Raises InvalidSettings, UnknownPlugin."""
    scheme = split(options.url, "store").scheme
    name = _SCHEMES.get(scheme) or scheme.partition("+")[0]
    if not name:
        raise InvalidSettings(f"store URL {redact(options.url)!r} has no scheme: use redis://HOST/0")
    return cast(Store, plugins.load("rainbow.stores", name)(options))
