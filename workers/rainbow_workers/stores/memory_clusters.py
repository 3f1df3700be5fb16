"""The ClusterTable of a MemoryStore."""

from __future__ import annotations

from collections.abc import Sequence

from rainbow.models.cluster import ClusterRecord, Revocation, StateReport
from rainbow_workers.stores import StoreOptions
from rainbow_workers.stores.base import Changes, Overtaken
from rainbow_workers.stores.memory_data import Data, StoredState


class MemoryClusters:
    """See `rainbow_workers.stores.base.ClusterTable`."""

    def __init__(self, data: Data, options: StoreOptions) -> None:
        self._data = data
        self._options = options

    def changes(self, since: int) -> Changes:
        with self._data.lock:
            self._data.expire()
            return self._data.changes(since, self._options.alive_after)

    def wait(self, since: int, timeout: float) -> bool:
        data = self._data
        with data.lock:
            return data.relief.wait_for(lambda: data.relieved > since, timeout)

    def put(self, record: ClusterRecord, expect: str | None) -> None:
        data, name = self._data, record.name
        with data.lock:
            data.expire()
            current = data.clusters.get(name)
            if current == record:
                return
            if (current.registration if current else None) != expect:
                what = "was registered or changed by somebody else" if current else "is not registered any more"
                raise Overtaken(f"cluster {name!r} {what}")
            data.clusters[name] = record
            data.touch("cluster", [name])
            if current is None:
                data.states[name] = StoredState()
                data.touch("state", [name])
                data.touch("reserved", [name])

    def delete(self, name: str) -> None:
        data = self._data
        with data.lock:
            data.expire()
            if data.clusters.pop(name, None) is not None:
                del data.states[name]
                data.reservations = {k: r for k, r in data.reservations.items() if r.cluster != name}
                data.touch("cluster", [name])
                del data.changed["state", name], data.changed["reserved", name]
            if any(name in members for members in data.groups.values()):
                left = {group: members - {name} for group, members in data.groups.items()}
                data.groups = {group: members for group, members in left.items() if members}
                data.touch("groups")

    def report(self, reports: Sequence[StateReport], at: float) -> None:
        data = self._data
        with data.lock:
            data.expire()
            for report in reports:
                record = data.clusters.get(report.cluster)
                if record is None or report.registration not in (None, record.registration):
                    continue
                state = data.states[report.cluster]
                for key, value in report.values.items():
                    if key not in state.values or state.values[key][0] <= at:
                        state.values[key] = (at, value)
                state.at = max(state.at, at)
                if report.heartbeat:
                    state.heartbeat_at = max(state.heartbeat_at, at)
                data.touch("state", [report.cluster])
                for id, attempt in report.included:
                    data.release(id, attempt, report.cluster)

    def set_group(self, group: str, members: frozenset[str]) -> None:
        data = self._data
        with data.lock:
            data.expire()
            if data.groups.get(group, frozenset()) != members:
                data.groups[group] = members
                if not members:
                    del data.groups[group]
                data.touch("groups")

    def revoke(self, revocation: Revocation) -> None:
        data, key = self._data, (revocation.kind, revocation.value)
        with data.lock:
            data.expire()
            old = data.revocations.get(key, revocation)
            update = {"before": max(old.before, revocation.before), "until": max(old.until, revocation.until)}
            data.revocations[key] = revocation.model_copy(update=update)
            data.touch("revocations")
