"""Ids of jobs."""

from __future__ import annotations

import re
from uuid import UUID

_USUAL_ID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


_NIL_ID = str(UUID(int=0))


def read_id(value: str) -> str:
    """A UUID in its usual form, from any. Raises ValueError."""
    if not _USUAL_ID.fullmatch(value):
        try:
            value = str(UUID(value))
        except ValueError:
            raise ValueError("must be a UUID") from None
    if value == _NIL_ID:
        raise ValueError("must be a UUID of its own, not the nil UUID")
    return value
