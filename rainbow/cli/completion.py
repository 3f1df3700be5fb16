"""Completion of names in the shell. It asks rainbow for at most two seconds, and proposes nothing where that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rainbow.client import Client

_LIMIT = 2.0
_NEWEST = 200


def _asked(question: Callable[[Client], Iterable[str]], incomplete: str) -> list[str]:
    from rainbow.cli.session import client

    try:
        with client(None, None, _LIMIT) as rainbow:
            return sorted({word for word in question(rainbow) if word.startswith(incomplete)})
    except Exception:  # whatever it is, an error would land in the middle of what is being typed
        return []


def clusters(incomplete: str) -> list[str]:
    """Names of clusters."""
    return _asked(lambda rainbow: [c.name for c in rainbow.clusters()], incomplete)


def clusters_and_groups(incomplete: str) -> list[str]:
    """Names of clusters, and of groups with their ``@``."""
    if incomplete.startswith("@"):
        return groups(incomplete)
    return clusters(incomplete)


def groups(incomplete: str) -> list[str]:
    """Names of groups."""
    return _asked(lambda rainbow: rainbow.groups(), incomplete)


def jobs(incomplete: str) -> list[str]:
    """Ids of the newest jobs."""
    return _asked(lambda rainbow: [job.id for job in rainbow.jobs(limit=_NEWEST)], incomplete)


def active_jobs(incomplete: str) -> list[str]:
    """Ids of jobs that have not ended."""
    return _asked(lambda rainbow: [j.id for j in rainbow.jobs(limit=_NEWEST) if not j.terminal], incomplete)


def states(incomplete: str) -> list[str]:
    """States of jobs."""
    from rainbow.models.job import STATES

    return [word for word in ("active", "ended", *STATES) if word.startswith(incomplete)]


def selections(incomplete: str) -> list[str]:
    """Names of selection algorithms that are installed here."""
    from importlib.metadata import entry_points

    return sorted({p.name for p in entry_points(group="rainbow.selection") if p.name.startswith(incomplete)})
