"""Ids of jobs: UUIDs. That of an array with an index in brackets names one of its elements."""

from __future__ import annotations

import re
from uuid import UUID, uuid5

_USUAL_ID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


_NIL_ID = str(UUID(int=0))


_ELEMENT = re.compile(r"(.{32,45})\[(\d{1,10})\]", re.ASCII)


def element_id(array_id: str, index: int) -> str:
    """The id of an element of an array: the same for all who make it."""
    return str(uuid5(UUID(array_id), str(index)))


def read_element(value: str) -> tuple[str, int] | None:
    """The array and the index in ``ID[INDEX]``; None for anything else. Raises ValueError."""
    match = _ELEMENT.fullmatch(value)
    return (read_id(match[1]), int(match[2])) if match is not None else None


def read_id(value: str) -> str:
    """A UUID in its usual form, from any; for an array's with an index, that of its element. Raises ValueError."""
    if not _USUAL_ID.fullmatch(value):
        element = read_element(value)
        if element is not None:
            return element_id(*element)
        try:
            value = str(UUID(value))
        except ValueError:
            raise ValueError("must be a UUID") from None
    if value == _NIL_ID:
        raise ValueError("must be a UUID of its own, not the nil UUID")
    return value
