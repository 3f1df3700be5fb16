"""Operations on jobs: status, jobspec, list, watch, cancel.

A submitter sees its own, an agent its cluster's (but no jobspec), an admin all.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rainbow.errors import Denied, InvalidInput, NotFound
from rainbow.models.control import Cancel, GetJobs, GetJobspec, ListJobs, Watch
from rainbow.models.job import JobRecord
from rainbow.models.requests import JobPage, position, read_position
from rainbow.security import access
from rainbow.security.tokens import Principal
from rainbow_workers.clusters.cache import ClusterCache
from rainbow_workers.registry.operations import of_this_registration, shown
from rainbow_workers.registry.registrar import Address
from rainbow_workers.scheduling.cancelling import Cancelling
from rainbow_workers.stores.base import ANYONE, Asker, Store


class JobOperations:
    def __init__(self, store: Store, world: ClusterCache, cancelling: Cancelling) -> None:
        self._store = store
        self._world = world
        self._cancelling = cancelling

    def status(self, request: GetJobs, caller: Principal, address: Address | None) -> dict[str, Any]:
        """The records.

        An agent is also told which of the others its cluster had before (`elsewhere`), and whether clusters are still
        reporting what they had of a store that lost data (`doubt`).
        """
        records = self._store.jobs.get(request.ids)
        visible = self._visible(records, caller, request.op)
        result: dict[str, Any] = {"jobs": visible}
        if caller.role == "agent":
            unseen = (r for r, shown_ in zip(records, visible, strict=True) if r is not None and shown_ is None)
            result["doubt"] = self._world.remembering(time.time()) > 0
            result["elsewhere"] = [r.id for r in unseen if self._had(r, caller)]
        return result

    def find(self, request: ListJobs, caller: Principal, address: Address | None) -> dict[str, Any]:
        user = caller.sub if caller.role == "submit" else request.user
        if request.user not in (None, user):
            return JobPage().model_dump()
        before = None if request.before is None else read_position(request.before)
        page = self._store.jobs.page(
            state=request.state,
            cluster=request.cluster,
            user=user,
            limit=request.limit,
            before=before,
            array=request.array,
            text=request.text,
        )
        visible = self._visible([record for _, record in page.jobs], caller, request.op)
        seen = [(at, job) for (at, _), job in zip(page.jobs, visible, strict=True) if job is not None]
        after = None if page.next is None else position(*page.next)
        return {"jobs": [job for _, job in seen], "at": [at for at, _ in seen], "next": after, "looked": page.looked}

    def watch(self, request: Watch, caller: Principal, address: Address | None) -> dict[str, Any]:
        """The lease is taken before the records are read: a change in between is sent, not missed.

        Who asks is kept, and compared with the job at each event: it may not be there yet, or be of another cluster
        then."""
        if address is None:
            raise InvalidInput("watching needs an address: set reply_to")
        records = self._store.jobs.get(request.ids)
        by_asker: dict[Asker, list[str]] = {}
        for job_id, record in zip(request.ids, records, strict=True):
            asker = self._asker(record, caller, request.op)
            if asker is not None:
                by_asker.setdefault(asker, []).append(job_id)
        for asker, ids in by_asker.items():
            self._store.jobs.watch(ids, address, request.ttl, asker)
        if by_asker:
            records = self._store.jobs.get(request.ids)
        return {"jobs": self._visible(records, caller, request.op)}

    def cancel(self, request: Cancel, caller: Principal, address: Address | None) -> dict[str, Any]:
        """Durable before it is confirmed: marked in the ledger, and on its way to the agent that may have the job.

        Who asks is kept with what is not known yet: only a job of theirs is stopped by it."""
        for record in self._store.jobs.get(request.ids):
            if record is not None and not self._may(record, caller, request.op):
                raise Denied(f"job {record.id} is not yours to cancel")
        # No job is an agent's before it was dispatched to its cluster.
        by = None if caller.role == "agent" else self._asker(None, caller, request.op)
        records = self._cancelling.cancel(request.ids, by, request.reason)
        return {"jobs": [None if r is None else {"id": r.id, "state": r.state} for r in records]}

    def jobspec(self, request: GetJobspec, caller: Principal, address: Address | None) -> dict[str, Any]:
        """What was submitted: it has the job's environment, so it is for its submitter and for administrators."""
        [record] = self._store.jobs.get([request.id])
        if record is None or not self._may(record, caller, request.op):
            raise NotFound(f"no job {request.id} (or it is another user's)")
        return {"id": record.id, "jobspec": self._store.jobs.jobspec(record.id)}

    def _visible(self, records: Sequence[JobRecord | None], caller: Principal, op: str) -> list[dict[str, Any] | None]:
        return [shown(r) if r is not None and self._may(r, caller, op) else None for r in records]

    def _asker(self, record: JobRecord | None, caller: Principal, op: str) -> Asker | None:
        """As whom the caller asks about a job, known or not; None when it may not ask."""
        if access.allowed(op, caller.role) == "any":
            return ANYONE
        if record is not None and not self._may(record, caller, op):
            return None
        if caller.role == "submit":
            return f"user:{caller.sub}"
        return None if record is None else f"cluster:{record.cluster}"

    def _may(self, record: JobRecord, caller: Principal, op: str) -> bool:
        if access.allowed(op, caller.role) == "any":
            return True
        if caller.role == "submit":
            return record.user == caller.sub
        known = self._world.clusters.get(record.cluster or "")
        return (
            caller.role == "agent"
            and record.cluster is not None
            and caller.covers(record.cluster, self._world.groups)
            and (known is None or of_this_registration(caller, known.record))
        )

    def _had(self, record: JobRecord, caller: Principal) -> bool:
        """Whether an agent's cluster was ever given an attempt of this job."""
        clusters = {str(entry["cluster"]) for entry in record.history if entry.get("cluster")}
        return any(caller.covers(cluster, self._world.groups) for cluster in clusters)
