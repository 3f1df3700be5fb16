"""Operations on access: revoking tokens, and whether anybody is there."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from rainbow.errors import InvalidInput
from rainbow.models.cluster import Revocation
from rainbow.models.control import Ping, Revoke
from rainbow.tokens import LEEWAY, Principal
from rainbow_workers.operations import need_role
from rainbow_workers.registrar import Address
from rainbow_workers.stores.base import Store

log = logging.getLogger(__name__)

#: How long a revocation is kept, in seconds: longer than any token lives.
KEEP = 2 * 366 * 86400.0


class AccessOperations:
    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock

    def ping(self, request: Ping, caller: Principal, address: Address | None) -> dict[str, Any]:
        return {"version": version("rainbow-hpc"), "time": self._clock()}

    def revoke(self, request: Revoke, caller: Principal, address: Address | None) -> dict[str, Any]:
        need_role(caller)
        if (request.jti is None) == (request.sub is None):
            raise InvalidInput("name either a token (jti) or a subject (sub)")
        now = self._clock()
        kind, value = ("jti", request.jti) if request.jti is not None else ("sub", request.sub)
        # A token of this second is revoked too, whatever its clock: iat has whole seconds, and leeway is allowed.
        revocation = Revocation(kind=kind, value=value, before=now + 1, until=now + KEEP + LEEWAY)
        self._store.clusters.revoke(revocation)
        log.info("revoked", extra={"action": "revoke", "kind": kind, "value": value, "by": caller.sub})
        return {"revoked": {kind: value}}
