"""Events of jobs on their way to the broker: kept in the journal until the broker has confirmed them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rainbow.models.job import JobEvent
from rainbow_agents.journal.file import JournalFile
from rainbow_agents.journal.rows import COLUMNS, NEVER, Pending, Row, to_row

#: Seconds another agent's events are left to it before this one sends them.
_OTHERS = 15.0


class EventOutbox:
    """`owner` names this agent process: agents of one cluster share the file, and each sends its own events first."""

    def __init__(self, file: JournalFile, *, cluster: str, owner: str, clock: Callable[[], float]) -> None:
        self._file = file
        self._cluster = cluster
        self._owner = owner
        self._clock = clock

    def due(self, limit: int) -> list[Pending]:
        """Events to send now, oldest first: ours, and those that another agent left lying."""
        now = self._clock()
        rows = self._file.read(
            "SELECT seq, event FROM outbox WHERE due <= ? AND (owner = ? OR due <= ?) ORDER BY seq LIMIT ?",
            (now, self._owner, now - _OTHERS, limit),
        )
        return [Pending(seq, JobEvent.model_validate_json(event), event) for seq, event in rows]

    def sent(self, pending: Sequence[Pending]) -> None:
        """The broker has these events: forget them."""
        with self._file.write() as db:
            self.forget(db, pending)

    def waiting(self) -> int:
        """Events that were not confirmed yet."""
        return int(self._file.read("SELECT count(*) FROM outbox WHERE due < ?", (NEVER,))[0][0])

    def repeat(self, rows: Sequence[Row]) -> list[Pending]:
        """The events of jobs decided before, to be sent once more with their redelivery."""
        now = self._clock()
        out = []
        with self._file.write() as db:
            for row in rows:
                db.execute("DELETE FROM outbox WHERE id=? AND attempt=? AND due=?", (row.id, row.attempt, NEVER))
                handle = row.handle if row.state == "accepted" else None
                event = self.event(row, row.state, row.changed_at, flux_id=handle, code=row.code, detail=row.detail)
                out.append(self.put(db, event, now + 60))
        return out

    def republish(self, within: float) -> int:
        """Have the states of jobs published once more: of those under way, and of those that came to an end in the last
        `within` seconds. Gives how many.

        Without their output, and without those that ended here alone, and may go on elsewhere. An event that was to go
        out again with its delivery goes out now: the delivery may never come, since the ledger had the event.
        """
        now = self._clock()
        count = 0
        with self._file.write() as db:
            for found in db.execute(
                f"SELECT {COLUMNS} FROM jobs WHERE ("  # noqa: S608
                "  state IN ('accepted', 'running')"
                "  OR released=1 AND state IN ('completed', 'failed', 'lost') AND changed_at >= ?1"
                "  OR state='cancelled' AND changed_at >= ?1"
                " ) AND NOT EXISTS"
                " (SELECT 1 FROM outbox o WHERE o.id=jobs.id AND o.attempt=jobs.attempt AND o.state=jobs.state"
                "  AND o.due < ?2)",
                (now - within, NEVER),
            ).fetchall():
                row = to_row(found)
                db.execute("DELETE FROM outbox WHERE id=? AND attempt=? AND due=?", (row.id, row.attempt, NEVER))
                more: dict[str, Any] = {"code": row.code, "detail": row.detail, "returncode": row.returncode}
                accepted = row.state == "accepted"
                more["flux_id"] = row.handle if accepted else None
                more["held"] = True if accepted and not row.released else None
                self.put(db, self.event(row, row.state, row.changed_at, **more), now)
                count += 1
        return count

    # -- within a transaction --------------------------------------------------------------------------------

    def event(self, row: Row, state: str, at: float, **more: Any) -> JobEvent:
        return JobEvent(
            id=row.id,
            attempt=row.attempt,
            cluster=self._cluster,
            state=state,
            at=at,
            user=row.user,
            name=row.name,
            grant=row.grant or None,
            **more,
        )

    def put(self, db: sqlite3.Connection, event: JobEvent, due: float) -> Pending:
        text = event.model_dump_json(exclude_none=True)
        cursor = db.execute(
            "INSERT INTO outbox (id, attempt, state, event, owner, due) VALUES (?, ?, ?, ?, ?, ?)",
            (event.id, event.attempt, event.state, text, self._owner, due),
        )
        return Pending(int(cursor.lastrowid or 0), event, text)

    @staticmethod
    def forget(db: sqlite3.Connection, pending: Iterable[Pending]) -> None:
        db.executemany("DELETE FROM outbox WHERE seq=?", [(p.seq,) for p in pending])
