"""The journal compared with the executor: what was missed, what nobody asked for, what is lost. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from rainbow_agents.executors.base import Ended, Found, Held, Recovery, Started, SubmissionKey
from rainbow_agents.journal import OVER, Row

#: Seconds that a try to submit may be under way before its held job belongs to nobody.
_ABANDONED = 900.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What there is to do.

    `missing` are jobs that the executor does not know any more; `strangers` those of an instance that was replaced;
    `unclear` those that could not be looked up, with the reason.
    """

    progress: list[Started | Ended] = field(default_factory=list)
    orphans: list[Held] = field(default_factory=list)
    release: list[Held] = field(default_factory=list)
    cancel: list[tuple[Held, str]] = field(default_factory=list)
    missing: list[Row] = field(default_factory=list)
    strangers: list[Row] = field(default_factory=list)
    unclear: list[tuple[Row, str]] = field(default_factory=list)


def compare(recovery: Recovery, rows: Iterable[Row], known: Callable[[Found], Row | None], now: float) -> Plan:
    """Compare `rows` of the journal with what the executor has. `known` gives the row of a found job, over or not."""
    plan = Plan()
    found = {job.mark for job in recovery.jobs}
    for job in recovery.jobs:
        _compare_one(plan, job, known(job), now)
    trouble: dict[SubmissionKey, str] = {t.mark: t.reason for t in recovery.trouble}
    for row in rows:
        if row.mark in found:
            continue
        if row.mark in trouble:
            plan.unclear.append((row, trouble[row.mark]))
        else:
            (plan.missing if row.incarnation == recovery.incarnation else plan.strangers).append(row)
    return plan


def _compare_one(plan: Plan, job: Found, row: Row | None, now: float) -> None:
    held = Held(job.mark, job.handle, row.priority if row else 16)
    if row is None or row.claim != job.mark.claim or row.state in OVER or row.state == "returned":
        if job.phase in ("held", "queued"):
            plan.orphans.append(held)
        return
    if row.state == "taken":
        # Its outcome is on its way to whoever took it; unless that agent died and nobody will come for it.
        if job.phase == "held" and now - row.changed_at > _ABANDONED:
            plan.orphans.append(held)
        return
    if job.phase == "ended":
        if job.ended is not None:
            if job.started_at is not None:
                plan.progress.append(Started(job.mark, job.handle, job.started_at))
            plan.progress.append(job.ended)
        return
    if row.cancel is not None:
        plan.cancel.append((held, row.cancel))
    elif job.phase == "held" and row.released:
        # Never released there, though it was here: the release was lost. One that an operator holds is `queued`.
        plan.release.append(held)
    if job.phase == "running" and row.state == "accepted":
        plan.progress.append(Started(job.mark, job.handle, job.started_at or now))


__all__ = ["Plan", "compare"]
