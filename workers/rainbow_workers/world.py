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
from rainbow.resources import ClusterIndex, Summary
from rainbow_workers.selection.base import Load
from rainbow_workers.stores.base import Changes

_NONE = Demand()

#: Of anything that is counted. More is nonsense, and no float could hold it.
_LARGEST = 1 << 53

#: Clusters that were lost with the store's data are expected back within so many times the silence that makes one
#: unreachable: their agents register them anew once a report is refused.
_BACK_WITHIN = 3.0

#: In a cluster's state: the share of its jobs that failed at once lately (see `rainbow_workers.failing`).
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


class World:
    """Implements `selection.base.Fleet`."""

    def __init__(self, alive_after: float = 35.0, throttle_from: float = 0.0) -> None:
        self._throttle_from = throttle_from
        self.lock = threading.RLock()
        self.alive_after = alive_after
        self.index = ClusterIndex()
        self.clusters: dict[str, Cluster] = {}
        self.groups: Mapping[str, frozenset[str]] = {}
        self.revocations: Sequence[Revocation] = ()
        self.version = 0
        #: Goes up with each change that can alter which clusters are candidates (not with loads).
        self.generation = 0
        self.problems: dict[str, str] = {}
        self.drained: frozenset[str] = frozenset()
        self.unreachable: frozenset[str] = frozenset()
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
        self._throttle(changes.states)
        for name, reserved in changes.reserved.items():
            known = self.clusters.get(name)
            if known is not None and known.reserved != reserved:
                known.reserved = reserved
                self._loads.pop(name, None)
        if changes.groups is not None:
            self.groups = changes.groups
            self.generation += 1
        if changes.revocations is not None:
            self.revocations = changes.revocations
        self.version = changes.version
        if changes.clusters or changes.reset:
            self.drained = frozenset(n for n, c in self.clusters.items() if c.record.drained is not None)
        return changes.revocations is not None

    def look_around(self, now: float) -> None:
        """Note which clusters are out of reach now. Called about once a second, not for each job."""
        if self.missing:
            until = now + _BACK_WITHIN * self.alive_after
            self.missing = {n: t or until for n, t in self.missing.items() if not t or t > now}
        unreachable = frozenset(n for n, c in self.clusters.items() if not c.reachable(now, self.alive_after))
        if unreachable != self.unreachable:
            self.unreachable = unreachable
            self.generation += 1

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
        self.index.update(record.name, summary, matcher=record.matcher)
        total = Demand(summary.nodes, summary.cores, summary.gpus)
        state = known.state if known else ClusterState()
        self.clusters[record.name] = Cluster(record, summary, total, state, known.reserved if known else _NONE)
        self._loads.pop(record.name, None)

    def _forget(self, name: str) -> None:
        if self.clusters.pop(name, None) is not None:
            self.throttled -= {name}
            self._loads.pop(name, None)
            self.index.remove(name)
            self.generation += 1

    # -- what decisions ask ---------------------------------------------------------------------------

    def remembering(self, now: float) -> float:
        """For how many seconds more agents may still be telling what they had of a store that lost its data; 0 of one
        that did not lately. Until then a job that it does not know may have been handed out all the same."""
        return max(0.0, min(self._back_at + self.alive_after - now, self.alive_after)) if self._back_at else 0.0

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
