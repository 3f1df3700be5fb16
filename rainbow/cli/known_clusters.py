"""The names of the registered clusters: from the store where its URL is set, else from the registrar."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rainbow.errors import RainbowError

if TYPE_CHECKING:
    from rainbow.settings import Settings

#: Seconds for the store or the registrar to answer.
LIMIT = 5.0


def known_clusters(settings: Settings, *, ask: bool = True) -> list[str] | None:
    """Their names; None where neither the store nor (with `ask`) the registrar answers."""
    try:
        if "store" in settings.model_fields_set:
            store = open_store(settings)
            try:
                return sorted(store.clusters.changes(0).clusters)
            finally:
                store.close()
        if not ask:
            return None
        from rainbow.client import Client

        with Client(settings=settings, timeout=LIMIT, name="rainbow-queues") as client:
            return sorted(cluster.name for cluster in client.clusters())
    except (RainbowError, ImportError):
        return None


def open_store(settings: Settings) -> Any:
    # By name, since the client's side must work (and import) without the scheduler's.
    stores = import_module("rainbow_workers.stores")
    from rainbow.brokers import Tls

    tls = settings.store.tls
    return stores.open_store(
        stores.StoreOptions(
            url=settings.store.url.get_secret_value(),
            prefix=settings.store.prefix,
            tls=Tls(*(str(p) if p else None for p in (tls.ca, tls.cert, tls.key))),
            timeout=min(settings.store.timeout, LIMIT),
        )
    )
