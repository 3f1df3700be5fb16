"""Names of clusters that people would take for each other."""

from __future__ import annotations

from collections.abc import Iterable

from rainbow import topology
from rainbow.errors import Conflict


def looks_like_no_other(name: str, registered: Iterable[str]) -> None:
    """Raise Conflict for a new name that looks like a registered one."""
    looks = topology.skeleton(name)
    other = next((c for c in registered if c != name and topology.skeleton(c) == looks), None)
    if other is not None:
        raise Conflict(f"cluster {name!r} looks like {other!r}, which is registered: choose another name")
