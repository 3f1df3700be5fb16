"""Signing keys of clusters, derived once each and remembered; and the key ring they come from, which may rotate."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path

from rainbow.errors import InvalidSettings
from rainbow.security import signing
from rainbow.security.tokens import KeyRing

log = logging.getLogger(__name__)


class ClusterKeys:
    """Keys by (cluster, registration). Only the newest `size` are remembered; others are derived again.

    `ring` gives the key ring in force: with another one, everything is derived anew. Used by several threads.
    """

    def __init__(self, ring: KeyRing | Callable[[], KeyRing], size: int = 20_000) -> None:
        self._ring = ring if callable(ring) else lambda: ring
        self._size = size
        self._from: _Derived | None = None

    @property
    def own(self) -> Mapping[str, bytes]:
        """What workers sign their own events with."""
        return self._derived().own

    @property
    def origin(self) -> Mapping[str, bytes]:
        """What proves that a dispatch which came back left from here: a cluster has the key of its own signature."""
        return self._derived().origin

    @property
    def letters(self) -> Mapping[str, bytes]:
        """What workers sign dead letters with."""
        return self._derived().letters

    @property
    def grant(self) -> Mapping[str, bytes]:
        """Signs grants (see `rainbow_workers.grants`)."""
        return self._derived().grant

    def of(self, cluster: str, registration: str) -> Mapping[str, bytes]:
        """The keys of a cluster's registration, by kid, the signing one first."""
        derived = self._derived()
        key = (cluster, registration)
        found = derived.known.get(key)
        if found is None:
            found = derived.known[key] = signing.cluster_keys(derived.ring, cluster, registration)
            if len(derived.known) > self._size:
                derived.known.popitem(last=False)
        return found

    def _derived(self) -> _Derived:
        ring = self._ring()
        if self._from is None or self._from.ring is not ring:
            self._from = _Derived(ring)
        return self._from


class _Derived:
    """What was derived from one key ring."""

    def __init__(self, ring: KeyRing) -> None:
        self.ring = ring
        self.own: Mapping[str, bytes] = {kid: signing.derive(key, "worker") for kid, key in ring.keys}
        self.origin: Mapping[str, bytes] = {kid: signing.derive(key, "origin") for kid, key in ring.keys}
        self.letters: Mapping[str, bytes] = signing.letter_keys(ring)
        self.grant: Mapping[str, bytes] = {kid: signing.derive(key, "grant") for kid, key in ring.keys}
        self.known: OrderedDict[tuple[str, str], Mapping[str, bytes]] = OrderedDict()


class RingFile:
    """The key ring in a file: `use` is called with it when the file was replaced (`rainbow token rotate`).

    One that cannot be read is reported once, and the ring in force stays: a slip of the hand stops nothing.
    """

    def __init__(
        self,
        path: Path,
        use: Callable[[KeyRing], None],
        refused: Callable[[InvalidSettings], None] = lambda _: None,
    ) -> None:
        self._path = path
        self._use = use
        self._refused = refused
        self._stamp = self._now()

    def look(self) -> None:
        """Read the file again if it is another one than before. Cheap: meant to be called every second."""
        stamp = self._now()
        if stamp is None or stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            ring = KeyRing.load(self._path)
        except InvalidSettings as exc:
            log.error("the key ring stays as it was", extra={"action": "rotate", "detail": exc.message})  # noqa: TRY400
            self._refused(exc)
            return
        self._use(ring)
        log.info("key ring read anew", extra={"action": "rotate", "kids": ",".join(kid for kid, _ in ring.keys)})

    def _now(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size
