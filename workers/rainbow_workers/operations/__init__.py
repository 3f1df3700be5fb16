"""What the registrar can be asked to do, by what it is about."""

from __future__ import annotations

from typing import Any

from rainbow.errors import Denied
from rainbow.tokens import Principal


def need_role(caller: Principal, *roles: str) -> None:
    """Raise Denied unless the caller is an admin or has one of `roles`."""
    if caller.role != "admin" and caller.role not in roles:
        allowed = " or ".join(dict.fromkeys((*roles, "admin")))
        raise Denied(f"a token of role {caller.role} may not do this: use one of role {allowed}")


def shown(record: Any) -> dict[str, Any]:
    """A model as it goes into a reply."""
    return dict(record.model_dump(exclude_none=True))
