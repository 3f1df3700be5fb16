"""Tokens that the registrar gives out: to the agent of a cluster, and to who may submit to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rainbow.security import scopes
from rainbow.security.tokens import KeyRing, Role, issue, verify

#: Times to live, in seconds, of the tokens that registering gives out. Agents renew theirs by themselves.
AGENT_TTL = 30 * 86400.0
SUBMIT_TTL = 365 * 86400.0


def agent_of(cluster: str) -> str:
    """The subject of the tokens of this cluster's agent."""
    return f"agent-{cluster}"


@dataclass(frozen=True, slots=True)
class Issued:
    token: str
    jti: str


class Issuer:
    """Issues with the ring in force. `vhost` is where the tokens' scopes hold; None for brokers without scopes."""

    def __init__(
        self,
        ring: Callable[[], KeyRing],
        *,
        vhost: str | None = None,
        agent_ttl: float = AGENT_TTL,
        submit_ttl: float = SUBMIT_TTL,
    ) -> None:
        self._ring = ring
        self._vhost = vhost
        self._agent_ttl = agent_ttl
        self._submit_ttl = submit_ttl

    def for_agent(self, cluster: str) -> Issued:
        return self._issue(agent_of(cluster), "agent", cluster, self._agent_ttl)

    def for_users(self, cluster: str) -> Issued:
        return self._issue(f"user-of-{cluster}", "submit", cluster, self._submit_ttl)

    def _issue(self, sub: str, role: Role, cluster: str, ttl: float) -> Issued:
        ring = self._ring()
        scope = scopes.for_token(role, [cluster], self._vhost)
        token = issue(ring, sub=sub, role=role, clusters=[cluster], ttl=ttl, scope=scope)
        return Issued(token, verify(ring, token).jti)
