"""What v1 calls a cluster's secret: one opaque text. Here it holds all that a cluster's side needs.

The token of its agent, the keys that its dispatches are signed with, and the number of its registration. Nothing of it
is kept in the gateway.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field

from rainbow.client.credentials import peek
from rainbow.client.views import Registration
from rainbow.errors import Denied

_MARK = "rainbow1."
_MOST = 64 << 10


@dataclass(frozen=True, slots=True)
class ClusterSecret:
    """One cluster's side."""

    token: str = field(repr=False)
    keys: dict[str, bytes] = field(repr=False)
    registration: str

    @staticmethod
    def of(made: Registration) -> ClusterSecret:
        """What registering gave."""
        keys = {kid: bytes.fromhex(key.get_secret_value()) for kid, key in made.keys.items()}
        return ClusterSecret(made.secret.get_secret_value(), keys, made.registration)

    def text(self) -> str:
        """As v1's clients keep it."""
        rows = [self.token, {kid: key.hex() for kid, key in self.keys.items()}, self.registration]
        return _MARK + base64.urlsafe_b64encode(json.dumps(rows).encode()).decode()

    @staticmethod
    def read(text: str, cluster: str) -> ClusterSecret:
        """The inverse of `text`. Raises Denied when it is none, or another cluster's.

        The token in it is not verified: the registrar does, when something is asked with it.
        """
        good = text.startswith(_MARK) and len(text) <= _MOST
        try:
            token, keys, registration = json.loads(base64.urlsafe_b64decode(text[len(_MARK) :] if good else ""))
            made = ClusterSecret(str(token), {str(k): bytes.fromhex(v) for k, v in keys.items()}, str(registration))
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise Denied("this is no secret of a cluster: register it through this gateway") from None
        claims = peek(made.token)
        if claims.get("role") != "agent" or claims.get("clusters") != [cluster]:
            raise Denied(f"the secret is not of cluster {cluster}")
        return made
