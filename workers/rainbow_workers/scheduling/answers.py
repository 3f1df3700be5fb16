"""What is told about a job: answers to its submitter, and events, made of decisions and records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

from rainbow import codec
from rainbow.brokers.base import Message
from rainbow.models.arrays import Element
from rainbow.models.job import JobEvent, JobRecord, Reason
from rainbow_workers.scheduling.decide import Decision, Job
from rainbow_workers.scheduling.looked import seen
from rainbow_workers.scheduling.pending_job import PendingJob


def happened(job: Job, state: Any, now: float, **more: Any) -> JobEvent:
    """Something that happened to a job before it was assigned (anew)."""
    whose = {"user": job.user, "account": job.account, "name": job.name, **which(job.element)}
    if job.array is not None:
        whose["indices"] = job.array.text
    return JobEvent(id=job.id, attempt=max(0, job.attempt - 1), state=state, at=now, **whose, **more)


def which(element: Element | None) -> dict[str, Any]:
    """The fields of an event that say which element of an array a job is."""
    return {} if element is None else {"array": element.array, "index": element.index}


def summed_up(reasons: Mapping[str, Reason], most: int = 3) -> str | None:
    """The first few reasons in one line, for lists: the answer has them all."""
    shown = [f"{cluster}: {reason.detail or reason.code}" for cluster, reason in islice(reasons.items(), most)]
    if len(reasons) > most:
        shown.append(f"and {len(reasons) - most} more")
    return "; ".join(shown) or None


def assigned(job: Job | None, cluster: str | None, now: float) -> str:
    """The event of an assignment, in JSON: made on the hot path, so as plain text. An id is a UUID."""
    assert job is not None
    return (
        f'{{"id":"{job.id}","attempt":{job.attempt},"cluster":{_quoted(cluster)},"state":"assigned","at":{now!r},'
        f'"user":{_quoted(job.user)}}}'
    )


@lru_cache(maxsize=1024)
def _quoted(text: str | None) -> str:
    return json.dumps(text)


def told_of(told: Sequence[str]) -> bytes:
    """A message of events that are in JSON already."""
    return f'{{"version":1,"events":[{",".join(told)}]}}'.encode()


def first_answer(job_id: str, record: JobRecord) -> dict[str, Any]:
    """The answer to an id that was used before: what was answered first, and how the job is now."""
    first = {"version": 1, "cluster": record.cluster, "attempt": record.attempt, **(record.answer or {})}
    return {**first, "id": job_id, "status": "duplicate", "state": record.state}


def answer(job_id: str, decision: Decision, attempt: int) -> dict[str, Any]:
    """`rainbow.models.job.Answer` as it is sent: made on the hot path, so as a plain mapping."""
    return {**terms(job_id, decision, attempt), **looked(decision)}


def terms(job_id: str, decision: Decision, attempt: int) -> dict[str, Any]:
    """What an answer says of this job alone."""
    d = decision
    return {
        "version": 1,
        "id": job_id,
        "status": d.status,
        "cluster": d.cluster,
        "attempt": attempt,
        "selection": d.terms,
    }


def looked(decision: Decision) -> Mapping[str, Any]:
    """What it says of the clusters: the same object for jobs of one kind, as long as nothing changes."""
    d = decision
    return d.looked or seen(d.clusters, d.total_clusters, d.total_matches, d.reasons)


def to_submitter(pending: PendingJob, body: Mapping[str, Any]) -> Message:
    """`body` as an answer to the address that came with a submission. An address that is gone loses nothing."""
    correlation = pending.correlation_id or pending.id
    return Message("", pending.reply_to or "", codec.encode_json(body), correlation_id=correlation, mandatory=False)


def first_answers(jobs: Sequence[PendingJob], records: Sequence[JobRecord]) -> list[Message]:
    """What their submitters were told of these jobs before, for those who wait for an answer again."""
    return [
        to_submitter(pending, first_answer(pending.id, record))
        for pending, record in zip(jobs, records, strict=True)
        if pending.reply_to
    ]
