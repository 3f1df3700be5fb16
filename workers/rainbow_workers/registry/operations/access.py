"""Operations on access: revoking tokens, letting agents in that have none yet, and whether anybody is there."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from rainbow.errors import Conflict, Denied, InvalidInput, NotFound
from rainbow.models.cluster import Enrollment, Revocation
from rainbow.models.control import DecideEnrollment, Enroll, ListDead, ListEnrollments, Ping, Revoke, SettleDead
from rainbow.security.enrollment import code, mark, same_code
from rainbow.security.tokens import LEEWAY, Principal
from rainbow_workers.clusters.cache import ClusterCache
from rainbow_workers.registry.operations import KEEP, shown
from rainbow_workers.registry.operations.issuing import Issuer, agent_of
from rainbow_workers.registry.registrar import Address
from rainbow_workers.stores.base import Store

log = logging.getLogger(__name__)

#: Seconds for which a question waits for an admin, and for which the answer waits for the agent.
ASKING = 86_400.0
COLLECTING = 3600.0
#: How many may ask at once, and how many of them for one cluster: anybody may ask.
_MOST = 1000
#: Seconds between two notes that an agent still asks.
_SEEN_EVERY = 10.0
_MOST_OF_CLUSTER = 20


class AccessOperations:
    """`bar` puts out the agents that a revocation names, and gives their clusters."""

    def __init__(
        self,
        store: Store,
        world: ClusterCache,
        issuer: Issuer,
        bar: Callable[[Revocation], list[str]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._world = world
        self._issuer = issuer
        self._bar = bar
        self._clock = clock

    def ping(self, request: Ping, caller: Principal, address: Address | None) -> dict[str, Any]:
        """Also what the broker makes of the asker's address for answers: RabbitMQ gives it another name on the way."""
        answer: dict[str, Any] = {"version": version("rainbow-hpc"), "time": self._clock()}
        return answer if address is None else {**answer, "reply_to": address[0]}

    def revoke(self, request: Revoke, caller: Principal, address: Address | None) -> dict[str, Any]:
        if (request.jti is None) == (request.sub is None):
            raise InvalidInput("name either a token (jti) or a subject (sub)")
        now = self._clock()
        kind, value = ("jti", request.jti) if request.jti is not None else ("sub", request.sub)
        # A token of this second is revoked too, whatever its clock: iat has whole seconds, and leeway is allowed.
        revocation = Revocation(kind=kind, value=value, before=now + 1, until=now + KEEP + LEEWAY)
        self._store.clusters.revoke(revocation)
        log.info("revoked", extra={"action": "revoke", "kind": kind, "value": value, "by": caller.sub})
        return {"revoked": {kind: value}, "clusters": self._bar(revocation)}

    def settle_dead(self, request: SettleDead | ListDead, caller: Principal, address: Address | None) -> dict[str, Any]:
        return {}

    # -- enrollment ------------------------------------------------------------------------------------------

    def enroll(self, request: Enroll, caller: Principal, address: Address | None) -> dict[str, Any]:
        """Note who asks, or tell what became of it. The token goes to whoever knows the identity that asked."""
        now = self._clock()
        who = mark(request.identity)
        with self._world.lock:
            self._world.apply(self._store.clusters.changes(self._world.version))
            known = self._world.clusters.get(request.cluster)
        if known is not None and known.record.identity != who:
            raise Conflict(
                f"cluster {request.cluster} is registered by somebody else: choose another name, "
                "or have an admin delete it first"
            )
        asked = self._store.enrollments.get(request.cluster, who, now)
        again = asked is not None and asked.status == "pending"
        if asked is None:
            self._make_room(request.cluster, now)
            asked = Enrollment(
                code=code(request.cluster, request.identity),
                cluster=request.cluster,
                mark=who,
                place=request.place,
                asked_at=now,
                seen_at=now,
                until=now + ASKING,
            )
            self._store.enrollments.put(asked)
            log.info("agent asks", extra={"action": "enroll", "cluster": asked.cluster, "code": asked.code})
        elif again and now - asked.seen_at > _SEEN_EVERY:
            asked = asked.model_copy(update={"seen_at": now})
            self._store.enrollments.put(asked)
        if asked.status == "denied":
            raise Denied(f"an admin denied this agent to serve cluster {request.cluster}")
        answer = {"status": asked.status, "code": asked.code, "cluster": asked.cluster, "until": asked.until}
        if again:
            answer["again"] = True  # not for the agent: agents ask every few seconds, and that is not worth a line
        if asked.status == "approved":
            self._still_good(asked)
            answer["token"] = self._issuer.for_agent(asked.cluster).token
        return answer

    def _make_room(self, cluster: str, now: float) -> None:
        """Of too many that wait, those go that asked the longest ago: an agent that is there asks every few seconds."""
        waiting = sorted(
            (e for e in self._store.enrollments.all(now) if e.status == "pending"),
            key=lambda e: e.seen_at or e.asked_at,
        )
        of_it = [e for e in waiting if e.cluster == cluster]
        gone = of_it[: max(0, len(of_it) - _MOST_OF_CLUSTER + 1)] or waiting[: max(0, len(waiting) - _MOST + 1)]
        for old in gone:
            self._store.enrollments.put(old.model_copy(update={"until": now}))

    def list_enrollments(self, request: ListEnrollments, caller: Principal, address: Address | None) -> dict[str, Any]:
        found = sorted(self._store.enrollments.all(self._clock()), key=lambda e: -e.asked_at)
        return {"enrollments": [{k: v for k, v in shown(e).items() if k != "mark"} for e in found]}

    def decide(self, request: DecideEnrollment, caller: Principal, address: Address | None) -> dict[str, Any]:
        now = self._clock()
        asked = next((e for e in self._store.enrollments.all(now) if same_code(e.code, request.code)), None)
        if asked is None:
            raise NotFound(f"no agent with code {request.code} asks: see `rainbow enroll list`")
        decision = {
            "status": "approved" if request.approve else "denied",
            "decided_at": now,
            "by": caller.sub,
            "until": now + (COLLECTING if request.approve else ASKING),
        }
        decided = asked.model_copy(update=decision)
        self._store.enrollments.put(decided)
        log.info("enrollment decided", extra={"action": "enroll", "cluster": decided.cluster, "status": decided.status})
        return {k: v for k, v in shown(decided).items() if k != "mark"}

    def _still_good(self, asked: Enrollment) -> None:
        """An agent that was revoked after it was let in does not get a fresh token by asking once more."""
        name = agent_of(asked.cluster)
        for entry in self._world.revocations:
            if entry.kind == "sub" and entry.value == name and asked.decided_at <= entry.before:
                raise Denied("the token was revoked: ask an admin to approve this agent anew")
