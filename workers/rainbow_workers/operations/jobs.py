"""Operations on jobs: status, list, watch, cancel. A submitter sees its own, an agent its cluster's, an admin all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rainbow.brokers.base import Broker
from rainbow.errors import Denied, InvalidInput
from rainbow.models.control import AgentCommand, Cancel, GetJobs, ListJobs, Watch
from rainbow.models.job import JobRecord
from rainbow.tokens import Principal
from rainbow_workers import commands
from rainbow_workers.keys import ClusterKeys
from rainbow_workers.operations import of_this_registration, shown
from rainbow_workers.registrar import Address
from rainbow_workers.stores.base import Store
from rainbow_workers.world import World

_CONFIRM_S = 15.0


class JobOperations:
    def __init__(self, broker: Broker, store: Store, world: World, keys: ClusterKeys) -> None:
        self._broker = broker
        self._store = store
        self._world = world
        self._keys = keys

    def status(self, request: GetJobs, caller: Principal, address: Address | None) -> dict[str, Any]:
        return {"jobs": self._visible(self._store.jobs.get(request.ids), caller)}

    def find(self, request: ListJobs, caller: Principal, address: Address | None) -> dict[str, Any]:
        user = caller.sub if caller.role == "submit" else None
        found = self._store.jobs.find(state=request.state, cluster=request.cluster, user=user, limit=request.limit)
        return {"jobs": [j for j in self._visible(found, caller) if j is not None]}

    def watch(self, request: Watch, caller: Principal, address: Address | None) -> dict[str, Any]:
        """The lease is taken before the records are read: a change in between is sent, not missed."""
        if address is None:
            raise InvalidInput("watching needs an address: set reply_to")
        records = self._store.jobs.get(request.ids)
        mine = [i for i, r in zip(request.ids, records, strict=True) if r is None or self._may_see(r, caller)]
        if mine:
            self._store.jobs.watch(mine, address, request.ttl)
            records = self._store.jobs.get(request.ids)
        return {"jobs": self._visible(records, caller)}

    def cancel(self, request: Cancel, caller: Principal, address: Address | None) -> dict[str, Any]:
        """Durable before it is confirmed: marked in the ledger, and on its way to the agent that may have the job."""
        for record in self._store.jobs.get(request.ids):
            if record is not None and not self._may_cancel(record, caller):
                raise Denied(f"job {record.id} is not yours to cancel")
        records = self._store.jobs.cancel(request.ids)
        with self._world.lock:
            told = [
                commands.message(
                    self._keys,
                    r.cluster,
                    self._world.clusters[r.cluster].record.registration,
                    AgentCommand(command="cancel", id=r.id, attempt=r.attempt, reason=request.reason),
                )
                for r in records
                if r is not None and not r.terminal and r.cluster in self._world.clusters
            ]
        self._broker.publish(told).check(_CONFIRM_S)
        return {"jobs": [None if r is None else {"id": r.id, "state": r.state} for r in records]}

    def _visible(self, records: Sequence[JobRecord | None], caller: Principal) -> list[dict[str, Any] | None]:
        return [shown(r) if r is not None and self._may_see(r, caller) else None for r in records]

    def _may_see(self, record: JobRecord, caller: Principal) -> bool:
        if caller.role == "submit":
            return record.user == caller.sub
        if caller.role == "agent":
            known = self._world.clusters.get(record.cluster or "")
            return (
                record.cluster is not None
                and caller.covers(record.cluster, self._world.groups)
                and (known is None or of_this_registration(caller, known.record))
            )
        return caller.role == "admin"

    def _may_cancel(self, record: JobRecord, caller: Principal) -> bool:
        return caller.role != "register" and self._may_see(record, caller)
