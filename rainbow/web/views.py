"""What the pages show, computed from what the client returns. No HTML here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rainbow import topology
from rainbow.models.job import TERMINAL, JobRecord
from rainbow.models.requests import JobPage

#: States in the order of a job's life, as its timeline shows them.
_STEPS = ("submitted", "held", "assigned", "accepted", "running", "ended")


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
        elif cluster["status"] == "closed":
            found.append(f"{name} is closed: no job would start there now. `rainbow clusters {name}` says why.")
        elif cluster["status"] == "drained":
            found.append(f"{name} is drained: `rainbow clusters resume {name}` lets jobs in again.")
    dead = seen["queues"].get("rainbow.dead")
    if dead:
        found.append(f"{dead} dead letters: the page Dead letters and `rainbow dead list` show them.")
    if not seen["clusters"]:
        found.append("No cluster is registered: start an agent, or see `rainbow register --help`.")
    return found


@dataclass(frozen=True, slots=True)
class Wait:
    """Jobs of one user that wait for the same thing. `since` is when the oldest of them was submitted."""

    why: str
    user: str
    jobs: int
    since: float
    detail: str
    link: Mapping[str, str]


#: What a held job waits for, by its code.
_WAITS_FOR = {
    "waiting": "room on a cluster",
    "dependency": "other jobs",
    "begin-time": "its time to begin",
    "bidding": "bids of clusters",
    "array": "its first element to start",
}


def waits(pages: Sequence[JobPage]) -> list[Wait]:
    """Who waits for what, most jobs first: held jobs by their reason, and those that a cluster has not started yet."""
    groups: dict[tuple[str, str], list[tuple[float, JobRecord]]] = {}
    for at, job in ((at, job) for page in pages for at, job in zip(page.at, page.jobs, strict=True)):
        code = job.code or "waiting"
        why = _WAITS_FOR.get(code, code) if job.state == "held" else f"{job.cluster} to start it"
        groups.setdefault((why, job.user or "-"), []).append((at, job))
    found = []
    for (why, user), jobs in groups.items():
        newest = jobs[0][1]
        link = {"state": newest.state, "user": newest.user or "", "cluster": newest.cluster or ""}
        found.append(Wait(why, user, len(jobs), min(at for at, _ in jobs), newest.detail or "", link))
    return sorted(found, key=lambda wait: (-wait.jobs, wait.why, wait.user))


@dataclass(frozen=True, slots=True)
class Share:
    """What an account (`user` is None) or one of its users is due and had, in per cent, and the jobs it has now.

    `limits` are words; empty where none is set.
    """

    account: str
    user: str | None
    weight: float
    due: float | None
    had: float
    waiting: int
    running: int
    limits: str


_LIMITS = {"max_running": "{} running", "max_waiting": "{} waiting", "max_rate": "{} a second"}


def shares(due: Sequence[Mapping[str, Any]], users: Sequence[Mapping[str, Any]]) -> list[Share]:
    """The rows of `Client.shares` with the jobs of `Client.queue`; an account has those of its users."""
    jobs = {(row["account"], row["user"]): (row["waiting"], row["running"]) for row in users}
    found = []
    for row in due:
        account, user = row["account"] or "", row["user"]
        mine = [n for (of, who), n in jobs.items() if of == account and user in (None, who)]
        limits = [words.format(f"{row[name]:g}") for name, words in _LIMITS.items() if row.get(name) is not None]
        share = None if row["share"] is None else round(100 * row["share"], 1)
        waiting, running = (sum(n[at] for n in mine) for at in (0, 1))
        had = round(100 * row["usage"], 1)
        found.append(Share(account, user, row["weight"], share, had, waiting, running, ", ".join(limits)))
    return found


@dataclass(frozen=True, slots=True)
class UserJobs:
    """How many of the newest jobs are a user's, by what became of them."""

    user: str
    jobs: int
    waiting: int
    running: int
    completed: int
    other: int
    newest: float


_WAITING = frozenset({"submitted", "held", "assigned", "rejected", "accepted"})


def users(page: JobPage) -> list[UserJobs]:
    """Jobs of a page by user, most jobs first."""
    by_user: dict[str, list[tuple[float, str]]] = {}
    for at, job in zip(page.at, page.jobs, strict=True):
        by_user.setdefault(job.user or "", []).append((at, job.state))
    found = []
    for user, jobs in by_user.items():
        states = Counter("waiting" if state in _WAITING else state for _, state in jobs)
        waiting, running, completed = (states[name] for name in ("waiting", "running", "completed"))
        other = len(jobs) - waiting - running - completed
        found.append(UserJobs(user, len(jobs), waiting, running, completed, other, max(at for at, _ in jobs)))
    return sorted(found, key=lambda one: (-one.jobs, one.user))


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
    ends = [*(at for _, at in known[1:]), None]
    return [
        Step(record.state if name == "ended" else name, at, None if end is None else end - at)
        for (name, at), end in zip(known, ends, strict=False)
    ]


@dataclass(frozen=True, slots=True)
class Part:
    """A step as a piece of a bar; `x` and `width` are in per mille of it."""

    name: str
    took: float
    x: float
    width: float


def parts(steps: Sequence[Step], now: float) -> list[Part]:
    """The steps of a life in proportion to the time that they took; one that goes on lasts until `now`."""
    lengths = [(step.name, step.took if step.took is not None else max(0.0, now - step.at)) for step in steps]
    if steps and steps[-1].took is None and steps[-1].name in TERMINAL:
        lengths.pop()
    total = sum(took for _, took in lengths) or 1.0
    found, at = [], 0.0
    for name, took in lengths:
        width = 1000 * took / total
        found.append(Part(name, took, round(at, 2), round(width, 2)))
        at += width
    return found


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a cluster does not run jobs: a code, how many of the newest jobs, and one of them with what was said."""

    code: str
    jobs: int
    detail: str
    job: JobRecord


def refusals(jobs: Sequence[JobRecord], cluster: str) -> list[Refusal]:
    """Why this cluster was not given, or refused, some of these jobs; the most frequent reason first."""
    found: dict[str, Refusal] = {}
    for job in jobs:
        why = next((e for e in job.history if e.get("state") == "rejected" and e.get("cluster") == cluster), None)
        if why is None and job.cluster != cluster:
            why = ((job.answer or {}).get("reasons") or {}).get(cluster)
        if why:
            code = str(why.get("code", ""))
            known = found.get(code)
            newest = known or Refusal(code, 0, str(why.get("detail", "")), job)
            found[code] = replace(newest, jobs=newest.jobs + 1)
    return sorted(found.values(), key=lambda refusal: -refusal.jobs)


def queues(depths: Mapping[str, int | None]) -> dict[str, int | None]:
    """Depths by queue, the lanes of the waiting room as one."""
    lanes = [name for name in depths if name.startswith(f"{topology.WAITING}.") and name != topology.DEPENDENTS_QUEUE]
    known = [depth for name in lanes if (depth := depths[name]) is not None]
    found = {name: depth for name, depth in depths.items() if name not in lanes}
    return {**found, f"{topology.WAITING}.*": sum(known) if known else None} if lanes else found


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
