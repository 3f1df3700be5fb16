"""Telling of what the ledger has: events for those who listen, and records for those who watch a job."""

from __future__ import annotations

from collections.abc import Sequence

from rainbow import codec, topology
from rainbow.brokers.base import Message
from rainbow.models.control import ControlReply
from rainbow.models.job import JobEvent
from rainbow.security import signing
from rainbow_workers.headers import RECORDED
from rainbow_workers.keys import ClusterKeys
from rainbow_workers.stores.base import Recorded


def stands(event: JobEvent, recorded: Recorded) -> bool:
    """Whether the ledger says what `event` says: it was applied, now or when it was recorded before.

    Only such an event is told. One that came too late (the job went on meanwhile) is no news of the job.
    """
    return recorded.applied or (
        (recorded.record.attempt, recorded.record.state) == (event.attempt, event.state) and not recorded.refused
    )


def recorded_event(keys: ClusterKeys, state: str, body: bytes) -> Message:
    """Events of one state, in JSON, that a worker recorded itself: recorders leave them alone."""
    headers = {signing.HEADER: signing.sign(keys.own, body), RECORDED: True}
    return Message(topology.EVENTS, topology.event_key(None, state), body, headers=headers)


def recorded_events(keys: ClusterKeys, events: Sequence[JobEvent]) -> list[Message]:
    """One message for each state."""
    out: list[Message] = []
    for state in dict.fromkeys(e.state for e in events):
        listed = [e.model_dump(exclude_none=True) for e in events if e.state == state]
        out.append(recorded_event(keys, state, codec.encode_json({"version": 1, "events": listed})))
    return out


def news(recorded: Recorded) -> list[Message]:
    """What to tell those who watch the job: its record, to each of them."""
    if not recorded.watchers or not recorded.applied:
        return []
    result = {"jobs": [recorded.record.model_dump(exclude_none=True)]}
    body = codec.encode_json(ControlReply(ok=True, result=result).model_dump(exclude_none=True))
    return [
        Message("", address, body, correlation_id=correlation, mandatory=False)
        for address, correlation in recorded.watchers
    ]
