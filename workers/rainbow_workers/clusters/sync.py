"""Keeping a world current: changes come with every batch; while nothing is assigned they are asked for."""

from __future__ import annotations

import time
from collections.abc import Callable

from rainbow.security.tokens import Verifier
from rainbow_workers.clusters.cache import ClusterCache
from rainbow_workers.stores.base import Store


class CacheSync:
    """Brings `world` and the verifier's revocations up to date, at most every `every` seconds; `also` is called then,
    for what else may have changed (the key ring), and `again` when another epoch of the store's data has begun."""

    def __init__(
        self,
        world: ClusterCache,
        store: Store,
        verifier: Verifier,
        *,
        every: float = 1.0,
        also: Callable[[], None] = lambda: None,
        again: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._world = world
        self._store = store
        self._verifier = verifier
        self._every = every
        self._also = also
        self._again = again
        self._epoch = 0
        self._clock = clock
        self._next = 0.0

    def follow(self) -> None:
        """Raises StoreUnavailable: then nothing may be decided, since who was revoked is not known."""
        now = self._clock()
        if self._world.version == 0 or now >= self._next:
            self.refresh()
            with self._world.lock:
                self._world.look_around(now)
            self._also()
            epoch = self._world.epoch
            if epoch != self._epoch:
                if self._epoch:
                    self._again()
                self._epoch = epoch
            self._next = now + self._every
        self._verifier.revocations = self._world.revocations

    def is_current(self, cluster: str, registration: str) -> bool:
        """Does `cluster` stand registered so? A cluster that is not known (the store was lost, or it was deleted)
        gets the benefit of the doubt: its signature was good, and attempts fence what it says."""
        for look_again in (True, False):
            known = self._world.clusters.get(cluster)
            if known is not None and known.record.registration == registration:
                return True
            if look_again:
                self.refresh()
        return known is None

    def refresh(self) -> None:
        """Read all changes now. The store is asked without the lock: other threads go on deciding meanwhile."""
        changes = self._store.clusters.changes(self._world.version)
        with self._world.lock:
            self._world.apply(changes)
