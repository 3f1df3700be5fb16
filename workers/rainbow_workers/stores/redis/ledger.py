"""The Ledger on Redis."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import repeat
from types import MappingProxyType
from typing import Any

from rainbow.jobspec.request import Demand
from rainbow.models.job import RANK, STARTED, TERMINAL, UNRUN, JobEvent, JobRecord
from rainbow_workers.stores import StoreOptions
from rainbow_workers.stores.base import (
    ANYONE,
    BETWEEN,
    Asker,
    Assigned,
    Assigning,
    Assignment,
    Changes,
    Cursor,
    Page,
    Recorded,
    Sender,
    Tally,
    concerns,
)
from rainbow_workers.stores.history import (
    MARK_TTL,
    MAX_MARKS,
    MAX_MOVED,
    assignment_entry,
    event_entry,
    head,
    newest,
    said,
    time_key,
)
from rainbow_workers.stores.jobspecs import Jobspecs, unpacked
from rainbow_workers.stores.redis.clusters import decode_changes
from rainbow_workers.stores.redis.codec import (
    Shared,
    entry,
    moment,
    number,
    opaque,
    pack,
    record,
    text,
    unpack,
    unpack_text,
)
from rainbow_workers.stores.redis.connection import Connection
from rainbow_workers.stores.redis.placement import placement

#: The rank of every state in which a job has ended.
ENDED = RANK["completed"]

#: How many candidates a page looks at in one call, which never holds the server up for long, and in all; and for how
#: many seconds. Who wants more asks again.
SLICE = 500
LOOKED, PATIENCE = 20_000, 0.25


class RedisLedger:
    """See `rainbow_workers.stores.base.Ledger`."""

    def __init__(self, connection: Connection, options: StoreOptions) -> None:
        self._connection = connection
        self._options = options
        self._head = head(options.max_history)
        self._prefix = options.prefix
        self._jobspecs = Jobspecs(options.jobspec_bytes)

    def assign(self, batch: Sequence[Assignment], since: int) -> Assigned:
        return self.assigning(batch, since, {}).wait()

    def assigning(self, batch: Sequence[Assignment], since: int, room: Mapping[str, Demand]) -> Assigning:
        call = _call_id()
        if not _simple(batch):
            return Assigning(lambda: self._assign(call, batch, since))
        placing = self._connection.begin("place", call, since, *placement(batch, room, self._prefix, self._jobspecs))

        def placed() -> Assigned:
            reply = placing.reply()
            if reply is None:
                return self._assign(call, batch, since)
            done, changed = reply
            outcomes = [None] * len(batch) if done else ()
            return Assigned(outcomes, frozenset(), self._changes(changed, since), crowded=not done)

        return Assigning(placed, placing.drop)

    def _assign(self, call: str, batch: Sequence[Assignment], since: int) -> Assigned:
        """For any batch: what is known of its jobs is read."""
        shared = Shared(self._jobspecs)
        reply = self._connection.run(
            "assign",
            call,
            since,
            self._head,
            self._options.max_history,
            RANK["assigned"],
            pack([_assignment(a, shared) for a in batch]),
            pack(shared.texts),
        )
        letters, standing, changed = text(reply[0]), unpack(reply[1]), reply[2]
        in_the_way = iter(standing)
        outcomes = [record(*next(in_the_way)) if letter == "X" else None for letter in letters]
        repeated = frozenset(i for i, letter in enumerate(letters) if letter == "R")
        return Assigned(outcomes, repeated, self._changes(changed, since))

    def _changes(self, reply: list[Any], since: int) -> Changes:
        changes = decode_changes(reply, since, self._options.alive_after)
        self._connection.seen = max(self._connection.seen, changes.version)
        return changes

    def record(
        self,
        events: Sequence[JobEvent],
        senders: Sequence[Sender | None] = (),
        jobspecs: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ) -> list[Recorded]:
        if not events:
            return []
        shared = Shared(self._jobspecs)
        digests = {id: shared.jobspec(document) for id, document in jobspecs.items()}
        whose = zip(events, senders or repeat(None), strict=bool(senders))
        reply = self._connection.run(
            "record",
            _call_id(),
            repr(self._options.keep),
            self._head,
            self._options.max_history,
            ENDED,
            pack([_event(e, sender, digests.get(e.id)) for e, sender in whose]),
            MAX_MOVED,
            pack(shared.texts),
        )
        letters, records, watchers = unpack(reply)
        return [
            Recorded(partial(record, packed), letter == 49, _addresses(addresses or (), packed), letter == 70)
            for letter, packed, addresses in zip(letters, records, watchers, strict=True)
        ]

    def get(self, ids: Sequence[str]) -> list[JobRecord | None]:
        if not ids:
            return []
        reply = unpack(self._connection.run("get", pack(list(ids))))
        return [_whole(*parts) if parts else None for parts in reply]

    def jobspec(self, id: str) -> dict[str, Any] | None:
        kept = self._connection.run("jobspec", id)
        return unpacked(kept) if kept else None

    def page(
        self,
        *,
        state: str | None,
        cluster: str | None,
        user: str | None,
        limit: int,
        before: Cursor | None = None,
        array: str | None = None,
        text: str | None = None,
    ) -> Page:
        given = [state or False, state in TERMINAL, cluster or False, user or False]
        filters = pack([*given, sorted(TERMINAL), array or False, text or False])
        found: list[tuple[float, JobRecord]] = []
        looked_at, end = 0, time.monotonic() + PATIENCE
        while len(found) < limit and looked_at < LOOKED and (not looked_at or time.monotonic() < end):
            wanted = limit - len(found)
            count = SLICE if looked_at else min(SLICE, wanted)
            at, id = ("", "") if before is None else (repr(before[0]), before[1])
            times, records, last, size = unpack(self._connection.run("find", filters, at, id, count, wanted))
            found += [(float(at), record(packed)) for at, packed in zip(times, records, strict=True)]
            looked_at += size
            if not last:
                return Page(found, None, looked_at)
            before = _cursor(last)
        return Page(found, before, looked_at)

    def find(self, *, state: str | None, cluster: str | None, user: str | None, limit: int) -> list[JobRecord]:
        return newest(self.page, limit, state=state, cluster=cluster, user=user)

    def tally(self) -> dict[tuple[str, str], Tally]:
        flat = self._connection.command("HGETALL", f"{self._prefix}tally")
        counts: dict[tuple[str, str], Tally] = {}
        for field, value in zip(flat[::2], flat[1::2], strict=True):
            kind, account, user = text(field).split(BETWEEN, 2)
            old = counts.get((account, user), Tally())
            many = int(value)
            new = old._replace(waiting=many) if kind == "w" else old._replace(running=many)
            counts[account, user] = new
        return counts

    def watch(self, ids: Sequence[str], address: tuple[str, str], ttl: float, by: Asker = ANYONE) -> None:
        self._connection.run("watch", pack(list(ids)), pack([*address, by]), repr(ttl))

    def cancel(self, ids: Sequence[str], by: Asker | None = ANYONE) -> list[JobRecord | None]:
        if not ids:
            return []
        asker = [] if by is None else [by]
        reply = unpack(self._connection.run("cancel", pack(list(ids)), repr(MARK_TTL), ENDED, MAX_MARKS, *asker))
        return [record(packed) if packed else None for packed in reply]


def _cursor(last: Sequence[Any]) -> Cursor:
    return float(last[0]), text(last[1])


def _call_id() -> str:
    """Names one call, so that the server knows it when it is sent again."""
    return uuid.uuid4().hex


def _simple(batch: Sequence[Assignment]) -> bool:
    """Whether the script `place` may be tried: it writes each job once, and reserves for one time."""
    return (
        bool(batch)
        and len({a.id for a in batch}) == len(batch)
        and all(a.reserve_s == batch[0].reserve_s for a in batch)
    )


def _assignment(a: Assignment, shared: Shared) -> list[Any]:
    d = a.demand
    return [
        a.id,
        number(a.attempt),
        a.cluster,
        a.user,
        False if a.name is None else a.name,
        number(d.nodes),
        number(d.cores),
        number(d.gpus),
        moment(a.at),
        moment(a.submitted_at),
        opaque(a.answer),
        opaque(assignment_entry(a)),
        a.reserve_s,
        shared.digest(a.looked) or False,
        a.registration,
        a.account or False,
        a.array or False,
        a.index or 0,
        shared.jobspec(a.jobspec) or False,
    ]


def _event(e: JobEvent, sender: Sender | None, spec: str | None) -> list[Any]:
    fields = said(e)
    if "returncode" in fields:
        fields["returncode"] = number(fields["returncode"])
    return [
        e.id,
        number(e.attempt),
        e.state,
        RANK[e.state],
        moment(e.at),
        time_key(e.state),
        fields,
        False if e.answer is None else opaque(e.answer),
        opaque(event_entry(e)),
        e.state == "rejected" or e.state in TERMINAL,
        e.state in UNRUN,
        *((False, "", False) if sender is None else (sender.cluster, sender.registration, sender.proven)),
        e.state in STARTED and not e.held,
        bool(e.held),
        spec or False,
    ]


def _addresses(watching: Sequence[bytes], packed: bytes) -> list[tuple[str, str]]:
    """Of those who watch a job, those who may see it as it is now."""
    if not watching:
        return []
    job = record(packed)
    asked = [(*unpack_text(one), ANYONE)[:3] for one in watching]  # a release before kept no asker
    return [(reply_to, correlation) for reply_to, correlation, by in asked if concerns(by, job)]


def _whole(packed: bytes, history: list[bytes], answer: bytes | bool, looked: bytes | bool) -> JobRecord:
    return record(packed, answer, looked, [entry(kept) for kept in history])
