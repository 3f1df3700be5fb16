"""From the facts of Flux jobs, as the session sends them, to events and findings of the executor contract."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rainbow_agents.executors.base import (
    Changed,
    Down,
    Ended,
    EndState,
    ExecutorEvent,
    Found,
    Phase,
    Recovery,
    Refused,
    Started,
    SubmissionKey,
    Submitted,
    Trouble,
    Undecided,
    Up,
)


def event_of(message: Mapping[str, Any]) -> ExecutorEvent:
    """The event that a message of the session stands for."""
    kind = message["type"]
    if kind == "up":
        return Up(message["incarnation"])
    if kind == "down":
        return Down(message["reason"])
    if kind == "changed":
        return Changed(message["graph"])
    mark = mark_of(message["mark"])
    if kind == "submitted":
        return Submitted(mark, ",".join(message["names"]), message["incarnation"])
    if kind == "refused":
        return Refused(mark, message["code"], str(message["detail"])[:1000])
    if kind == "undecided":
        return Undecided(mark, message["detail"])
    if kind == "started":
        return Started(mark, ",".join(message["names"]), message["at"])
    return ended_of(mark, ",".join(p["name"] for p in message["parts"]), message["parts"])


def mark_of(data: Mapping[str, Any]) -> SubmissionKey:
    return SubmissionKey(data["id"], data["attempt"], data["claim"])


def ended_of(mark: SubmissionKey, handle: str, parts: Sequence[Mapping[str, Any]]) -> Ended:
    """How a job ended, from its parts: the first that did not succeed decides."""
    part = next((p for p in parts if _result(p)[0] != "completed"), parts[-1])
    state, returncode, code, detail = _result(part)
    return Ended(
        mark=mark,
        handle=handle,
        at=max(float(p["ended"] or time.time()) for p in parts),
        state=state,
        returncode=returncode,
        code=code,
        detail=detail,
        output=part["output"],
    )


def found_of(job: Mapping[str, Any], handles: Mapping[SubmissionKey, str]) -> Found | None:
    """A job that was found; None when it is over and only some of its parts are left."""
    mark = mark_of(job["mark"])
    parts = job["parts"]
    handle = handles.get(mark) or ",".join(p["name"] for p in parts)
    started = min((p["started"] for p in parts if p["started"] is not None), default=None)
    live = [p for p in parts if p["ended"] is None]
    phase: Phase
    if not live:
        return Found(mark, handle, "ended", started, ended_of(mark, handle, parts)) if job["whole"] else None
    if started is not None:
        phase = "running"
    else:
        phase = "held" if any(p["held"] for p in live) else "queued"
    return Found(mark, handle, phase, started)


def recovery_of(answer: Mapping[str, Any], handles: Mapping[SubmissionKey, str]) -> Recovery:
    found = (found_of(job, handles) for job in answer["jobs"])
    trouble = (Trouble(mark_of(t["mark"]), t["reason"]) for t in answer["trouble"])
    return Recovery(answer["incarnation"], tuple(f for f in found if f is not None), tuple(trouble))


def _result(part: Mapping[str, Any]) -> tuple[EndState, int | None, str | None, str | None]:
    """State, return code, code and detail of one Flux job: by its last fatal exception, then its wait status.

    A job that ended before it started, or between, may have no `finish` event and so no status.
    """
    status, exception = part["status"], part["exception"]
    returncode = os.waitstatus_to_exitcode(status) if status is not None else None
    if exception is None:
        if returncode is None:
            return "failed", 1, "no-finish", "Flux recorded no end of its tasks"
        return ("completed" if returncode == 0 else "failed"), returncode, None, None
    kind, note = str(exception["type"]), exception["note"] or None
    if kind == "cancel":
        return "cancelled", returncode, kind, note
    return "failed", 1 if returncode is None else returncode, kind, note


__all__ = ["ended_of", "event_of", "found_of", "mark_of", "recovery_of"]
