"""Operations on clusters: subsystems, state, drain, groups, and looking at them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rainbow.errors import Conflict, Denied, NotFound
from rainbow.models.control import (
    Drain,
    ListClusters,
    ListGroups,
    RemoveSubsystem,
    Report,
    Resume,
    SetGroup,
    SetSubsystem,
)
from rainbow.resources import Summary
from rainbow.resources.graph.outline import outline
from rainbow.security.tokens import Principal
from rainbow_workers.clusters.cache import REPORTED_EPOCH, Cluster, ClusterCache
from rainbow_workers.registry.operations.barring import BARRED
from rainbow_workers.registry.operations.known import KnownClusters
from rainbow_workers.registry.registrar import Address
from rainbow_workers.stores.base import Store


class ClusterOperations:
    def __init__(self, store: Store, world: ClusterCache, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._world = world
        self._known = KnownClusters(store, world)
        self._clock = clock

    # -- changing -------------------------------------------------------------------------------------------

    def set_subsystem(self, request: SetSubsystem, caller: Principal, address: Address | None) -> dict[str, Any]:
        known = self._known.own(caller, request.cluster)
        return self._resummarize(known, known.summary.with_subsystem(request.name, request.graph))

    def remove_subsystem(self, request: RemoveSubsystem, caller: Principal, address: Address | None) -> dict[str, Any]:
        known = self._known.own(caller, request.cluster)
        if request.name not in known.summary.subsystems:
            raise NotFound(f"cluster {request.cluster} has no subsystem {request.name}")
        return self._resummarize(known, known.summary.without_subsystem(request.name))

    def _resummarize(self, known: Cluster, summary: Summary) -> dict[str, Any]:
        record = known.record.model_copy(
            update={"summary": summary.to_bytes(), "digest": summary.digest, "updated_at": self._clock()}
        )
        self._known.put(record, known)
        return {"cluster": record.name, "subsystems": sorted(summary.subsystems)}

    def state(self, request: Report, caller: Principal, address: Address | None) -> dict[str, Any]:
        """Check only: the registrar writes reports of a batch together."""
        report, known = request.report, self._known.own(caller, request.report.cluster)
        if report.heartbeat and report.registration != known.record.registration:
            raise Denied(f"the report is of another registration of cluster {report.cluster}: register it again")
        epochs = {"epoch": self._world.epoch, "reported": known.state.values.get(REPORTED_EPOCH, 0)}
        return {**epochs, "alive_after": self._world.alive_after}

    def drain(self, request: Drain, caller: Principal, address: Address | None) -> dict[str, Any]:
        known = self._known.own(caller, request.cluster)
        return self._set_drained(known, BARRED if known.record.barred_at else request.reason)

    def resume(self, request: Resume, caller: Principal, address: Address | None) -> dict[str, Any]:
        known = self._known.own(caller, request.cluster)
        if known.record.barred_at:
            raise Conflict(f"{BARRED}: give it a new token; cluster {request.cluster} comes back when it registers")
        return self._set_drained(known, None)

    def _set_drained(self, known: Cluster, reason: str | None) -> dict[str, Any]:
        self._known.put(known.record.model_copy(update={"drained": reason, "updated_at": self._clock()}), known)
        return {"cluster": known.record.name, "drained": reason}

    def set_group(self, request: SetGroup, caller: Principal, address: Address | None) -> dict[str, Any]:
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
            tree = {"tree": outline(world.clusters[request.name].summary.root)} if request.name else {}
            return {"clusters": [self._show(n, now) | tree for n in visible]}

    def _show(self, name: str, now: float) -> dict[str, Any]:
        known = self._world.clusters[name]
        record, state, summary = known.record, known.state, known.summary
        beat = state.heartbeat_at
        return {
            "name": name,
            "alive": bool(beat) and now - beat <= self._world.alive_after,
            "heartbeat_at": beat or None,
            "drained": record.drained,
            "throttled": name in self._world.throttled,
            "matcher": record.matcher,
            "registered_at": record.registered_at,
            "updated_at": record.updated_at,
            "state": dict(state.values),
            "state_at": state.at or None,
            "totals": dict(summary.totals),
            "description": summary.describe(),
            "subsystems": sorted(summary.subsystems),
            "reserved": {kind: getattr(known.reserved, kind) for kind in ("nodes", "cores", "gpus")},
            "groups": sorted(g for g, members in self._world.groups.items() if name in members),
            "warnings": list(summary.warnings)[:20],
        }
