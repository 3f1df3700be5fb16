"""What the agent must not forget, in SQLite: taken jobs, their handles, cancels, and events not yet confirmed.

Keyed by (job id, attempt). Two agents of one cluster share one journal: every step that could start a job is a
compare-and-set on the row, so that of two that have the same delivery one stands down. `claim` names one try to
submit: the last claim owns the row, and what an older one submitted is never released.

    taken(claim) → accepted(handle) → [released] → running → completed | failed | cancelled | lost
         └→ rejected | cancelled | returned (nothing came of it; as if it had never been taken)

Every method is one transaction, synced to disk before it returns (WAL, synchronous=FULL). A full disk or a broken file
raises JournalDown: nothing was changed, and the caller must not go on with what it wanted to write down.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from rainbow.models.job import JobEvent
from rainbow_agents.executors.base import Ended, Started, SubmissionKey, Submitted
from rainbow_agents.journal.epochs import Epochs
from rainbow_agents.journal.file import JournalFile
from rainbow_agents.journal.outbox import EventOutbox
from rainbow_agents.journal.rows import COLUMNS, ELSEWHERE, NEVER, Decided, JobState, Pending, Row, View, to_row

#: Values in one SQL statement (SQLite's own limit is far higher; this keeps statements few and small).
_CHUNK = 400
_STANDING = (
    f"SELECT {COLUMNS},"  # noqa: S608
    " EXISTS (SELECT 1 FROM jobs n WHERE n.id=jobs.id AND n.attempt>jobs.attempt),"
    " (SELECT reason FROM cancels c WHERE c.id=jobs.id AND c.attempt IN (0, jobs.attempt))"
    " FROM jobs WHERE id=? AND attempt=?"
)
_TAKE = (
    'INSERT INTO jobs (id, attempt, state, claim, user, name, priority, taken_at, changed_at, "grant", trace)'
    " VALUES (?, ?, 'taken', ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (id, attempt) DO UPDATE SET state='taken', claim=excluded.claim, changed_at=excluded.changed_at,"
    ' "grant"=coalesce(excluded."grant", "grant"), trace=excluded.trace'
    " WHERE state IN ('taken', 'returned')"
)


class Journal:
    """The jobs of one cluster. `owner` names this agent process. `outbox` holds their events. Used from any thread.

    Raises:
        InvalidSettings: The folder cannot be used, or the file is of another version.
        JournalDown: The file cannot be opened.
    """

    def __init__(
        self, path: Path, *, cluster: str, owner: str | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.file = self._file = JournalFile(path)
        self._clock = clock
        self.outbox = EventOutbox(
            self._file, cluster=cluster, owner=owner or secrets.token_hex(8), clock=lambda: self._clock()
        )
        self.epochs = Epochs(self._file, lambda: self._clock())

    def close(self) -> None:
        self._file.close()

    # -- taking ------------------------------------------------------------------------------------------------------

    def look(self, keys: Sequence[tuple[str, int]]) -> dict[tuple[str, int], View]:
        """What is known of each (id, attempt)."""
        rows: dict[str, list[Row]] = {}
        cancels: dict[str, list[tuple[int, str]]] = {}
        tries: dict[str, int] = {}
        with self._file.snapshot():
            for ids in _chunks(list({key[0] for key in keys})):
                marks = ",".join("?" * len(ids))
                for found in self._file.read(f"SELECT {COLUMNS} FROM jobs WHERE id IN ({marks})", ids):  # noqa: S608
                    row = to_row(found)
                    rows.setdefault(row.id, []).append(row)
                for job, attempt, reason in self._file.read(
                    f"SELECT id, attempt, reason FROM cancels WHERE id IN ({marks})",  # noqa: S608
                    ids,
                ):
                    cancels.setdefault(job, []).append((attempt, reason))
                tries.update(self._file.read(f"SELECT id, count FROM tries WHERE id IN ({marks})", ids))  # noqa: S608
        out = {}
        for job, attempt in keys:
            mine = rows.get(job, [])
            out[job, attempt] = View(
                row=next((r for r in mine if r.attempt == attempt), None),
                newest=max((r.attempt for r in mine), default=0),
                older=next((r for r in mine if r.attempt < attempt and r.state in ("accepted", "running")), None),
                cancel=next((reason for n, reason in cancels.get(job, ()) if n in (0, attempt)), None),
                tries=tries.get(job, 0),
            )
        return out

    def take(
        self,
        jobs: Sequence[tuple[SubmissionKey, str, str | None, int]],
        grants: Mapping[SubmissionKey, str] | None = None,
        traces: Mapping[SubmissionKey, str] | None = None,
    ) -> set[SubmissionKey]:
        """Write down that these (mark, user, name, priority) are about to be submitted; each counts as one try. The
        `grants` of their dispatches go with all their events, and `traces` are kept.

        Returns the keys that may be: not those that another agent has moved on meanwhile.
        """
        now = self._clock()
        taken = set()
        with self._file.write() as db:
            for mark, user, name, priority in jobs:
                more = ((grants or {}).get(mark), (traces or {}).get(mark))
                done = db.execute(_TAKE, (mark.id, mark.attempt, mark.claim, user, name, priority, now, now, *more))
                if done.rowcount:
                    taken.add(mark)
                    db.execute(
                        "INSERT INTO tries VALUES (?, 1, ?)"
                        " ON CONFLICT (id) DO UPDATE SET count=count+1, at=excluded.at",
                        (mark.id, now),
                    )
        return taken

    def returned(self, marks: Sequence[SubmissionKey]) -> None:
        """Nothing came of these tries, and that was no fault of the job: as if they had not been."""
        now = self._clock()
        with self._file.write() as db:
            for mark in marks:
                done = db.execute(
                    "UPDATE jobs SET state='returned', changed_at=?"
                    " WHERE id=? AND attempt=? AND claim=? AND state='taken'",
                    (now, mark.id, mark.attempt, mark.claim),
                )
                if done.rowcount:
                    db.execute("UPDATE tries SET count=count-1 WHERE id=?", (mark.id,))
                    db.execute("DELETE FROM tries WHERE id=? AND count<=0", (mark.id,))

    def decide(
        self,
        submitted: Sequence[Submitted],
        refused: Sequence[tuple[JobEvent, SubmissionKey | None]],
        held: Collection[SubmissionKey] = (),
    ) -> Decided:
        """Write down outcomes, each with its event (which goes out with the delivery, not by the outbox).

        `refused` are events `rejected` or `cancelled`, with the mark if one was taken. `held` wait for the ledger."""
        now = self._clock()
        out = Decided()
        with self._file.write() as db:
            for s in submitted:
                row, newer, cancel = _standing(db, s.mark)
                if row is None or row.claim != s.mark.claim or row.state != "taken" or newer:
                    out.superseded.append(s)
                    continue
                if cancel == ELSEWHERE:
                    _move(db, row, "rejected", now)
                    out.superseded.append(s)
                    continue
                state = "accepted" if cancel is None else "cancelled"
                db.execute(
                    "UPDATE jobs SET state=?, handle=?, incarnation=?, cancel=?, changed_at=? WHERE id=? AND attempt=?",
                    (state, s.handle, s.incarnation, cancel, now, row.id, row.attempt),
                )
                event = self.outbox.event(row, state, now, flux_id=s.handle, detail=cancel, held=s.mark in held or None)
                pending = self.outbox.put(db, event, NEVER)
                db.execute("DELETE FROM tries WHERE id=?", (row.id,))
                (out.accepted if cancel is None else out.cancelled).append((s, pending))
            for event, mark in refused:
                if not self._refuse(db, event, mark, now):
                    assert mark is not None
                    out.lapsed.append(mark)
                    continue
                out.refused.append(self.outbox.put(db, event, NEVER))
        return out

    def release(self, marks: Sequence[SubmissionKey], sent: Sequence[Pending]) -> list[Row]:
        """Note that jobs may start: their events are confirmed, and their deliveries are held. Returns their rows."""
        out = []
        with self._file.write() as db:
            self.outbox.forget(db, sent)
            for mark in marks:
                row, newer, _ = _standing(db, mark)
                if row is None or row.claim != mark.claim or row.state != "accepted" or newer:
                    continue
                if row.cancel is None:
                    db.execute("UPDATE jobs SET released=1 WHERE id=? AND attempt=?", (row.id, row.attempt))
                    out.append(row)
        return out

    # -- following ---------------------------------------------------------------------------------------------------

    def progress(self, happenings: Sequence[Started | Ended]) -> tuple[int, list[Started | Ended]]:
        """Write down what the executor told of jobs, with an event for each change.

        Returns how many changed something, and those about jobs that are not known (yet).
        """
        now = self._clock()
        changed, unknown = 0, []
        with self._file.write() as db:
            for h in happenings:
                row = _row(db, h.mark.id, h.mark.attempt)
                if row is None or row.claim != h.mark.claim or row.state == "taken":
                    unknown.append(h)
                    continue
                if isinstance(h, Started):
                    if row.state == "accepted":
                        db.execute(
                            "UPDATE jobs SET state='running', changed_at=?, started_at=? WHERE id=? AND attempt=?",
                            (now, h.at, row.id, row.attempt),
                        )
                        self.outbox.put(db, self.outbox.event(row, "running", h.at), now)
                        changed += 1
                elif row.state in ("accepted", "running"):
                    self._end(db, row, h, now)
                    changed += 1
        return changed, unknown

    def lose(self, rows: Sequence[Row], detail: str) -> list[Row]:
        """Jobs of which nothing can be found any more end `lost`, unless they changed since `rows` were read.

        One that was never released has not started: it is `returned`, and may be taken again when its delivery comes
        back. Lost a second time, it ends as the others.
        """
        now = self._clock()
        out = []
        with self._file.write() as db:
            for row in rows:
                current = _row(db, row.id, row.attempt)
                if current == row and row.state in ("accepted", "running", "returned"):
                    ends = row.released or row.state == "returned"
                    _move(db, row, "lost" if ends else "returned", now)
                    if ends:
                        self.outbox.put(db, self.outbox.event(row, "lost", now, code="lost", detail=detail), now)
                    out.append(row)
        return out

    def drop(self, rows: Sequence[Row], detail: str) -> list[Row]:
        """End held jobs whose attempt now belongs to another cluster. No event is sent: the ledger has it."""
        now = self._clock()
        out = []
        with self._file.write() as db:
            for row in rows:
                current = _row(db, row.id, row.attempt)
                if current == row and row.state == "accepted" and not row.released:
                    db.execute("DELETE FROM outbox WHERE id=? AND attempt=?", (row.id, row.attempt))
                    db.execute("UPDATE jobs SET detail=? WHERE id=? AND attempt=?", (detail, row.id, row.attempt))
                    _move(db, row, "lost", now)
                    out.append(row)
        return out

    def active(self) -> list[Row]:
        """Jobs with a handle that are not over."""
        sql = f"SELECT {COLUMNS} FROM jobs WHERE state IN ('accepted', 'running')"  # noqa: S608
        return [to_row(r) for r in self._file.read(sql)]

    def gone(self) -> list[Row]:
        """Jobs that were accepted, never released, and that the executor has lost."""
        sql = f"SELECT {COLUMNS} FROM jobs WHERE state = 'returned' AND handle <> ''"  # noqa: S608
        return [to_row(r) for r in self._file.read(sql)]

    def get(self, job: str, attempt: int) -> Row | None:
        found = self._file.read(f"SELECT {COLUMNS} FROM jobs WHERE id=? AND attempt=?", (job, attempt))  # noqa: S608
        return to_row(found[0]) if found else None

    def counts(self) -> dict[str, int]:
        """Jobs by state, of those that are not over."""
        sql = "SELECT state, count(*) FROM jobs WHERE state IN ('taken', 'accepted', 'running') GROUP BY state"
        return dict(self._file.read(sql))

    # -- cancels -----------------------------------------------------------------------------------------------------

    def cancel(self, wanted: Sequence[tuple[str, int, str]]) -> list[Row]:
        """Remember to cancel these (id, attempt or 0 for any, reason). Returns the jobs that are here now.

        Held for jobs that have not arrived yet; an attempt that is over stays as it is.
        """
        now = self._clock()
        out = []
        with self._file.write() as db:
            for job, attempt, reason in wanted:
                db.execute(
                    "INSERT INTO cancels VALUES (?, ?, ?, ?) ON CONFLICT (id, attempt) DO NOTHING",
                    (job, attempt, reason, now),
                )
                for found in db.execute(
                    f"SELECT {COLUMNS} FROM jobs WHERE id=? AND (?=0 OR attempt=?)"  # noqa: S608
                    " AND state IN ('accepted', 'running')",
                    (job, attempt, attempt),
                ).fetchall():
                    row = to_row(found)
                    db.execute(
                        "UPDATE jobs SET cancel=coalesce(cancel, ?) WHERE id=? AND attempt=?",
                        (reason, row.id, row.attempt),
                    )
                    out.append(row)
        return out

    def prune(self, keep: float) -> int:
        """Forget jobs and cancels that ended more than `keep` seconds ago. Returns the number of jobs."""
        limit = self._clock() - keep
        with self._file.write() as db:
            return _prune(db, limit)

    # -- within a transaction -----------------------------------------------------------------------------------

    @staticmethod
    def _refuse(db: sqlite3.Connection, event: JobEvent, mark: SubmissionKey | None, now: float) -> bool:
        """Write down a job that is not to run. False when its try to submit is no longer the one that counts."""
        if mark is not None:
            row = _row(db, mark.id, mark.attempt)
            if row is None or row.claim != mark.claim or row.state != "taken":
                return False
        e = event
        db.execute(
            "INSERT INTO jobs (id, attempt, state, claim, user, name, code, detail, taken_at, changed_at,"
            " \"grant\") VALUES (?, ?, ?, '', ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id, attempt) DO UPDATE SET"
            " state=excluded.state, code=excluded.code, detail=excluded.detail, changed_at=excluded.changed_at"
            " WHERE state IN ('taken', 'returned', 'rejected')",
            (e.id, e.attempt, e.state, e.user, e.name, e.code, e.detail, now, now, e.grant),
        )
        db.execute("DELETE FROM tries WHERE id=?", (event.id,))
        return True

    def _end(self, db: sqlite3.Connection, row: Row, ended: Ended, now: float) -> None:
        state: JobState = ended.state
        detail = ended.detail
        if row.cancel is not None and state in ("failed", "cancelled"):
            # Asked for by us: whatever signal or exception ended it, it was cancelled.
            state = "rejected" if row.cancel == ELSEWHERE else "cancelled"
            detail = row.cancel
        db.execute(
            "UPDATE jobs SET state=?, changed_at=?, code=?, detail=?, returncode=? WHERE id=? AND attempt=?",
            (state, now, ended.code, detail, ended.returncode, row.id, row.attempt),
        )
        event = self.outbox.event(
            row, state, ended.at, returncode=ended.returncode, code=ended.code, detail=detail, output=ended.output
        )
        self.outbox.put(db, event, now)


def _prune(db: sqlite3.Connection, limit: float) -> int:
    done = db.execute(
        "DELETE FROM jobs WHERE changed_at < ? AND state NOT IN ('taken', 'accepted', 'running') AND NOT EXISTS"
        " (SELECT 1 FROM outbox o WHERE o.id = jobs.id AND o.attempt = jobs.attempt AND o.due < ?)",
        (limit, NEVER),
    )
    db.execute(
        "DELETE FROM outbox WHERE due = ? AND NOT EXISTS"
        " (SELECT 1 FROM jobs j WHERE j.id = outbox.id AND j.attempt = outbox.attempt)",
        (NEVER,),
    )
    db.execute("DELETE FROM cancels WHERE at < ?", (limit,))
    db.execute("DELETE FROM tries WHERE at < ?", (limit,))
    return done.rowcount


def _row(db: sqlite3.Connection, job: str, attempt: int) -> Row | None:
    found = db.execute(f"SELECT {COLUMNS} FROM jobs WHERE id=? AND attempt=?", (job, attempt)).fetchone()  # noqa: S608
    return to_row(found) if found else None


def _standing(db: sqlite3.Connection, mark: SubmissionKey) -> tuple[Row | None, bool, str | None]:
    """A job, whether the scheduler has assigned it again as far as we were told, and why it is to be cancelled."""
    found = db.execute(_STANDING, (mark.id, mark.attempt)).fetchone()
    return (to_row(found[:-2]), bool(found[-2]), found[-1]) if found else (None, False, None)


def _move(db: sqlite3.Connection, row: Row, state: str, now: float) -> None:
    db.execute("UPDATE jobs SET state=?, changed_at=? WHERE id=? AND attempt=?", (state, now, row.id, row.attempt))


def _chunks(values: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(values), _CHUNK):
        yield values[start : start + _CHUNK]
