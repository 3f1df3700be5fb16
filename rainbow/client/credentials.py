"""Which token speaks for the caller in which request.

Several may be at hand: one's own (`token`, `token_file`), one for each cluster one may submit to (`clusters`, as
the first rainbow has it), and the one of the cluster this machine serves (`cluster.secret`).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rainbow.errors import Denied
from rainbow.security import bearer
from rainbow.settings import Settings, secret

WITHOUT = (
    "no token: set RAINBOW_TOKEN, write `token:` into rainbow-config.yaml, or ask your administrator for one "
    "(`rainbow token issue`); to try rainbow on this machine: `rainbow up`"
)


def peek(token: str) -> dict[str, Any]:
    """The claims in `token`, not verified: to choose among tokens and to show them. {} when it is no token."""
    try:
        body = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (IndexError, ValueError):
        return {}
    return claims if isinstance(claims, dict) else {}


def _opens(token: str) -> tuple[bool, int]:
    """How little of the broker a token opens, for sorting."""
    claims = peek(token)
    order = ("admin", "submit", "agent", "register")
    role = claims.get("role")
    return not claims.get("scope"), order.index(role) if role in order else len(order)


def _distinct(tokens: Iterable[str | None]) -> list[str]:
    return list(dict.fromkeys(t for t in tokens if t))


@dataclass(frozen=True, slots=True)
class Credentials:
    """The tokens at hand. With `only`, that one is used for everything."""

    only: str | None = field(default=None, repr=False)
    own: str | None = field(default=None, repr=False)
    clusters: Mapping[str, str] = field(default_factory=dict, repr=False)
    served: str | None = None
    agent: str | None = field(default=None, repr=False)

    @staticmethod
    def from_settings(settings: Settings, token: str | None = None) -> Credentials:
        """Raises InvalidSettings for a token file that cannot be read."""
        own = secret(settings.token)
        if own is None and settings.token_file is not None and token is None:
            own = bearer.read_file(settings.token_file)
        return Credentials(
            only=None if token is None else bearer.given(token),
            own=own,
            clusters={c.name: c.token.get_secret_value() for c in settings.clusters},
            served=settings.cluster.name,
            agent=secret(settings.cluster.secret),
        )

    def for_submission(self, clusters: Sequence[str] = ()) -> list[str]:
        """One's own, and those of all clusters in the settings, or only of those named. Raises Denied without any."""
        if self.only:
            return [self.only]
        named = self.clusters.values() if not clusters else (self.clusters.get(name) for name in clusters)
        # A token for registering or for an agent opens nothing here: it need not travel.
        own = self.own if self.own and peek(self.own).get("role") not in ("register", "agent") else None
        tokens = _distinct((own, *named))
        if not tokens:
            known = f": there is one for {', '.join(sorted(self.clusters))}" if clusters and self.clusters else ""
            raise Denied(f"no token for {', '.join(clusters)}{known}" if known else WITHOUT)
        return tokens

    def for_jobs(self) -> list[str]:
        """Those whose jobs one may see, one of each subject; an administrator's sees all. Raises Denied without any."""
        return self._each(roles=("submit", "agent"))

    def subjects(self) -> frozenset[str]:
        """The subjects of the tokens that submit."""
        tokens = [self.only] if self.only else _distinct((self.own, *self.clusters.values()))
        claims = [peek(token) for token in tokens if token]
        return frozenset(str(c["sub"]) for c in claims if c.get("sub") and c.get("role") in ("submit", "admin"))

    def for_clusters(self) -> list[str]:
        """Those whose clusters one may see; an administrator's sees all. Raises Denied without any."""
        return self._each(roles=("submit", "agent", "register"))

    def _each(self, roles: Sequence[str]) -> list[str]:
        if self.only:
            return [self.only]
        seen: dict[str, str] = {}
        for token in _distinct((self.own, *self.clusters.values(), self.agent)):
            claims = peek(token)
            role = claims.get("role", "submit")  # of one we cannot read the registrar says what is wrong
            if role == "admin":
                return [token]
            if role in roles:
                seen.setdefault(f"{role} {claims.get('sub', token)}", token)
        if not seen:
            raise Denied(WITHOUT)
        return list(seen.values())

    def for_cluster(self, cluster: str | None = None) -> str:
        """The one to administer `cluster` with: an administrator's, the cluster's own, or what there is."""
        if self.only:
            return self.only
        own_role = peek(self.own).get("role") if self.own else None
        agent = self.agent if cluster is not None and cluster == self.served else None
        candidates = (self.own, agent) if own_role in ("admin", "register") else (agent, self.own)
        tokens = _distinct((*candidates, self.clusters.get(cluster or ""), *self.clusters.values(), self.agent))
        if not tokens:
            raise Denied(WITHOUT)
        return tokens[0]

    def for_broker(self) -> str:
        """The one that opens the broker where tokens do (`broker.oauth`): of those with a scope, the one that opens
        most. One connection has one token; all of them travel in messages as before."""
        if self.only:
            return self.only
        tokens = _distinct((self.own, *self.clusters.values(), self.agent))
        if not tokens:
            raise Denied(WITHOUT)
        return min(tokens, key=_opens)
