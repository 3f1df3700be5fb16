"""Two users with more jobs than there is room for: who comes later does not wait for all that came before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from rainbow.client import Client
from rainbow.client.submission import JobFields
from rainbow.demo.clusters import GUEST, MEMBER
from rainbow.errors import RainbowError
from rainbow.models.job import JobRecord

#: Jobs of each user, in the order of submission. Nine fit at once: three on red, six on tiny, none on aqua.
JOBS = {MEMBER: 60, GUEST: 15}
_JOB: JobFields = {"command": ["sleep", "0.3"], "cores_per_task": 12, "name": "sweep"}
_WAIT_S = 120.0


@dataclass(frozen=True)
class Turn:
    """How the jobs of one user fared, in seconds since the first submission."""

    user: str
    jobs: int
    clusters: tuple[str, ...]
    median_wait: float
    last_start: float


def share(clients: Mapping[str, Client]) -> list[Turn]:
    """Submit the jobs of one user after the other's, and wait for all of them.

    Raises:
        RainbowError: A job did not complete.
    """
    submitted = {user: clients[user].submit_many([_JOB] * count) for user, count in JOBS.items()}
    records: dict[str, list[JobRecord]] = {}
    for user, jobs in submitted.items():
        for job in jobs:
            job.wait(_WAIT_S)
        records[user] = [job.status() for job in jobs]
    began = min(record.times["submitted"] for listed in records.values() for record in listed)
    return [_turn(user, listed, began) for user, listed in records.items()]


def problems(turns: list[Turn]) -> list[str]:
    """What is not as it must be, a line each."""
    last = {turn.user: turn.last_start for turn in turns}
    if last[GUEST] >= last[MEMBER]:
        return [f"the jobs of {GUEST} waited for all jobs of {MEMBER}"]
    return []


def _turn(user: str, records: list[JobRecord], began: float) -> Turn:
    for record in records:
        if record.state != "completed":
            raise RainbowError(f"job {record.id} of user {user} ended {record.state}: {record.detail or ''}")
    starts = [record.times["running"] for record in records]
    waits = [record.times["running"] - record.times["submitted"] for record in records]
    clusters = tuple(sorted({record.cluster for record in records if record.cluster is not None}))
    return Turn(user, len(records), clusters, median(waits), max(starts) - began)
