"""What the pages show, computed from what the client returns. No HTML here."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rainbow.models.job import TERMINAL, JobRecord
from rainbow.models.requests import JobPage

#: States in the order of a job's life, as its timeline shows them.
_STEPS = ("submitted", "assigned", "accepted", "running", "ended")
#: Bars that a timeline draws at most: the newest ones.
MOST_BARS = 500


def stamp(seconds: float | None) -> str:
    """A time in UTC, ISO 8601."""
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(seconds)) if seconds else "-"


def span(seconds: float | None) -> str:
    """A length of time: ``950 ms``, ``12.3 s``, ``5 min``, ``3.2 h``, ``2.0 d``."""
    if seconds is None:
        return "-"
    for length, unit in ((86400.0, "d"), (3600.0, "h")):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    if seconds >= 120:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{max(0.0, seconds) * 1000:.0f} ms"


def share(free: float | None, total: float | None) -> int | None:
    """How much is in use, in per cent; None when it is not known."""
    if free is None or not total:
        return None
    return round(100 * min(1.0, max(0.0, 1 - free / total)))


def attention(seen: Mapping[str, Any]) -> list[str]:
    """What an operator should look at, most urgent first, each with the command that helps."""
    found: list[str] = []
    for cluster in seen["clusters"]:
        name = cluster["name"]
        if cluster["status"] == "silent":
            found.append(f"{name} is silent: no heartbeat of its agent. Check `rainbow-agent check` there.")
        elif cluster["status"] == "throttled":
            found.append(f"{name} is throttled: jobs fail there at once. See `rainbow jobs --cluster {name}`.")
        elif cluster["status"] == "drained":
            found.append(f"{name} is drained: `rainbow clusters resume {name}` lets jobs in again.")
    dead = seen["queues"].get("rainbow.dead")
    if dead:
        found.append(f"{dead} dead letters: `rainbow dead list` shows them.")
    if not seen["clusters"]:
        found.append("No cluster is registered: start an agent, or see `rainbow register --help`.")
    return found


def searched(page: JobPage, text: str, most: int) -> tuple[list[JobRecord], str | None]:
    """The first `most` jobs of a page that have `text` in their id, name, user or note, and where to go on."""
    found: list[JobRecord] = []
    for index, job in enumerate(page.jobs):
        if any(text in (value or "") for value in (job.id, job.name, job.user, job.detail)):
            found.append(job)
            if len(found) == most:
                return found, page.position(index) if index + 1 < len(page.jobs) else page.next
    return found, page.next


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a job's life. `at` is seconds since 1970, `took` the seconds until the next step."""

    name: str
    at: float
    took: float | None


def life(record: JobRecord) -> list[Step]:
    """The steps that a job has taken, in order."""
    known = [(name, record.times[name]) for name in _STEPS if name in record.times]
    known.sort(key=lambda step: step[1])
    ends = [at for _, at in known[1:]] + [None]
    return [
        Step(record.state if name == "ended" else name, at, None if end is None else end - at)
        for (name, at), end in zip(known, ends, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a cluster was chosen or not."""

    cluster: str
    match: str
    code: str
    detail: str


def reasons(record: JobRecord) -> list[Reason]:
    """Cluster by cluster, from the scheduler's answer."""
    answer = record.answer or {}
    given: Mapping[str, Any] = answer.get("reasons") or {}
    fitting = set(answer.get("clusters") or ())
    out = []
    for name in sorted({*given, *fitting, *([record.cluster] if record.cluster else [])}):
        why = given.get(name) or {}
        match = "chosen" if name == record.cluster else "fits" if name in fitting else "-"
        out.append(Reason(name, match, str(why.get("code", "")), str(why.get("detail", ""))))
    return out


@dataclass(frozen=True, slots=True)
class Bar:
    """A job in the timeline of its cluster; positions are in per mille of the window."""

    id: str
    title: str
    state: str
    lane: int
    wait_x: float
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Lane:
    """The bars of one cluster, in `rows` rows that do not overlap."""

    cluster: str
    rows: int
    bars: list[Bar]


def timeline(records: Sequence[JobRecord], since: float, until: float) -> list[Lane]:
    """Gantt bars of jobs that ran between two times, cluster by cluster.

    Args:
        records: newest first, as `Client.jobs` returns them.
        since: seconds since 1970, the left edge.
        until: the right edge.
    """
    span_s = max(1e-9, until - since)

    def place(at: float) -> float:
        return round(1000 * min(1.0, max(0.0, (at - since) / span_s)), 2)

    lanes: dict[str, list[tuple[float, float, float, JobRecord]]] = {}
    for record in records[:MOST_BARS]:
        start = record.times.get("running") or record.times.get("accepted") or record.times.get("assigned")
        if record.cluster is None or start is None:
            continue
        end = record.times.get("ended", until if record.state not in TERMINAL else start)
        if end >= since and start <= until:
            lanes.setdefault(record.cluster, []).append((start, end, record.times.get("submitted", start), record))
    out = []
    for cluster, jobs in sorted(lanes.items()):
        rows: list[float] = []
        bars = []
        for start, end, submitted, record in sorted(jobs, key=lambda job: job[0]):
            row = next((at for at, free in enumerate(rows) if free <= start), len(rows))
            rows[row : row + 1] = [end]
            title = f"{record.name or record.id}: {record.state}, waited {span(start - submitted)}, {span(end - start)}"
            width = max(1.0, place(end) - place(start))
            bars.append(Bar(record.id, title, record.state, row, place(submitted), place(start), width))
        out.append(Lane(cluster, len(rows), bars))
    return out
