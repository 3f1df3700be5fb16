"""The clusters as an operation finds, checks and changes them."""

from __future__ import annotations

from rainbow import topology
from rainbow.brokers.base import Broker
from rainbow.errors import Denied, NotFound
from rainbow.models.cluster import ClusterRecord
from rainbow.security.tokens import Principal
from rainbow_workers.clusters.cache import Cluster, ClusterCache
from rainbow_workers.registry.operations import of_this_registration
from rainbow_workers.stores.base import Store

#: How long to wait for one more dispatch in a queue that is emptied, in seconds.
_EMPTY_AFTER = 1.0


class KnownClusters:
    """Of the registrar's thread."""

    def __init__(self, store: Store, world: ClusterCache) -> None:
        self._store = store
        self._world = world

    def find(self, cluster: str) -> Cluster | None:
        """The cluster as the store has it now."""
        with self._world.lock:
            self._world.apply(self._store.clusters.changes(self._world.version))
            return self._world.clusters.get(cluster)

    def own(self, caller: Principal, cluster: str) -> Cluster:
        """The cluster, when the caller may change it: its agent, who registers it, or an admin."""
        with self._world.lock:
            known = self._world.clusters.get(cluster)
        known = known or self.find(cluster)
        self.check_may_change(caller, cluster, known)
        if known is not None and not of_this_registration(caller, known.record):
            raise Denied(f"the token is of an earlier registration of cluster {cluster}: register it again")
        if known is None:
            raise NotFound(f"no cluster {cluster} is registered: run `rainbow register {cluster}`")
        return known

    def check_covered(self, caller: Principal, cluster: str) -> None:
        """Raise Denied for a token that does not cover the cluster."""
        if not caller.covers(cluster, self._world.groups):
            raise Denied(f"the token does not cover cluster {cluster}")

    def check_may_change(self, caller: Principal, cluster: str, known: Cluster | None) -> None:
        """A token to register any cluster changes those it registered itself; others' are named in it one by one."""
        self.check_covered(caller, cluster)
        own = known is None or known.record.owner == caller.sub or cluster in caller.clusters
        if caller.role == "register" and not own:
            raise Denied(f"cluster {cluster} was registered by somebody else: ask an admin")

    def put(self, record: ClusterRecord, known: Cluster | None) -> None:
        """Write a record in place of that of `known`. Raises Overtaken when another one is there by now."""
        self._store.clusters.put(record, known.record.registration if known else None)
        with self._world.lock:
            self._world.apply(self._store.clusters.changes(self._world.version))


def has_queue(broker: Broker, cluster: str) -> bool:
    try:
        broker.stats(topology.jobs_queue(cluster))
    except NotFound:
        return False
    return True


def give_back(broker: Broker, cluster: str) -> None:
    """Reject what waits in the cluster's queue: so it is placed elsewhere."""
    if not has_queue(broker, cluster):
        return
    consumer = broker.consume(topology.jobs_queue(cluster), prefetch=200)
    try:
        while waiting := consumer.take(200, _EMPTY_AFTER):
            consumer.reject(waiting)
    finally:
        consumer.cancel()
