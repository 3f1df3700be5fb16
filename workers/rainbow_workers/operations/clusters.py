"""Operations on clusters: register, delete, subsystems, state, drain, groups."""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from rainbow import topology
from rainbow.brokers.base import Broker
from rainbow.errors import Conflict, Denied, InvalidInput, NotFound
from rainbow.models.cluster import ClusterRecord
from rainbow.models.control import (
    Delete,
    Drain,
    ListClusters,
    ListGroups,
    Register,
    RemoveSubsystem,
    Report,
    Resume,
    SetGroup,
    SetSubsystem,
)
from rainbow.resources import Summary, read_graph
from rainbow.tokens import Principal, Verifier, issue
from rainbow_workers.keys import ClusterKeys
from rainbow_workers.operations import need_role
from rainbow_workers.registrar import Address
from rainbow_workers.stores.base import Store
from rainbow_workers.world import Cluster, World

log = logging.getLogger(__name__)

#: Times to live, in seconds, of the tokens that registering gives out.
AGENT_TTL = 30 * 86400.0
SUBMIT_TTL = 365 * 86400.0
#: How long to wait for one more dispatch in the queue of a cluster that is being deleted.
_EMPTY_AFTER = 1.0


class ClusterOperations:
    def __init__(
        self,
        broker: Broker,
        store: Store,
        world: World,
        verifier: Verifier,
        keys: ClusterKeys,
        limits: topology.Limits,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._broker = broker
        self._store = store
        self._world = world
        self._verifier = verifier
        self._keys = keys
        self._limits = limits
        self._clock = clock

    # -- registering ----------------------------------------------------------------------------------------

    def register(self, request: Register, caller: Principal, address: Address | None) -> dict[str, Any]:
        """Register or refresh. Every step may be repeated: a try that died half-way is finished by the next."""
        need_role(caller, "register", "agent")
        self._covers(caller, request.cluster)
        known = self._find(request.cluster)
        if known is not None and not hmac.compare_digest(known.record.identity, _mark(request.identity)):
            raise Conflict(
                f"cluster {request.cluster} is registered by somebody else: choose another name, "
                f"or have an admin delete it first"
            )
        if known is None and caller.role == "agent":
            # Its record was lost with the store: the token proves that this cluster was registered.
            log.info("cluster comes back", extra={"action": "register", "cluster": request.cluster})
        summary = _summary(request)
        now = self._clock()
        registration = _registration(request.cluster, request.identity)
        record = ClusterRecord(
            name=request.cluster,
            registration=registration,
            identity=_mark(request.identity),
            summary=summary.to_bytes(),
            digest=summary.digest,
            matcher=request.matcher,
            drained=known.record.drained if known else None,
            registered_at=known.record.registered_at if known else now,
            updated_at=now,
            owner=caller.sub,
        )
        self._broker.declare(topology.cluster(request.cluster, self._limits))
        self._put(record, known)
        log.info(
            "cluster registered",
            extra={"action": "register", "cluster": request.cluster, "resources": summary.describe()},
        )
        ring = self._verifier.ring
        return {
            "cluster": request.cluster,
            "registration": registration,
            "created": known is None,
            "token": issue(
                ring, sub=f"user-of-{request.cluster}", role="submit", clusters=[request.cluster], ttl=SUBMIT_TTL
            ),
            "secret": issue(
                ring, sub=f"agent-{request.cluster}", role="agent", clusters=[request.cluster], ttl=AGENT_TTL
            ),
            "keys": {kid: key.hex() for kid, key in self._keys.of(request.cluster, registration).items()},
            "warnings": list(summary.warnings)[:20],
        }

    def delete(self, request: Delete, caller: Principal, address: Address | None) -> dict[str, Any]:
        """Forget a cluster. What waits in its queue is rejected first, and so placed elsewhere."""
        need_role(caller, "register")
        self._covers(caller, request.cluster)
        known = self._find(request.cluster)
        self._store.clusters.delete(request.cluster)
        if known is None and not self._has_queue(request.cluster):
            raise NotFound(f"no cluster {request.cluster} is registered")
        self._give_back(request.cluster)
        self._broker.delete(list(topology.cluster_queues(request.cluster)))
        log.info("cluster deleted", extra={"action": "delete", "cluster": request.cluster, "by": caller.sub})
        return {"deleted": request.cluster}

    def _has_queue(self, cluster: str) -> bool:
        try:
            self._broker.stats(topology.jobs_queue(cluster))
        except NotFound:
            return False
        return True

    def _give_back(self, cluster: str) -> None:
        if not self._has_queue(cluster):
            return
        consumer = self._broker.consume(topology.jobs_queue(cluster), prefetch=200)
        try:
            while waiting := consumer.take(200, _EMPTY_AFTER):
                consumer.reject(waiting)
        finally:
            consumer.cancel()

    # -- changing -------------------------------------------------------------------------------------------

    def set_subsystem(self, request: SetSubsystem, caller: Principal, address: Address | None) -> dict[str, Any]:
        known = self._own(caller, request.cluster)
        return self._resummarize(known, known.summary.with_subsystem(request.name, request.graph))

    def remove_subsystem(self, request: RemoveSubsystem, caller: Principal, address: Address | None) -> dict[str, Any]:
        known = self._own(caller, request.cluster)
        if request.name not in known.summary.subsystems:
            raise NotFound(f"cluster {request.cluster} has no subsystem {request.name}")
        return self._resummarize(known, known.summary.without_subsystem(request.name))

    def _resummarize(self, known: Cluster, summary: Summary) -> dict[str, Any]:
        record = known.record.model_copy(
            update={"summary": summary.to_bytes(), "digest": summary.digest, "updated_at": self._clock()}
        )
        self._put(record, known)
        return {"cluster": record.name, "subsystems": sorted(summary.subsystems)}

    def state(self, request: Report, caller: Principal, address: Address | None) -> dict[str, Any]:
        """Check only: the registrar writes reports of a batch together."""
        report = request.report
        known = self._own(caller, report.cluster)
        if report.heartbeat and report.registration != known.record.registration:
            raise Denied(f"the report is of another registration of cluster {report.cluster}: register anew")
        return {}

    def drain(self, request: Drain, caller: Principal, address: Address | None) -> dict[str, Any]:
        return self._set_drained(self._own(caller, request.cluster), request.reason)

    def resume(self, request: Resume, caller: Principal, address: Address | None) -> dict[str, Any]:
        return self._set_drained(self._own(caller, request.cluster), None)

    def _set_drained(self, known: Cluster, reason: str | None) -> dict[str, Any]:
        self._put(known.record.model_copy(update={"drained": reason, "updated_at": self._clock()}), known)
        return {"cluster": known.record.name, "drained": reason}

    def set_group(self, request: SetGroup, caller: Principal, address: Address | None) -> dict[str, Any]:
        need_role(caller)
        with self._world.lock:
            self._world.apply(self._store.clusters.changes(self._world.version))
            unknown = sorted(set(request.clusters) - self._world.clusters.keys())
        if unknown:
            raise NotFound(f"no cluster {unknown[0]} is registered")
        self._store.clusters.set_group(request.group, frozenset(request.clusters))
        return self.list_groups(ListGroups(op="groups"), caller, address)

    def list_groups(self, request: ListGroups, caller: Principal, address: Address | None) -> dict[str, Any]:
        with self._world.lock:
            self._world.apply(self._store.clusters.changes(self._world.version))
            return {"groups": {name: sorted(members) for name, members in sorted(self._world.groups.items())}}

    # -- looking --------------------------------------------------------------------------------------------

    def list_clusters(self, request: ListClusters, caller: Principal, address: Address | None) -> dict[str, Any]:
        """The clusters the caller's token covers (all for an admin)."""
        now = self._clock()
        with self._world.lock:
            self._world.apply(self._store.clusters.changes(self._world.version))
            world = self._world
            names = [request.name] if request.name else sorted(world.clusters)
            visible = [
                n for n in names if n in world.clusters and (caller.role == "admin" or caller.covers(n, world.groups))
            ]
            if request.name and not visible:
                raise NotFound(f"no cluster {request.name} is registered, or your token does not cover it")
            return {"clusters": [self._show(n, now) for n in visible]}

    def _show(self, name: str, now: float) -> dict[str, Any]:
        known = self._world.clusters[name]
        record, state, summary = known.record, known.state, known.summary
        beat = state.heartbeat_at
        return {
            "name": name,
            "alive": bool(beat) and now - beat <= self._world.alive_after,
            "heartbeat_at": beat or None,
            "drained": record.drained,
            "matcher": record.matcher,
            "registered_at": record.registered_at,
            "updated_at": record.updated_at,
            "state": dict(state.values),
            "state_at": state.at or None,
            "totals": dict(summary.totals),
            "description": summary.describe(),
            "subsystems": sorted(summary.subsystems),
            "reserved": {
                "nodes": known.reserved.nodes,
                "cores": known.reserved.cores,
                "gpus": known.reserved.gpus,
            },
            "groups": sorted(g for g, members in self._world.groups.items() if name in members),
            "warnings": list(summary.warnings)[:20],
        }

    # -- helpers --------------------------------------------------------------------------------------------

    def _find(self, cluster: str) -> Cluster | None:
        """The cluster as the store has it now."""
        with self._world.lock:
            self._world.apply(self._store.clusters.changes(self._world.version))
            return self._world.clusters.get(cluster)

    def _own(self, caller: Principal, cluster: str) -> Cluster:
        """The cluster, when the caller may change it: its agent, who registers it, or an admin."""
        need_role(caller, "agent", "register")
        self._covers(caller, cluster)
        with self._world.lock:
            known = self._world.clusters.get(cluster)
        known = known or self._find(cluster)
        if known is None:
            raise NotFound(f"no cluster {cluster} is registered: run `rainbow register {cluster}`")
        return known

    def _covers(self, caller: Principal, cluster: str) -> None:
        if not caller.covers(cluster, self._world.groups):
            raise Denied(f"the token does not cover cluster {cluster}")

    def _put(self, record: ClusterRecord, known: Cluster | None) -> None:
        self._store.clusters.put(record, known.record.registration if known else None)
        with self._world.lock:
            self._world.apply(self._store.clusters.changes(self._world.version))


def _mark(identity: str) -> str:
    """What is kept of an identity: enough to know it again, not enough to pass for it."""
    return sha256(b"rainbow/identity\0" + identity.encode()).hexdigest()


def _registration(cluster: str, identity: str) -> str:
    """The name of a registration. It follows from cluster and identity, so that keys are the same again after the
    store was lost: what was signed before is still good."""
    return sha256(b"rainbow/registration\0" + cluster.encode() + b"\0" + identity.encode()).hexdigest()[:32]


def _summary(request: Register) -> Summary:
    if (request.graph is None) == (request.summary is None):
        raise InvalidInput("give either graph or summary")
    if request.summary is not None:
        if request.subsystems:
            raise InvalidInput("subsystems go with a graph: a summary holds its own")
        return Summary.from_bytes(request.summary)
    assert request.graph is not None
    return read_graph(request.graph, subsystems=request.subsystems)
