"""Registering a cluster, and forgetting it."""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from rainbow import brokers, topology
from rainbow.brokers.base import Broker
from rainbow.errors import Conflict, Denied, InvalidInput, NotFound
from rainbow.models.cluster import ClusterRecord, Revocation
from rainbow.models.control import Delete, Register
from rainbow.resources import Summary, read_graph
from rainbow.resources.readers.received import received
from rainbow.security.enrollment import mark
from rainbow.security.tokens import LEEWAY, Principal
from rainbow_workers.clusters.cache import ClusterCache
from rainbow_workers.keys import ClusterKeys
from rainbow_workers.registry.operations import KEEP
from rainbow_workers.registry.operations.issuing import Issuer
from rainbow_workers.registry.operations.known import KnownClusters, give_back, has_queue
from rainbow_workers.registry.operations.names import looks_like_no_other
from rainbow_workers.registry.registrar import Address
from rainbow_workers.stores.base import Overtaken, Store

log = logging.getLogger(__name__)

#: How often a registration is tried whose cluster others change at the same moment.
_TRIES = 5


class RegisterOperations:
    def __init__(
        self,
        broker: Broker,
        store: Store,
        world: ClusterCache,
        issuer: Issuer,
        keys: ClusterKeys,
        limits: topology.Limits,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._broker = broker
        self._store = store
        self._world = world
        self._known = KnownClusters(store, world)
        self._issuer = issuer
        self._keys = keys
        self._limits = limits
        self._clock = clock

    def register(self, request: Register, caller: Principal, address: Address | None) -> dict[str, Any]:
        """Register or refresh. Every step may be repeated: a try that died half-way is finished by the next."""
        for left in reversed(range(_TRIES)):
            try:
                return self._register(request, caller)
            except Overtaken:
                # Also when the store lost its data just now: to the agent a conflict would say that it is a stranger.
                if not left:
                    raise
        raise AssertionError("unreachable")

    def _register(self, request: Register, caller: Principal) -> dict[str, Any]:
        self._known.check_covered(caller, request.cluster)
        known = self._known.find(request.cluster)
        if known is not None:
            _may_register_again(request, caller, known.record)
        else:
            looks_like_no_other(request.cluster, list(self._world.clusters))
        summary = _summary(request)
        now = self._clock()
        back_at = known.record.back_at if known else 0.0
        if known is None and caller.role == "agent":
            # Its record was lost with the store: the token proves that this cluster was registered.
            log.info("cluster comes back", extra={"action": "register", "cluster": request.cluster})
            back_at = now
        epoch = known.record.epoch if known else 0
        emptied_at = known.record.emptied_at if known else 0.0
        if known is not None and not known.record.barred_at and not has_queue(self._broker, request.cluster):
            log.warning(
                "its queue is gone, with what was in it", extra={"action": "emptied", "cluster": request.cluster}
            )
            emptied_at = now
            # Written down before there is a queue again: a try that dies half-way does not forget it.
            self._known.put(known.record.model_copy(update={"emptied_at": now}), known)
        registration = _registration(request.cluster, request.identity, epoch)
        secret = self._issuer.for_agent(request.cluster)
        record = ClusterRecord(
            name=request.cluster,
            registration=registration,
            identity=mark(request.identity),
            summary=summary.to_bytes(),
            digest=summary.digest,
            matcher=request.matcher,
            drained=None if known is None or known.record.barred_at else known.record.drained,
            registered_at=known.record.registered_at if known else now,
            updated_at=now,
            owner=known.record.owner if known else caller.sub,
            agent_jti=secret.jti,
            epoch=epoch,
            emptied_at=emptied_at,
            back_at=back_at,
        )
        brokers.declare(self._broker, topology.cluster(request.cluster, self._limits))
        self._known.put(record, known)
        log.info(
            "cluster registered",
            extra={"action": "register", "cluster": request.cluster, "resources": summary.describe()},
        )
        return {
            "cluster": request.cluster,
            "registration": registration,
            "created": known is None,
            "since": record.registered_at,
            "token": self._issuer.for_users(request.cluster).token,
            "secret": secret.token,
            "keys": {kid: key.hex() for kid, key in self._keys.of(request.cluster, registration).items()},
            "warnings": list(summary.warnings)[:20],
        }

    def delete(self, request: Delete, caller: Principal, address: Address | None) -> dict[str, Any]:
        """Forget a cluster. What waits in its queue is rejected first, and so placed elsewhere."""
        known = self._known.find(request.cluster)
        self._known.check_may_change(caller, request.cluster, known)
        self._store.clusters.delete(request.cluster)
        if known is not None:
            self._end_token(known.record)
        if known is None and not has_queue(self._broker, request.cluster):
            raise NotFound(f"no cluster {request.cluster} is registered")
        give_back(self._broker, request.cluster)
        self._broker.delete(list(topology.cluster_queues(request.cluster)))
        log.info("cluster deleted", extra={"action": "delete", "cluster": request.cluster, "by": caller.sub})
        return {"deleted": request.cluster}

    def _end_token(self, record: ClusterRecord) -> None:
        """What its agent was given opens nothing of a cluster of the same name later on."""
        if record.agent_jti:
            now = self._clock()
            self._store.clusters.revoke(
                Revocation(kind="jti", value=record.agent_jti, before=now, until=now + KEEP + LEEWAY)
            )


def _may_register_again(request: Register, caller: Principal, record: ClusterRecord) -> None:
    """Raise Conflict for a stranger, and Denied for what was at hand already when the agent was revoked: somebody must
    want it back."""
    if not hmac.compare_digest(record.identity, mark(request.identity)):
        raise Conflict(
            f"cluster {record.name} is registered by somebody else: choose another name, "
            "or have an admin delete it first"
        )
    if record.barred_at and caller.role != "admin" and caller.issued_at <= record.barred_at:
        raise Denied(f"the agent of cluster {record.name} was revoked: it needs a token that was issued since then")


def _registration(cluster: str, identity: str, epoch: int) -> str:
    """The name of a registration. It follows from cluster, identity and how often its agent was revoked, so that keys
    are the same again after the store was lost: what was signed before is still good."""
    text = b"rainbow/registration\0" + cluster.encode() + b"\0" + identity.encode()
    return sha256(text + (f"\0{epoch}".encode() if epoch else b"")).hexdigest()[:32]


def _summary(request: Register) -> Summary:
    if (request.graph is None) == (request.summary is None):
        raise InvalidInput("give either graph or summary")
    if request.summary is not None:
        if request.subsystems:
            raise InvalidInput("subsystems go with a graph: a summary holds its own")
        return received(request.summary)
    assert request.graph is not None
    return read_graph(request.graph, subsystems=request.subsystems)
