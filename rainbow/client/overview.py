"""What is going on in all, at one moment: clusters, queues, and how many jobs came, started and ended of late."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rainbow import topology

if TYPE_CHECKING:
    from rainbow.client import Client, ClusterView
    from rainbow.models.job import JobRecord

#: Seconds that the rates are of, and the newest jobs that are counted for them.
WINDOW = 60.0
MOST_JOBS = 1000
#: Clusters whose queues are looked at: each is a question to the broker.
_MOST_QUEUES = 50
_RATES = {"submitted": "submitted", "assigned": "assigned", "running": "started", "ended": "ended"}


def look(client: Client) -> dict[str, Any]:
    """``{at, clusters: [{name, status, nodes, ..._free, pending, running, queued, heard_at}], queues: {name: count},
    rates: {submitted, assigned, started, ended, at_least}}``: rates are jobs of the last minute, `at_least` says that
    there were more than could be looked at. None is for what is not known, or may not be."""
    clusters = sorted(client.clusters(), key=lambda c: (-(_number(c.state.get("jobs_pending")) or 0), c.name))
    dispatch = [topology.jobs_queue(c.name) for c in clusters[:_MOST_QUEUES]]
    core = [q.name for q in topology.core().queues if not q.name.startswith(topology.HOLD)]
    waiting = client.waiting([*core, *dispatch])
    return {
        "at": time.time(),
        "clusters": [_cluster(c, waiting.get(topology.jobs_queue(c.name))) for c in clusters],
        "queues": {name: waiting[name] for name in core},
        "rates": rates(client.jobs(limit=MOST_JOBS), time.time()),
    }


def rates(jobs: Sequence[JobRecord], now: float) -> dict[str, Any]:
    """Jobs that were submitted, assigned, started and ended within the last minute, of these newest ones."""
    since = now - WINDOW
    counts = {name: sum(1 for job in jobs if job.times.get(key, 0.0) >= since) for key, name in _RATES.items()}
    oldest = min((job.times.get("submitted", now) for job in jobs), default=now)
    return {**counts, "at_least": len(jobs) >= MOST_JOBS and oldest >= since}


def _cluster(c: ClusterView, queued: int | None) -> dict[str, Any]:
    state = c.state
    return {
        "name": c.name,
        "status": c.status,
        **{plural: c.totals.get(kind, 0) for kind, plural in (("node", "nodes"), ("core", "cores"), ("gpu", "gpus"))},
        **{f"{kind}_free": _number(state.get(f"{kind}_free")) for kind in ("nodes", "cores", "gpus")},
        "pending": _number(state.get("jobs_pending")),
        "running": _number(state.get("jobs_running")),
        "queued": queued,
        "heard_at": c.heartbeat_at,
    }


def _number(value: object) -> int | float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
