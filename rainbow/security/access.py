"""Who may do what: operations, roles, and whose objects. The one place that says it.

The registrar and the scheduler ask it for each request and submission (`allowed`), the scopes of tokens at RabbitMQ are
made of it (`rainbow.security.scopes`), and so is the table in the docs. What is not in it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rainbow.errors import Denied
from rainbow.security.tokens import Role

#: Whose objects: one's own, or anybody's. An own job is a submitter's by its subject, and an agent's by its cluster; an
#: own cluster is one that the token covers (and, for `register`, one that it registered or names).
Whose = Literal["own", "any"]
Kind = Literal["job", "cluster", "group", "token", "dead letter", "enrollment", "share", "nothing"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One operation.

    `roles` are those that may do it, each with whose objects; `open` needs no token; `reads` changes nothing.
    """

    op: str
    object: Kind
    roles: Mapping[Role, Whose] = field(default_factory=dict)
    open: bool = False
    reads: bool = False


_SUBMITTER: Mapping[Role, Whose] = {"submit": "own", "admin": "any"}
_JOB: Mapping[Role, Whose] = {"submit": "own", "agent": "own", "admin": "any"}
_CLUSTER: Mapping[Role, Whose] = {"agent": "own", "register": "own", "admin": "any"}
_ANY_TOKEN: Mapping[Role, Whose] = {"submit": "own", "agent": "own", "register": "own", "admin": "any"}
_ADMIN: Mapping[Role, Whose] = {"admin": "any"}

RULES: tuple[Rule, ...] = (
    Rule("submit", "job", _SUBMITTER),
    Rule("status", "job", _JOB, reads=True),
    Rule("jobs", "job", _JOB, reads=True),
    Rule("watch", "job", _JOB, reads=True),
    Rule("cancel", "job", _JOB),
    Rule("logs", "job", _SUBMITTER, reads=True),
    Rule("jobspec", "job", _SUBMITTER, reads=True),
    Rule("register", "cluster", _CLUSTER),
    Rule("delete", "cluster", {"register": "own", "admin": "any"}),
    Rule("subsystem-set", "cluster", _CLUSTER),
    Rule("subsystem-remove", "cluster", _CLUSTER),
    Rule("state", "cluster", _CLUSTER, reads=True),
    Rule("drain", "cluster", _CLUSTER),
    Rule("resume", "cluster", _CLUSTER),
    Rule("clusters", "cluster", _ANY_TOKEN, reads=True),
    Rule("answer", "cluster", {"agent": "own"}, reads=True),
    Rule("groups", "group", _ANY_TOKEN, reads=True),
    Rule("group-set", "group", _ADMIN),
    Rule("shares", "share", _SUBMITTER, reads=True),
    Rule("queue", "share", _SUBMITTER, reads=True),
    Rule("share-set", "share", _ADMIN),
    Rule("revoke", "token", _ADMIN),
    Rule("dead-list", "dead letter", _ADMIN, reads=True),
    Rule("dead-replay", "dead letter", _ADMIN),
    Rule("dead-drop", "dead letter", _ADMIN),
    Rule("enrollments", "enrollment", _ADMIN, reads=True),
    Rule("enrollment-decide", "enrollment", _ADMIN),
    Rule("enroll", "enrollment", open=True),
    Rule("ping", "nothing", open=True, reads=True),
)

_BY_OP: Mapping[str, Rule] = {rule.op: rule for rule in RULES}


def rule(op: str) -> Rule:
    """The rule for an operation; one with no roles when there is none."""
    return _BY_OP.get(op) or Rule(op, "nothing")


def allowed(op: str, role: Role) -> Whose:
    """Whose objects `role` may do `op` with. Raises Denied when it may not do it at all."""
    found = rule(op)
    whose = found.roles.get(role)
    if whose is None:
        roles = " or ".join(found.roles) or "none"
        raise Denied(f"a token of role {role} may not do this: use one of role {roles}")
    return whose


# -- at the broker -------------------------------------------------------------------------------------------------

Permission = Literal["configure", "write", "read"]


@dataclass(frozen=True, slots=True)
class Grant:
    """A right at the broker: to an exchange or queue, and a routing key.

    ``{cluster}`` stands for each cluster of the token. `what` is what it is for.
    """

    what: str
    permission: Permission
    name: str
    key: str | None = None
    roles: tuple[Role, ...] = ()
    workers: bool = False

    @property
    def per_cluster(self) -> bool:
        return "{cluster}" in self.name + (self.key or "")


GRANTS: tuple[Grant, ...] = (
    Grant("ask the registrar", "write", "rainbow.control", "*", ("submit", "agent", "register")),
    Grant("publish submissions", "write", "rainbow.submit", "*", ("submit",)),
    Grant("ask to be enrolled", "write", "rainbow.control", "enroll", ("enroll",)),
    Grant("read jobs dispatched to its cluster", "read", "rainbow.jobs.{cluster}", None, ("agent",)),
    Grant("read commands to its cluster", "read", "rainbow.agent.{cluster}", None, ("agent",)),
    Grant("publish events of its cluster", "write", "rainbow.events", "job.{cluster}.*", ("agent",)),
    Grant("declare and delete", "configure", "rainbow.*", None, ("admin",), workers=True),
    Grant("publish to all exchanges of rainbow's", "write", "rainbow.*", "*", ("admin",), workers=True),
    Grant("read and bind all queues of rainbow's", "read", "rainbow.*", "*", ("admin",), workers=True),
    Grant("answer (publish to the default exchange)", "write", "amq.default", None, workers=True),
)
