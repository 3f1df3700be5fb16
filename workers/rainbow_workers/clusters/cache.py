"""What a scheduler knows: the clusters, their load, groups and revocations, kept current from the store's changes.

One object per process, used under its lock. Nothing here talks to store or broker.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rainbow.errors import InvalidInput
from rainbow.jobspec.request import Demand
from rainbow.models.cluster import ClusterRecord, ClusterState, Revocation
from rainbow.models.job import Reason
from rainbow.resources import Summary
from rainbow.resources.backends.base import GraphBackend
from rainbow.resources.matching.index import ClusterIndex
from rainbow_workers.clusters.closed import ClosedClusters
from rainbow_workers.clusters.depth import DepthPolicy
from rainbow_workers.selection.base import Load
from rainbow_workers.stores.base import Changes, Epoch

_NONE = Demand()

#: Of anything that is counted. More is nonsense, and no float could hold it.
_LARGEST = 1 << 53

#: Clusters that were lost with the store's data are expected back within so many times the silence that makes one
#: unreachable: their agents register them anew once a report is refused.
_BACK_WITHIN = 3.0

#: A silence of so many times that which makes a cluster unreachable is a long one.
_GONE = 10.0

#: In a cluster's state: the epoch of the store for which its agent has reported all it had.
REPORTED_EPOCH = "reported_epoch"
#: In a cluster's state: the share of recent jobs that failed fast (`rainbow_workers.clusters.circuit_breaker`).
FAILING = "failing"


@dataclass(slots=True)
class Cluster:
    """A registered cluster, its latest report, and what is reserved on it."""

    record: ClusterRecord
    summary: Summary
    total: Demand
    state: ClusterState
    reserved: Demand = _NONE

    def reachable(self, now: float, alive_after: float) -> bool:
        """Heard of lately. A cluster that never sent a heartbeat has no agent: it is served by hand, and counts."""
        beat = self.state.heartbeat_at
        return not beat or now - beat <= alive_after


class ClusterCache:
    """Implements `selection.base.Fleet`. `graphs` says which clusters can run a request."""

    def __init__(
        self,
        alive_after: float = 35.0,
        throttle_from: float = 0.0,
        depth: DepthPolicy | None = None,
        graphs: GraphBackend | None = None,
    ) -> None:
        self._depth = depth or DepthPolicy()
        #: Rises with each change that may make room for a job where there was none.
        self.relief = 0
        self._throttle_from = throttle_from
        self.lock = threading.RLock()
        self.alive_after = alive_after
        self.graphs: GraphBackend = graphs if graphs is not None else ClusterIndex()
        self.clusters: dict[str, Cluster] = {}
        self.groups: Mapping[str, frozenset[str]] = {}
        self.revocations: Sequence[Revocation] = ()
        self.version = 0
        #: The epoch of the store's data (see `rainbow_workers.stores.base.Epoch`); 0 while it is not known.
        self.epoch = 0
        self._epoch = Epoch()
        #: Goes up with each change that can alter which clusters are candidates (not with loads).
        self.generation = 0
        self.problems: dict[str, str] = {}
        self.drained: frozenset[str] = frozenset()
        self.unreachable: frozenset[str] = frozenset()
        #: Those that no agent was ever heard of: served by hand, if at all.
        self.unserved: frozenset[str] = frozenset()
        #: Those whose agent says why a job would not start now: a stopped queue, an executor that is down.
        self.closed = ClosedClusters()
        #: Those of `unreachable` that have been silent for long.
        self.gone: frozenset[str] = frozenset()
        #: Those on which jobs fail at once, and when the next probe may go there.
        self.throttled: frozenset[str] = frozenset()
        self.probe_at: dict[str, float] = {}
        #: Clusters that the store forgot when it lost its data, and until when their agents may be expected back.
        self.missing: dict[str, float] = {}
        #: When a cluster last came back that the store had lost.
        self._back_at = 0.0
        #: What was decided and does not stand in the store's sums yet: nodes, cores, gpus.
        self._promised: dict[str, list[int]] = {}
        #: Worked out when asked for, and kept until something of it changes.
        self._loads: dict[str, Load] = {}

    # -- following the store ------------------------------------------------------------------------

    def apply(self, changes: Changes) -> bool:
        """Take over changes. True when revocations changed. Older ones than were taken over before say nothing new: the
        replies to two calls may be read in another order than they were written in."""
        if changes.version < self.version:
            return False
        if changes.states or changes.clusters or changes.reset:
            self.relief += 1
        if changes.reset:
            self.missing |= {n: 0.0 for n in self.clusters if n not in changes.clusters}
            for name in list(self.clusters):
                self._forget(name)
            self.groups, self.revocations = {}, ()
        for name, record in changes.clusters.items():
            if record is None:
                self._forget(name)
            else:
                self._learn(record)
        for name, state in changes.states.items():
            known = self.clusters.get(name)
            if known is not None:
                known.state = state
                self._loads.pop(name, None)
        self._note_unserved({*changes.clusters, *changes.states})
        changed = {n: c for n in {*changes.clusters, *changes.states} if (c := self.clusters.get(n)) is not None}
        if self.closed.note({n: c.state.values for n, c in changed.items()}):
            self.relief += 1
            self.generation += 1
        self._throttle(changes.states)
        for name, reserved in changes.reserved.items():
            known = self.clusters.get(name)
            if known is not None and known.reserved != reserved:
                if reserved.cores < known.reserved.cores or reserved.nodes < known.reserved.nodes:
                    self.relief += 1
                known.reserved = reserved
                self._loads.pop(name, None)
        if changes.groups is not None:
            self.groups = changes.groups
            self.generation += 1
        if changes.revocations is not None:
            self.revocations = changes.revocations
        self.version = changes.version
        self._epoch, self.epoch = changes.epoch, changes.epoch.number
        if changes.clusters or changes.reset:
            self.drained = frozenset(n for n, c in self.clusters.items() if c.record.drained is not None)
        return changes.revocations is not None

    def look_around(self, now: float) -> None:
        """Note which clusters are out of reach now. Called about once a second, not for each job."""
        if self.missing:
            until = now + _BACK_WITHIN * self.alive_after
            self.missing = {n: t or until for n, t in self.missing.items() if not t or t > now}
        unreachable = frozenset(n for n, c in self.clusters.items() if not c.reachable(now, self.alive_after))
        gone = frozenset(n for n in unreachable if not self.clusters[n].reachable(now, _GONE * self.alive_after))
        if (unreachable, gone) != (self.unreachable, self.gone):
            self.unreachable, self.gone = unreachable, gone
            self.relief += 1
            self.generation += 1

    def _note_unserved(self, changed: Iterable[str]) -> None:
        known = {n: self.clusters.get(n) for n in changed}
        unserved = {n for n, c in known.items() if c is not None and not c.state.heartbeat_at}
        if unserved != {n for n in known if n in self.unserved}:
            self.unserved = (self.unserved - known.keys()) | unserved
            self.relief += 1
            self.generation += 1

    def by_service(self, names: Sequence[str], closed: Mapping[str, str]) -> list[Sequence[str]]:
        """`names` in groups, those served best first: with an agent; with one that says that no job would start now;
        never served by one; with one that is silent; with one that has been silent for long. No group is empty.
        """
        if not self.unreachable and not closed and len(self.unserved) in (0, len(self.clusters)):
            return [names] if names else []
        groups: tuple[list[str], ...] = ([], [], [], [], [])
        for name in names:
            if name in self.unreachable:
                place = 3 + (name in self.gone)
            else:
                place = 2 if name in self.unserved else 1 if name in closed else 0
            groups[place].append(name)
        return [group for group in groups if group]

    def _throttle(self, changed: Iterable[str]) -> None:
        """Note which of the clusters whose state changed are throttled now."""
        limit = self._throttle_from
        flipped = {n for n in changed if limit and (self.failing(n) >= limit) is not (n in self.throttled)}
        if flipped:
            self.throttled ^= flipped
            self.probe_at = {name: at for name, at in self.probe_at.items() if name in self.throttled}
            self.generation += 1

    def failing(self, cluster: str) -> float:
        """The share of jobs that failed there at once lately; 0 of a cluster that is not known."""
        known = self.clusters.get(cluster)
        value = None if known is None else known.state.values.get(FAILING)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0

    def _learn(self, record: ClusterRecord) -> None:
        self.generation += 1
        self.missing.pop(record.name, None)
        self._back_at = max(self._back_at, record.back_at)
        known = self.clusters.get(record.name)
        if known is not None and known.record.digest == record.digest and known.record.matcher == record.matcher:
            known.record = record
            return
        try:
            summary = Summary.from_bytes(record.summary)
        except InvalidInput as exc:
            # A summary of another release: its agent sends a fresh one with its next registration.
            self.problems[record.name] = exc.message
            self._forget(record.name)
            return
        self.problems.pop(record.name, None)
        self.graphs.update(record.name, summary, matcher=record.matcher)
        total = Demand(summary.nodes, summary.cores, summary.gpus)
        state = known.state if known else ClusterState()
        self.clusters[record.name] = Cluster(record, summary, total, state, known.reserved if known else _NONE)
        self._loads.pop(record.name, None)

    def _forget(self, name: str) -> None:
        if self.clusters.pop(name, None) is not None:
            self.throttled -= {name}
            self.unserved -= {name}
            self.closed.drop(name)
            self._loads.pop(name, None)
            self.graphs.remove(name)
            self.generation += 1

    # -- what decisions ask ---------------------------------------------------------------------------

    @property
    def known_since(self) -> float:
        """When the store's data began, or may have lost writes, in seconds since 1970."""
        return self._epoch.at

    def remembering(self, now: float) -> float:
        """For how many seconds more agents may still report what they had of a store that lost data lately.

        Until then a job that the store does not know may have been handed out all the same.
        """
        back = max(0.0, min(self._back_at + self.alive_after - now, self.alive_after)) if self._back_at else 0.0
        return max(back, self._reporting(now), self.recalling(now))

    def _reporting(self, now: float) -> float:
        """For how many seconds more a cluster that came back to empty data may not have reported."""
        most = _BACK_WITHIN * self.alive_after
        if not self._back_at or now >= self._back_at + most:
            return 0.0
        return max(
            (
                min(c.record.back_at + most - now, most)
                for c in self.clusters.values()
                if c.record.back_at and not c.record.barred_at and c.state.values.get(REPORTED_EPOCH) != self.epoch
            ),
            default=0.0,
        )

    def recalling(self, now: float) -> float:
        """For how many seconds more a registered cluster may still report jobs of which the store lost the record.

        Each agent says when it has reported for the epoch. One that is silent is waited for as long as it takes to be
        unreachable, and one that says nothing of epochs three times as long.
        """
        end = self._epoch.at + _BACK_WITHIN * self.alive_after
        if not self._epoch.lost or now >= end:
            return 0.0
        left = 0.0
        for cluster in self.clusters.values():
            state = cluster.state
            waited_for = state.heartbeat_at and not cluster.record.barred_at
            if waited_for and state.values.get(REPORTED_EPOCH) != self.epoch:
                until = max(state.heartbeat_at, self._epoch.at) + self.alive_after
                left = max(left, min(until, end) - now)
        return left

    def reserve(self, cluster: str, demand: Demand) -> None:
        """Deduct what was just decided, until `settle` is told that it stands in the store, or never will."""
        self._promise(cluster, demand.nodes, demand.cores, demand.gpus)

    def settle(self, cluster: str, demand: Demand) -> None:
        """What was reserved so is in the store's sums now, or off."""
        self._promise(cluster, -demand.nodes, -demand.cores, -demand.gpus)
        if not any(self._promised[cluster]):
            del self._promised[cluster]

    def _promise(self, cluster: str, nodes: int, cores: int, gpus: int) -> None:
        promised = self._promised.get(cluster)
        if promised is None:
            promised = self._promised[cluster] = [0, 0, 0]
        promised[0] += nodes
        promised[1] += cores
        promised[2] += gpus
        load = self._loads.get(cluster)
        if load is not None:
            free = load.free
            free.nodes -= nodes
            free.cores -= cores
            free.gpus -= gpus

    def room(self, clusters: Iterable[str]) -> dict[str, Demand]:
        """Those of `clusters` on which nothing that was decided has to wait, as far as is known, with their totals."""
        loads = {name: self.load(name) for name in clusters if name in self.clusters}
        return {
            name: load.total
            for name, load in loads.items()
            if load.free.nodes >= 0 and load.free.cores >= 0 and load.free.gpus >= 0
        }

    def has_room(self, cluster: str, demand: Demand) -> bool:
        """Can a job start there now or very soon? Where no agent ever reported, nothing is known: it is let in."""
        known = self.clusters[cluster]
        if not known.state.heartbeat_at:
            return True
        nodes, cores, gpus = self._promised.get(cluster, (0, 0, 0))
        load, state = self.load(cluster), known.state.values
        return self._depth.fits(load, known.reserved, (nodes, cores, gpus), demand, state)

    def load(self, cluster: str) -> Load:
        load = self._loads.get(cluster)
        if load is None:
            load = self._loads[cluster] = self._load(cluster)
        return load

    def _load(self, cluster: str) -> Load:
        known = self.clusters[cluster]
        values, total, reserved = known.state.values, known.total, known.reserved
        nodes, cores, gpus = self._promised.get(cluster, (0, 0, 0))
        return Load(
            total,
            Demand(
                _number(values.get("nodes_free"), total.nodes) - reserved.nodes - nodes,
                _number(values.get("cores_free"), total.cores) - reserved.cores - cores,
                _number(values.get("gpus_free"), total.gpus) - reserved.gpus - gpus,
            ),
            _number(values.get("jobs_pending"), 0),
        )

    def values(self, cluster: str) -> Mapping[str, Any]:
        return self.clusters[cluster].state.values

    def summary(self, cluster: str) -> Summary:
        return self.clusters[cluster].summary

    def members(self, names: Sequence[str]) -> frozenset[str]:
        """Cluster names, with ``@groups`` replaced by their members."""
        out: set[str] = set()
        for name in names:
            if name.startswith("@"):
                out |= self.groups.get(name, frozenset())
            else:
                out.add(name)
        return frozenset(out)


def _number(value: Any, default: int) -> int:
    """What an agent says, as far as it makes sense."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return default
    return int(max(-_LARGEST, min(_LARGEST, value)))


def awaiting_clusters(world: ClusterCache, now: float) -> float:
    """For how many seconds more clusters may come back to data that was created lately, while none is known."""
    return 0.0 if world.clusters else max(0.0, min(world.known_since + world.alive_after - now, world.alive_after))


def hindrance(world: ClusterCache, name: str, closed: Mapping[str, str]) -> Reason | None:
    """Why a cluster that could run a job comes late, or not at all; `closed` as from `ClosedClusters.of`."""
    if name in world.drained:
        return Reason(code="drained", detail=world.clusters[name].record.drained or "drained")
    if name in world.unreachable:
        return Reason(code="unreachable", detail="its agent has not been heard of lately")
    if name in world.throttled:
        share = f"{100 * world.failing(name):.0f} % of its last jobs failed at once"
        return Reason(code="throttled", detail=f"{share}: it gets one from time to time until that is better")
    if name in closed:
        return Reason(code="closed", detail=closed[name])
    return Reason(code="unserved", detail="no agent serves it") if name in world.unserved else None
