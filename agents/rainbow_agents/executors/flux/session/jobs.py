"""Our jobs as the events of Flux describe them (events: RFC 21).

A rainbow job of several tasks is several Flux jobs, its parts; each carries the same mark and its number among them.
"""

from __future__ import annotations

import json
from typing import Any

import flux.job

Json = dict[str, Any]
Key = tuple[str, int, str]


def key_of(mark: Json) -> Key:
    return (mark["id"], mark["attempt"], mark["claim"])


def name_of(number: int) -> str:
    return str(flux.job.JobID(number).f58plain)


def number_of(name: str) -> int:
    return int(flux.job.JobID(name))


def mark_in(jobspec: Any, owner: str) -> Json | None:
    """Return the mark a job of ours carries, None for any other job."""
    if isinstance(jobspec, str):
        try:
            jobspec = json.loads(jobspec)
        except ValueError:
            return None
    try:
        mark = jobspec["attributes"]["user"]["rainbow"]
        if mark["owner"] == owner and mark["id"] and mark["claim"] and int(mark["attempt"]) >= 0:
            return dict(mark)
    except (KeyError, TypeError, ValueError):
        pass
    return None


class Part:
    """One Flux job of ours: its state, from its events."""

    def __init__(self, number: int, mark: Json) -> None:
        self.number = number
        self.mark = {"id": mark["id"], "attempt": mark["attempt"], "claim": mark["claim"]}
        self.index: int = mark.get("part", 0)
        self.count: int = mark.get("parts", 1)
        self.urgency = 16
        #: Whether its urgency was ever above 0: if it is 0 again after that, somebody else holds the job.
        self.released = False
        self.started: float | None = None
        self.ended: float | None = None
        self.status: int | None = None
        self.exception: Json | None = None
        self.output: str | None = None
        self.reported = False

    @property
    def key(self) -> Key:
        return key_of(self.mark)

    @property
    def name(self) -> str:
        return name_of(self.number)

    def apply(self, event: Json) -> None:
        """Apply one event (RFC 21)."""
        name, context = event["name"], event.get("context") or {}
        if name in ("submit", "urgency"):
            self.urgency = context.get("urgency", self.urgency)
            self.released = self.released or self.urgency > 0
        elif name == "start":
            self.started = event["timestamp"]
        elif name == "finish":
            self.status = context.get("status")
        elif name == "exception" and context.get("severity") == 0:
            self.exception = {"type": context.get("type"), "note": context.get("note") or ""}
        elif name == "clean":
            self.ended = event["timestamp"]

    def facts(self) -> Json:
        return {
            "name": self.name,
            "held": self.urgency == 0 and not self.released,
            "started": self.started,
            "ended": self.ended,
            "status": self.status,
            "exception": self.exception,
            "output": self.output,
        }


class JobTable:
    """Our jobs by their number in Flux and by their mark."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.by_number: dict[int, Part] = {}
        self.by_key: dict[Key, dict[int, Part]] = {}

    def add(self, part: Part) -> Part:
        self.by_number[part.number] = part
        self.by_key.setdefault(part.key, {})[part.index] = part
        return part

    def apply(self, reply: Json) -> Part | None:
        """Apply a reply of the journal. Return the job it is about when it is one of ours."""
        part = self.by_number.get(reply["id"])
        if part is None:
            mark = mark_in(reply.get("jobspec"), self.owner)
            if mark is None:
                return None
            part = self.add(Part(reply["id"], mark))
        for event in reply["events"]:
            part.apply(event)
        return part

    def parts(self, mark: Json) -> list[Part]:
        """Return the parts of a job, in order."""
        found = self.by_key.get(key_of(mark), {})
        return [found[index] for index in sorted(found)]

    def remove(self, mark: Json) -> None:
        for part in self.by_key.pop(key_of(mark), {}).values():
            self.by_number.pop(part.number, None)
