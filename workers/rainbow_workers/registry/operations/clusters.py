"""Operations on clusters: register, delete, subsystems, state, drain, groups."""

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
from rainbow.models.job import JobEvent, JobRecord
from rainbow.resources import Summary, read_graph
from rainbow.resources.graph.outline import outline
from rainbow.resources.readers.received import received
from rainbow.security.enrollment import mark
from rainbow.security.tokens import LEEWAY, Principal
from rainbow_workers.clusters.cache import REPORTED_EPOCH, Cluster, ClusterCache
from rainbow_workers.keys import ClusterKeys
from rainbow_workers.registry.operations import KEEP, of_this_registration
from rainbow_workers.registry.operations.issuing import Issuer, agent_of
from rainbow_workers.registry.operations.names import looks_like_no_other
from rainbow_workers.registry.registrar import Address
from rainbow_workers.stores.base import Overtaken, Store

log = logging.getLogger(__name__)

#: Why a cluster is drained whose agent was revoked, until an agent with a good token registers it again.
BARRED = "its agent was revoked"
#: Seconds that a dispatch given back by a barred cluster has, on top of its time in the queue, to be placed elsewhere.
_SETTLING = 60.0
#: Seconds for an agent to say what it had taken of a queue that was deleted under it.
_LAST_WORDS = 150.0
#: Why a job is lost whose dispatch went with its queue.
EMPTIED = "the queue of its cluster was deleted with its dispatch in it: submit it again"
#: Seconds between looks at what barred clusters had.
_SETTLE_EVERY = 2.0
#: Jobs looked at in one go.
_AT_ONCE = 10_000
#: How often a registration is tried whose cluster others change at the same moment.
_TRIES = 5
#: How long to wait for one more dispatch in the queue of a cluster that is being deleted.
_EMPTY_AFTER = 1.0


class ClusterOperations:
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
        self._issuer = issuer
        self._keys = keys
        self._limits = limits
        self._clock = clock
        self._settle_at = 0.0

    # -- registering ----------------------------------------------------------------------------------------

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
        self._covers(caller, request.cluster)
        known = self._find(request.cluster)
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
        if known is not None and not known.record.barred_at and not self._has_queue(request.cluster):
            log.warning(
                "its queue is gone, with what was in it", extra={"action": "emptied", "cluster": request.cluster}
            )
            emptied_at = now
            # Written down before there is a queue again: a try that dies half-way does not forget it.
            self._put(known.record.model_copy(update={"emptied_at": now}), known)
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
        self._put(record, known)
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
        known = self._find(request.cluster)
        self._may_change(caller, request.cluster, known)
        self._store.clusters.delete(request.cluster)
        if known is not None:
            self._end_token(known.record)
        if known is None and not self._has_queue(request.cluster):
            raise NotFound(f"no cluster {request.cluster} is registered")
        self._give_back(request.cluster)
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

    # -- an agent that is revoked ---------------------------------------------------------------------------

    def bar(self, revocation: Revocation) -> list[str]:
        """Put the agents out whose tokens are revoked: nothing new for their clusters, what waits for them is placed
        elsewhere, their queues are gone (which ends their consumers; they have no right to declare any), and what they
        sign counts no more. An agent with a good token that registers the cluster again brings it back.
        """
        with self._world.lock:
            self._world.apply(self._store.clusters.changes(self._world.version))
            hit = [c for c in self._world.clusters.values() if _names_agent(revocation, c.record)]
        for known in hit:
            record, name = known.record, known.record.name
            if not record.barred_at:  # else an earlier try died below
                epoch, now = record.epoch + 1, self._clock()
                update = {
                    "drained": BARRED,
                    "epoch": epoch,
                    "registration": f"revoked-{epoch}-{record.registration}",
                    "barred_at": now,
                    "updated_at": now,
                }
                self._put(record.model_copy(update=update), known)
            self._give_back(name)
            self._broker.delete(list(topology.cluster_queues(name)))
            log.warning("agent put out", extra={"action": "bar", "cluster": name})
        return sorted(c.record.name for c in hit)

    def settle_barred(self) -> None:
        """End as `lost` what a revoked agent had: at once what it started, since nothing it says of it counts; and
        what it held without a word once all that came back must have been placed elsewhere."""
        now = self._clock()
        if now < self._settle_at:
            return
        self._settle_at = now + _SETTLE_EVERY
        self.settle_emptied()
        with self._world.lock:
            barred = [self._world.clusters[n].record for n in self._world.drained if n in self._world.clusters]
        for record in (r for r in barred if r.barred_at):
            overdue = now - record.barred_at > self._limits.dispatch_timeout + _SETTLING
            for state in ("accepted", "running", *(("assigned",) if overdue else ())):
                jobs = self._store.jobs.find(state=state, cluster=record.name, user=None, limit=1000)
                self._store.jobs.record(
                    [
                        JobEvent(id=j.id, attempt=j.attempt, state="lost", at=now, code="lost", detail=BARRED)
                        for j in jobs
                    ]
                )

    def settle_emptied(self) -> None:
        """End as `lost` the jobs whose dispatches went with a queue that somebody deleted, once its agent has had time
        to say which of them it had taken before."""
        now = self._clock()
        with self._world.lock:
            emptied = [c for c in self._world.clusters.values() if c.record.emptied_at]
        for cluster in emptied:
            record = cluster.record
            if now - record.emptied_at < _LAST_WORDS:
                continue
            waiting = self._store.jobs.find(state="assigned", cluster=record.name, user=None, limit=_AT_ONCE)
            lost = [
                job
                for start in range(0, len(waiting), 500)
                for job in self._store.jobs.get([j.id for j in waiting[start : start + 500]])
                if job is not None and _assigned_before(job, record.emptied_at)
            ]
            self._store.jobs.record(
                [JobEvent(id=j.id, attempt=j.attempt, state="lost", at=now, code="lost", detail=EMPTIED) for j in lost]
            )
            if len(waiting) < _AT_ONCE or not lost:
                self._put(record.model_copy(update={"emptied_at": 0.0}), cluster)

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
        report, known = request.report, self._own(caller, request.report.cluster)
        if report.heartbeat and report.registration != known.record.registration:
            raise Denied(f"the report is of another registration of cluster {report.cluster}: register anew")
        epochs = {"epoch": self._world.epoch, "reported": known.state.values.get(REPORTED_EPOCH, 0)}
        return {**epochs, "alive_after": self._world.alive_after}

    def drain(self, request: Drain, caller: Principal, address: Address | None) -> dict[str, Any]:
        known = self._own(caller, request.cluster)
        return self._set_drained(known, BARRED if known.record.barred_at else request.reason)

    def resume(self, request: Resume, caller: Principal, address: Address | None) -> dict[str, Any]:
        known = self._own(caller, request.cluster)
        if known.record.barred_at:
            raise Conflict(f"{BARRED}: give it a new token; cluster {request.cluster} comes back when it registers")
        return self._set_drained(known, None)

    def _set_drained(self, known: Cluster, reason: str | None) -> dict[str, Any]:
        self._put(known.record.model_copy(update={"drained": reason, "updated_at": self._clock()}), known)
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

    # -- helpers --------------------------------------------------------------------------------------------

    def _find(self, cluster: str) -> Cluster | None:
        """The cluster as the store has it now."""
        with self._world.lock:
            self._world.apply(self._store.clusters.changes(self._world.version))
            return self._world.clusters.get(cluster)

    def _own(self, caller: Principal, cluster: str) -> Cluster:
        """The cluster, when the caller may change it: its agent, who registers it, or an admin."""
        with self._world.lock:
            known = self._world.clusters.get(cluster)
        known = known or self._find(cluster)
        self._may_change(caller, cluster, known)
        if known is not None and not of_this_registration(caller, known.record):
            raise Denied(f"the token is of an earlier registration of cluster {cluster}: register anew")
        if known is None:
            raise NotFound(f"no cluster {cluster} is registered: run `rainbow register {cluster}`")
        return known

    def _covers(self, caller: Principal, cluster: str) -> None:
        if not caller.covers(cluster, self._world.groups):
            raise Denied(f"the token does not cover cluster {cluster}")

    def _may_change(self, caller: Principal, cluster: str, known: Cluster | None) -> None:
        """A token to register any cluster changes those it registered itself; others' are named in it one by one."""
        self._covers(caller, cluster)
        own = known is None or known.record.owner == caller.sub or cluster in caller.clusters
        if caller.role == "register" and not own:
            raise Denied(f"cluster {cluster} was registered by somebody else: ask an admin")

    def _put(self, record: ClusterRecord, known: Cluster | None) -> None:
        self._store.clusters.put(record, known.record.registration if known else None)
        with self._world.lock:
            self._world.apply(self._store.clusters.changes(self._world.version))


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


def _names_agent(revocation: Revocation, record: ClusterRecord) -> bool:
    """Is it the agent of this cluster that is revoked: all of its tokens, or the one it has?"""
    if revocation.kind == "sub":
        return revocation.value == agent_of(record.name)
    return revocation.value == record.agent_jti


def _assigned_before(job: JobRecord, moment: float) -> bool:
    """Was the attempt that counts assigned before `moment`?"""
    if job.state != "assigned":
        return False
    times = [float(e["at"]) for e in job.history if e.get("state") == "assigned" and e.get("attempt") == job.attempt]
    return max(times, default=job.times.get("assigned", moment)) < moment


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
