"""The ClusterTable on Redis."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from typing import Any, cast

from pydantic import ValidationError

from rainbow.jobspec.request import Demand
from rainbow.models.cluster import ClusterRecord, ClusterState, Revocation, StateReport, StateValue
from rainbow_workers.stores import StoreOptions
from rainbow_workers.stores.base import Changes, Epoch, Overtaken
from rainbow_workers.stores.redis.codec import (
    moment,
    number,
    pack,
    pack_record,
    pairs,
    text,
    unpack,
    unpack_text,
)
from rainbow_workers.stores.redis.connection import Connection

log = logging.getLogger(__name__)

#: How many deleted clusters are remembered for readers that have not heard of it yet; one that was away for longer
#: reads everything anew.
TOMBSTONES = 1000


class RedisClusters:
    """See `rainbow_workers.stores.base.ClusterTable`."""

    def __init__(self, connection: Connection, options: StoreOptions) -> None:
        self._connection = connection
        self._options = options

    def changes(self, since: int) -> Changes:
        reply = self._connection.run("changes", since)
        changes = decode_changes(reply, since, self._options.alive_after)
        self._connection.seen = max(self._connection.seen, changes.version)
        return changes

    def wait(self, since: int, timeout: float) -> bool:
        return self._connection.wait("relief", since, timeout)

    def put(self, record: ClusterRecord, expect: str | None) -> None:
        outcome = self._connection.run(
            "put",
            record.name,
            pack_record(record),
            record.registration,
            0 if expect is None else 1,
            expect or "",
        )
        if outcome != 1:
            what = "was registered or changed by somebody else" if outcome == 0 else "is not registered any more"
            raise Overtaken(f"cluster {record.name!r} {what}")

    def delete(self, name: str) -> None:
        self._connection.run("delete", name, TOMBSTONES)

    def report(self, reports: Sequence[StateReport], at: float) -> None:
        if not reports:
            return
        at = moment(at)
        packed = pack(
            [
                [
                    r.cluster,
                    False if r.registration is None else r.registration,
                    r.heartbeat,
                    [part for key, value in r.values.items() for part in (f"v:{key}", f"{at!r} {_scalar(value)}")],
                    [[id, number(attempt)] for id, attempt in r.included],
                ]
                for r in reports
            ]
        )
        self._connection.run("report", packed, repr(at))

    def set_group(self, group: str, members: frozenset[str]) -> None:
        self._connection.run("group", group, " ".join(sorted(members)))

    def revoke(self, revocation: Revocation) -> None:
        key = f"{revocation.kind} {revocation.value}".encode("utf-8", "surrogatepass")
        self._connection.run("revoke", key, repr(revocation.before), repr(revocation.until))


def _scalar(value: StateValue) -> str:
    """A value as JSON, without the cost of a JSON encoder for the usual numbers."""
    kind = type(value)
    if kind is int:
        return int.__repr__(cast(int, value))
    if kind is float:
        return json.dumps(value)
    return json.dumps(value)


def _read_record(name: str, data: bytes) -> ClusterRecord | None:
    try:
        return ClusterRecord.model_validate(unpack_text(data))
    except (ValidationError, ValueError) as exc:
        # Of a release we do not know: its agent registers it again. Until then it is not there for us.
        log.warning(
            "the record of cluster %s in the store cannot be read: register it again (%s)",
            name,
            type(exc).__name__,
            extra={"action": "store.unreadable", "cluster": name},
        )
        return None


def decode_changes(reply: list[Any], since: int, alive_after: float) -> Changes:
    """Changes from the reply of `lua/lib/changes.lua`."""
    version, reset, names, records, packed, groups, revocations, now, epoch = reply
    everything = bool(reset) or since <= 0
    clusters: dict[str, ClusterRecord | None] = {}
    for raw, data in zip(names, records, strict=True):
        name = text(raw)
        record = None if data is None else _read_record(name, data)
        if record is not None or not everything:
            clusters[name] = record
    states, reserved = unpack(packed)
    here = time.time()
    return Changes(
        version=int(version),
        clusters=clusters,
        states={text(name): _state(pairs(fields), here, alive_after) for name, fields in states},
        reserved={text(name): Demand(*map(int, demand.split())) for name, demand in reserved},
        groups=None if groups is None else _groups(groups),
        revocations=None if revocations is None else _revocations(revocations, float(now)),
        reset=bool(reset),
        epoch=Epoch(int(epoch[0]), here - (float(now) - float(epoch[1])), epoch[2] == b"1"),
    )


def _state(fields: Any, now: float, alive_after: float) -> ClusterState:
    beat = float(fields.get(b"beat", 0))
    return ClusterState(
        values={
            text(key[2:]): json.loads(value.partition(b" ")[2])
            for key, value in fields.items()
            if key.startswith(b"v:")
        },
        at=float(fields.get(b"at", 0)),
        heartbeat_at=beat,
        alive=beat > 0.0 and now - beat <= alive_after,
    )


def _groups(flat: list[bytes]) -> dict[str, frozenset[str]]:
    return {text(group): frozenset(text(members).split(" ")) for group, members in pairs(flat).items()}


def _revocations(flat: list[bytes], now: float) -> list[Revocation]:
    out = []
    for key, times in pairs(flat).items():
        kind, _, value = text(key).partition(" ")
        before, until = map(float, times.split())
        if until > now:
            out.append(Revocation.model_validate({"kind": kind, "value": value, "before": before, "until": until}))
    return out
