"""What the registrar can be asked to do, by what it is about."""

from __future__ import annotations

from typing import Any

from rainbow.models.cluster import ClusterRecord
from rainbow.security.tokens import Principal

#: How long a revocation is kept, in seconds: longer than any token lives.
KEEP = 2 * 366 * 86400.0
#: `iat` has whole seconds.
_WHOLE_SECONDS = 2.0


def of_this_registration(caller: Principal, record: ClusterRecord) -> bool:
    """False for an agent whose token was issued before the cluster was: of one of the same name that was deleted."""
    return caller.role != "agent" or caller.issued_at >= record.registered_at - _WHOLE_SECONDS


def shown(record: Any) -> dict[str, Any]:
    """A model as it goes into a reply."""
    return dict(record.model_dump(exclude_none=True))
