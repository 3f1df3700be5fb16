"""What both stores keep of an event, and for how long: the parts of the contract that are plain values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rainbow.models.job import BEGUN, TERMINAL, JobEvent, JobRecord
from rainbow_workers.stores.base import Assignment, Cursor, Page

#: Seconds for which the cancel of an unknown job is remembered.
MARK_TTL = 86_400.0
#: How many of these are remembered of one asker: the newest.
MAX_MARKS = 1000

#: How many jobs that moved are told of: the newest. And, on Redis, for how many seconds after the last look somebody is
#: known to wait for a job.
MAX_MOVED, AWAITED_TTL = 100_000, 90 * 86_400
#: The code of an array that is held until the first of its elements starts.
ARRAY = "array"
#: States in which a job is on a cluster, or on its way there.
ON_CLUSTER = frozenset({"assigned", *BEGUN})

#: What an attempt leaves on the record; the next one starts without.
OF_ATTEMPT = ("flux_id", "returncode", "code", "detail", "output")
#: What an event may say about the job.
FIELDS = ("cluster", "user", "account", "name", "array", "index", "indices", *OF_ATTEMPT)

_KEPT = ("cluster", "flux_id", "returncode", "code", "detail")


def head(max_history: int) -> int:
    """How many of `max_history` entries are for the beginning of a job; the others are for its latest events."""
    return max(1, max_history // 4)


def time_key(state: str) -> str:
    """The key in `JobRecord.times` for the first time of `state`."""
    return "ended" if state in TERMINAL else state


def said(event: JobEvent) -> dict[str, Any]:
    """The fields of the record that `event` sets."""
    has = event.__dict__
    return {name: has[name] for name in FIELDS if has[name] is not None}


def event_entry(event: JobEvent) -> dict[str, Any]:
    """The history entry of an event: ``{state, attempt, at}`` and what it says of cluster, Flux id and reason."""
    has = event.__dict__
    entry = {"state": event.state, "attempt": event.attempt, "at": event.at}
    entry.update({name: has[name] for name in _KEPT if has[name] is not None})
    return entry


def assignment_entry(a: Assignment) -> dict[str, Any]:
    """The history entry of an assignment."""
    return {"state": "assigned", "attempt": a.attempt, "at": a.at, "cluster": a.cluster}


def newest(page: Callable[..., Page], limit: int, **filters: str | None) -> list[JobRecord]:
    """The newest `limit` jobs, page by page."""
    found: list[JobRecord] = []
    before: Cursor | None = None
    while len(found) < limit:
        more = page(limit=limit - len(found), before=before, **filters)
        found += [record for _, record in more.jobs]
        before = more.next
        if before is None:
            break
    return found
