"""Signing keys of clusters, derived once each and remembered."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from rainbow import signing
from rainbow.tokens import KeyRing


class ClusterKeys:
    """Keys by (cluster, registration). Only the newest `size` are remembered; others are derived again."""

    def __init__(self, ring: KeyRing, size: int = 20_000) -> None:
        self._ring = ring
        self._size = size
        self._known: OrderedDict[tuple[str, str], Mapping[str, bytes]] = OrderedDict()
        #: What workers sign their own events with.
        self.own: Mapping[str, bytes] = {kid: signing.derive(key, "worker") for kid, key in ring.keys}

    def of(self, cluster: str, registration: str) -> Mapping[str, bytes]:
        key = (cluster, registration)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = signing.cluster_keys(self._ring, cluster, registration)
            if len(self._known) > self._size:
                self._known.popitem(last=False)
        return found
