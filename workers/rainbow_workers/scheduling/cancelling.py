"""Cancelling jobs: marked in the ledger, told to the agents that may have them, ended where no cluster has them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rainbow.brokers.base import Broker, Message
from rainbow.models.control import AgentCommand
from rainbow.models.job import JobEvent, JobRecord
from rainbow_workers import commands
from rainbow_workers.clusters.cache import ClusterCache
from rainbow_workers.clusters.sync import CacheSync
from rainbow_workers.events import news, recorded_events, stands
from rainbow_workers.keys import ClusterKeys
from rainbow_workers.stores.base import Asker, Store

_CONFIRM_S = 15.0


class Cancelling:
    """Used by several threads."""

    def __init__(self, broker: Broker, store: Store, world: ClusterCache, sync: CacheSync, keys: ClusterKeys) -> None:
        self._broker = broker
        self._store = store
        self._world = world
        self._sync = sync
        self._keys = keys

    def cancel(self, ids: Sequence[str], by: Asker | None, reason: str | None) -> list[JobRecord | None]:
        """Cancel jobs of `by`. Durable when it returns: marked, and on its way to the agent that may have the job."""
        records = self._store.jobs.cancel(ids, by)
        with self._world.lock:
            told = [
                commands.message(
                    self._keys,
                    r.cluster,
                    self._world.clusters[r.cluster].record.registration,
                    AgentCommand(command="cancel", id=r.id, attempt=r.attempt, reason=reason or ""),
                )
                for r in records
                if r is not None and not r.terminal and r.cluster in self._world.clusters
            ]
        told += self._end([r for r in records if r is not None and r.state == "held"], reason)
        self._broker.publish(told).check(_CONFIRM_S)
        return records

    def _end(self, held: Sequence[JobRecord], reason: str | None) -> list[Message]:
        """End jobs of no cluster, and give what there is to tell. One that is assigned meanwhile is past this attempt,
        and marked.

        While clusters still report what they had of a store that lost data, one of them may have such a job: it stays
        marked, and the scheduler ends it when no cluster has it.
        """
        if not held:
            return []
        self._sync.refresh()
        now = time.time()
        if self._world.remembering(now):
            return []
        why = {"state": "cancelled", "code": "cancel", "detail": reason or "cancelled while it waited"}
        events = [JobEvent(id=r.id, attempt=r.attempt, at=now, user=r.user, name=r.name, **why) for r in held]
        recorded = self._store.jobs.record(events)
        told = [e for e, result in zip(events, recorded, strict=True) if stands(e, result)]
        return [*recorded_events(self._keys, told), *(m for result in recorded for m in news(result))]
