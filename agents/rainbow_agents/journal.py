"""What the agent must not forget, in SQLite: taken jobs, their handles, cancels, and events not yet confirmed.

Keyed by (job id, attempt). Two agents of one cluster share one journal: every step that could start a job is a
compare-and-set on the row, so that of two that have the same delivery one stands down. `claim` names one try to
submit; whoever claims last owns the row, and what an older claim brought about is never released.

    taken(claim) → accepted(handle) → [released] → running → completed | failed | cancelled | lost
         └→ rejected | cancelled | returned (nothing came of it; as if it had never been taken)

Every method is one transaction, synced to disk before it returns (WAL, synchronous=FULL). A full disk or a broken file
raises JournalDown: nothing was changed, and the caller must not go on with what it wanted to write down.
"""

from __future__ import annotations

import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rainbow.errors import InvalidSettings, RainbowError
from rainbow.models.job import JobEvent
from rainbow_agents.executors.base import Ended, Held, Mark, Started, Submitted

VERSION = 1

#: An attempt that is over. `returned` is not here: it may be taken again.
OVER = frozenset({"rejected", "completed", "failed", "cancelled", "lost"})

#: Seconds another agent's events are left to it before this one sends them.
_OTHERS = 15.0
#: An event that only goes out together with its delivery (see `intake`) is due never.
NEVER = 1e18
#: Values in one SQL statement (SQLite's own limit is far higher; this keeps statements few and small).
_CHUNK = 400

_SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
  id TEXT NOT NULL, attempt INTEGER NOT NULL, state TEXT NOT NULL, claim TEXT NOT NULL,
  handle TEXT, incarnation TEXT, released INTEGER NOT NULL DEFAULT 0, priority INTEGER NOT NULL DEFAULT 16,
  user TEXT, name TEXT, cancel TEXT, code TEXT, detail TEXT, returncode INTEGER,
  taken_at REAL NOT NULL, changed_at REAL NOT NULL,
  PRIMARY KEY (id, attempt)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS active ON jobs (state) WHERE state IN ('taken', 'accepted', 'running');
CREATE TABLE IF NOT EXISTS tries (id TEXT PRIMARY KEY, count INTEGER NOT NULL, at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS cancels (
  id TEXT NOT NULL, attempt INTEGER NOT NULL, reason TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (id, attempt)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS outbox (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, attempt INTEGER NOT NULL, state TEXT NOT NULL,
  event TEXT NOT NULL, owner TEXT NOT NULL, due REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS outbox_due ON outbox (due);
CREATE INDEX IF NOT EXISTS outbox_job ON outbox (id, attempt);
"""

#: The reason of a cancel that ends an attempt here, but not its job.
ELSEWHERE = "the job goes on elsewhere"

JobState = Literal["taken", "returned", "accepted", "running", "rejected", "completed", "failed", "cancelled", "lost"]


class JournalDown(RainbowError):
    """The journal cannot be written (disk full, file damaged): no job can be taken."""

    code = "journal-down"
    exit_code = 4


@dataclass(slots=True, unsafe_hash=True)
class Row:
    """A job as the journal knows it. Not to be changed."""

    id: str
    attempt: int
    state: JobState
    claim: str
    handle: str | None
    incarnation: str | None
    released: bool
    priority: int
    user: str | None
    name: str | None
    cancel: str | None
    code: str | None
    detail: str | None
    changed_at: float
    returncode: int | None = None

    @property
    def mark(self) -> Mark:
        return Mark(self.id, self.attempt, self.claim)

    @property
    def held(self) -> Held:
        return Held(self.mark, self.handle or "", self.priority)


_COLUMNS = (
    "id, attempt, state, claim, handle, incarnation, released, priority, user, name, cancel, code, detail, changed_at,"
    " returncode"
)
_STANDING = (
    f"SELECT {_COLUMNS},"  # noqa: S608
    " EXISTS (SELECT 1 FROM jobs n WHERE n.id=jobs.id AND n.attempt>jobs.attempt),"
    " (SELECT reason FROM cancels c WHERE c.id=jobs.id AND c.attempt IN (0, jobs.attempt))"
    " FROM jobs WHERE id=? AND attempt=?"
)


def _row(values: Sequence[Any]) -> Row:
    v = list(values)
    v[6] = bool(v[6])
    return Row(*v)


@dataclass(frozen=True, slots=True)
class View:
    """What is known of a job before it is taken: its row, the newest attempt seen, a cancel, tries without outcome."""

    row: Row | None = None
    newest: int = 0
    #: An older attempt of this job that still runs or is held here.
    older: Row | None = None
    cancel: str | None = None
    tries: int = 0


@dataclass(frozen=True, slots=True)
class Pending:
    """An event to be sent. `seq` orders them; `text` is the event as JSON."""

    seq: int
    event: JobEvent
    text: str


def new_claim() -> str:
    return secrets.token_hex(8)


class Journal:
    """The journal file. `owner` names this agent process. Used from any thread."""

    def __init__(
        self, path: Path, *, cluster: str, owner: str | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.path = path
        self.cluster = cluster
        self.owner = owner or secrets.token_hex(8)
        self._clock = clock
        self._lock = threading.Lock()
        #: Reads have a connection of their own (WAL): they need not wait until somebody's write is on the disk. Whoever
        #: writes looks again, since another agent may share the file.
        self._reading = threading.RLock()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
        try:
            self._db = sqlite3.connect(path, timeout=10.0, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, VERSION):
                raise InvalidSettings(
                    f"journal {path} is of version {version}, this agent writes {VERSION}: use the agent that made it"
                )
            self._db.executescript(_SCHEMA)
            columns = {column[1] for column in self._db.execute("PRAGMA table_info(jobs)")}
            if "returncode" not in columns:  # written by an earlier release
                self._db.execute("ALTER TABLE jobs ADD COLUMN returncode INTEGER")
            self._db.execute(f"PRAGMA user_version={VERSION}")
            self._reader = sqlite3.connect(path, timeout=10.0, isolation_level=None, check_same_thread=False)
            self._reader.execute("PRAGMA query_only=ON")
        except sqlite3.Error as exc:
            raise JournalDown(f"journal {path} cannot be opened: {exc}") from None

    def close(self) -> None:
        with self._lock, self._reading:
            self._reader.close()
            self._db.close()

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    yield self._db
                    self._db.execute("COMMIT")
                except BaseException:
                    if self._db.in_transaction:
                        self._db.execute("ROLLBACK")
                    raise
            except sqlite3.Error as exc:
                raise JournalDown(f"journal {self.path} cannot be written: {exc}") from None

    def _read(self, sql: str, args: Sequence[Any] = ()) -> list[Any]:
        with self._reading:
            try:
                return self._reader.execute(sql, args).fetchall()
            except sqlite3.Error as exc:
                raise JournalDown(f"journal {self.path} cannot be read: {exc}") from None

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Reads in it see one state of the file."""
        with self._reading:
            self._read("BEGIN")
            try:
                yield
            finally:
                if self._reader.in_transaction:  # some errors end it
                    self._read("ROLLBACK")

    # -- taking ----------------------------------------------------------------------------------------

    def look(self, keys: Sequence[tuple[str, int]]) -> dict[tuple[str, int], View]:
        """What is known of each (id, attempt)."""
        rows: dict[str, list[Row]] = {}
        cancels: dict[str, list[tuple[int, str]]] = {}
        tries: dict[str, int] = {}
        with self._snapshot():
            for ids in _chunks(list({key[0] for key in keys})):
                marks = ",".join("?" * len(ids))
                for found in self._read(f"SELECT {_COLUMNS} FROM jobs WHERE id IN ({marks})", ids):  # noqa: S608
                    row = _row(found)
                    rows.setdefault(row.id, []).append(row)
                for job, attempt, reason in self._read(
                    f"SELECT id, attempt, reason FROM cancels WHERE id IN ({marks})",  # noqa: S608
                    ids,
                ):
                    cancels.setdefault(job, []).append((attempt, reason))
                tries.update(self._read(f"SELECT id, count FROM tries WHERE id IN ({marks})", ids))  # noqa: S608
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

    def take(self, jobs: Sequence[tuple[Mark, str, str | None, int]]) -> set[Mark]:
        """Write down that these (mark, user, name, priority) are about to be submitted; each counts as one try.

        Gives the marks that may be: not those that somebody else brought further meanwhile.
        """
        now = self._clock()
        taken = set()
        with self._write() as db:
            for mark, user, name, priority in jobs:
                done = db.execute(
                    "INSERT INTO jobs (id, attempt, state, claim, user, name, priority, taken_at, changed_at)"
                    " VALUES (?, ?, 'taken', ?, ?, ?, ?, ?, ?)"
                    " ON CONFLICT (id, attempt) DO UPDATE SET state='taken', claim=excluded.claim,"
                    " changed_at=excluded.changed_at WHERE state IN ('taken', 'returned')",
                    (mark.id, mark.attempt, mark.claim, user, name, priority, now, now),
                )
                if done.rowcount:
                    taken.add(mark)
                    db.execute(
                        "INSERT INTO tries VALUES (?, 1, ?)"
                        " ON CONFLICT (id) DO UPDATE SET count=count+1, at=excluded.at",
                        (mark.id, now),
                    )
        return taken

    def returned(self, marks: Sequence[Mark]) -> None:
        """Nothing came of these tries, and that was no fault of the job: as if they had not been."""
        now = self._clock()
        with self._write() as db:
            for mark in marks:
                done = db.execute(
                    "UPDATE jobs SET state='returned', changed_at=?"
                    " WHERE id=? AND attempt=? AND claim=? AND state='taken'",
                    (now, mark.id, mark.attempt, mark.claim),
                )
                if done.rowcount:
                    db.execute("UPDATE tries SET count=count-1 WHERE id=?", (mark.id,))
                    db.execute("DELETE FROM tries WHERE id=? AND count<=0", (mark.id,))

    def decide(self, submitted: Sequence[Submitted], refused: Sequence[tuple[JobEvent, Mark | None]]) -> Decided:
        """Write down outcomes, each with its event (which goes out with the delivery, not by the outbox).

        `refused` are events `rejected` or `cancelled` of jobs that are not to run, with the mark where one was taken.
        """
        now = self._clock()
        out = Decided()
        with self._write() as db:
            for s in submitted:
                row, newer, cancel = self._standing(db, s.mark)
                if row is None or row.claim != s.mark.claim or row.state != "taken" or newer:
                    out.superseded.append(s)
                    continue
                if cancel == ELSEWHERE:
                    self._move(db, row, "rejected", now)
                    out.superseded.append(s)
                    continue
                state = "accepted" if cancel is None else "cancelled"
                db.execute(
                    "UPDATE jobs SET state=?, handle=?, incarnation=?, cancel=?, changed_at=? WHERE id=? AND attempt=?",
                    (state, s.handle, s.incarnation, cancel, now, row.id, row.attempt),
                )
                event = self._event(row, state, now, flux_id=s.handle, detail=cancel)
                pending = self._put(db, event, NEVER)
                db.execute("DELETE FROM tries WHERE id=?", (row.id,))
                (out.accepted if cancel is None else out.cancelled).append((s, pending))
            for event, mark in refused:
                if mark is not None:
                    row = self._row(db, mark.id, mark.attempt)
                    if row is None or row.claim != mark.claim or row.state != "taken":
                        out.lapsed.append(mark)
                        continue
                db.execute(
                    "INSERT INTO jobs (id, attempt, state, claim, user, name, code, detail, taken_at, changed_at)"
                    " VALUES (?, ?, ?, '', ?, ?, ?, ?, ?, ?) ON CONFLICT (id, attempt) DO UPDATE SET"
                    " state=excluded.state, code=excluded.code, detail=excluded.detail, changed_at=excluded.changed_at"
                    " WHERE state IN ('taken', 'returned', 'rejected')",
                    (event.id, event.attempt, event.state, event.user, event.name, event.code, event.detail, now, now),
                )
                db.execute("DELETE FROM tries WHERE id=?", (event.id,))
                out.refused.append(self._put(db, event, NEVER))
        return out

    def again(self, rows: Sequence[Row]) -> list[Pending]:
        """The events of jobs decided before, to be sent once more with their redelivery."""
        now = self._clock()
        out = []
        with self._write() as db:
            for row in rows:
                db.execute("DELETE FROM outbox WHERE id=? AND attempt=? AND due=?", (row.id, row.attempt, NEVER))
                handle = row.handle if row.state == "accepted" else None
                event = self._event(row, row.state, row.changed_at, flux_id=handle, code=row.code, detail=row.detail)
                out.append(self._put(db, event, now + 60))
        return out

    def tell_again(self, within: float) -> int:
        """Have the states of jobs told once more: of those under way, and of those that came to an end in the last
        `within` seconds. Gives how many.

        Without their output, and without those that ended here alone, and may go on elsewhere.
        """
        now = self._clock()
        told = 0
        with self._write() as db:
            for found in db.execute(
                f"SELECT {_COLUMNS} FROM jobs WHERE ("  # noqa: S608
                "  released=1 AND state IN ('accepted', 'running')"
                "  OR released=1 AND state IN ('completed', 'failed', 'lost') AND changed_at >= ?1"
                "  OR state='cancelled' AND changed_at >= ?1"
                " ) AND NOT EXISTS"
                " (SELECT 1 FROM outbox o WHERE o.id=jobs.id AND o.attempt=jobs.attempt AND o.state=jobs.state)",
                (now - within,),
            ).fetchall():
                row = _row(found)
                more = {"code": row.code, "detail": row.detail, "returncode": row.returncode}
                handle = row.handle if row.state == "accepted" else None
                self._put(db, self._event(row, row.state, row.changed_at, flux_id=handle, **more), now)
                told += 1
        return told

    def release(self, marks: Sequence[Mark], sent: Sequence[Pending]) -> list[Row]:
        """The events are confirmed and the deliveries still ours: the jobs may start. Gives the rows to release."""
        out = []
        with self._write() as db:
            self._sent(db, sent)
            for mark in marks:
                row, newer, _ = self._standing(db, mark)
                if row is None or row.claim != mark.claim or row.state != "accepted" or newer:
                    continue
                if row.cancel is None:
                    db.execute("UPDATE jobs SET released=1 WHERE id=? AND attempt=?", (row.id, row.attempt))
                    out.append(row)
        return out

    # -- following ---------------------------------------------------------------------------------------

    def progress(self, happenings: Sequence[Started | Ended]) -> tuple[int, list[Started | Ended]]:
        """Write down what the executor told of jobs, with an event for each change.

        Gives how many changed something, and those of which nothing is known (yet).
        """
        now = self._clock()
        changed, unknown = 0, []
        with self._write() as db:
            for h in happenings:
                row = self._row(db, h.mark.id, h.mark.attempt)
                if row is None or row.claim != h.mark.claim or row.state == "taken":
                    unknown.append(h)
                    continue
                if isinstance(h, Started):
                    if row.state == "accepted":
                        self._move(db, row, "running", now)
                        self._put(db, self._event(row, "running", h.at), now)
                        changed += 1
                elif row.state in ("accepted", "running"):
                    self._end(db, row, h, now)
                    changed += 1
        return changed, unknown

    def lose(self, rows: Sequence[Row], detail: str) -> list[Row]:
        """Jobs of which nothing can be found any more end `lost`, unless they changed since `rows` were read.

        One that was never released has not started: it may be taken again when its delivery comes back.
        """
        now = self._clock()
        out = []
        with self._write() as db:
            for row in rows:
                current = self._row(db, row.id, row.attempt)
                if current == row and row.state in ("accepted", "running"):
                    self._move(db, row, "lost" if row.released else "returned", now)
                    if row.released:
                        self._put(db, self._event(row, "lost", now, code="lost", detail=detail), now)
                    out.append(row)
        return out

    def drop(self, rows: Sequence[Row], detail: str) -> list[Row]:
        """Held jobs whose attempt is no longer ours to run: they end here, and nobody is told (the ledger knows)."""
        now = self._clock()
        out = []
        with self._write() as db:
            for row in rows:
                current = self._row(db, row.id, row.attempt)
                if current == row and row.state == "accepted" and not row.released:
                    db.execute("DELETE FROM outbox WHERE id=? AND attempt=?", (row.id, row.attempt))
                    db.execute("UPDATE jobs SET detail=? WHERE id=? AND attempt=?", (detail, row.id, row.attempt))
                    self._move(db, row, "lost", now)
                    out.append(row)
        return out

    def active(self) -> list[Row]:
        """Jobs with a handle that are not over."""
        return [_row(r) for r in self._read(f"SELECT {_COLUMNS} FROM jobs WHERE state IN ('accepted', 'running')")]  # noqa: S608

    def get(self, job: str, attempt: int) -> Row | None:
        found = self._read(f"SELECT {_COLUMNS} FROM jobs WHERE id=? AND attempt=?", (job, attempt))  # noqa: S608
        return _row(found[0]) if found else None

    def taken_before(self, moment: float) -> list[Row]:
        """Jobs taken before `moment` (seconds since 1970) of which nothing came."""
        sql = f"SELECT {_COLUMNS} FROM jobs WHERE state='taken' AND changed_at<?"  # noqa: S608
        return [_row(r) for r in self._read(sql, (moment,))]

    def counts(self) -> dict[str, int]:
        """Jobs by state, of those that are not over."""
        sql = "SELECT state, count(*) FROM jobs WHERE state IN ('taken', 'accepted', 'running') GROUP BY state"
        return dict(self._read(sql))

    # -- cancels -----------------------------------------------------------------------------------------

    def cancel(self, wanted: Sequence[tuple[str, int, str]]) -> list[Row]:
        """Remember to cancel these (id, attempt or 0 for any, reason). Gives the jobs that are here now.

        Held for jobs that have not arrived yet; an attempt that is over stays as it is.
        """
        now = self._clock()
        out = []
        with self._write() as db:
            for job, attempt, reason in wanted:
                db.execute(
                    "INSERT INTO cancels VALUES (?, ?, ?, ?) ON CONFLICT (id, attempt) DO NOTHING",
                    (job, attempt, reason, now),
                )
                for found in db.execute(
                    f"SELECT {_COLUMNS} FROM jobs WHERE id=? AND (?=0 OR attempt=?)"  # noqa: S608
                    " AND state IN ('accepted', 'running')",
                    (job, attempt, attempt),
                ).fetchall():
                    row = _row(found)
                    db.execute(
                        "UPDATE jobs SET cancel=coalesce(cancel, ?) WHERE id=? AND attempt=?",
                        (reason, row.id, row.attempt),
                    )
                    out.append(row)
        return out

    # -- the outbox --------------------------------------------------------------------------------------

    def due(self, limit: int) -> list[Pending]:
        """Events to send now, oldest first: ours, and those that another agent left lying."""
        now = self._clock()
        rows = self._read(
            "SELECT seq, event FROM outbox WHERE due <= ? AND (owner = ? OR due <= ?) ORDER BY seq LIMIT ?",
            (now, self.owner, now - _OTHERS, limit),
        )
        return [Pending(seq, JobEvent.model_validate_json(event), event) for seq, event in rows]

    def sent(self, pending: Sequence[Pending]) -> None:
        """The broker has these events: forget them."""
        with self._write() as db:
            self._sent(db, pending)

    def waiting(self) -> int:
        """Events that were not confirmed yet."""
        return int(self._read("SELECT count(*) FROM outbox WHERE due < ?", (NEVER,))[0][0])

    def prune(self, keep: float) -> int:
        """Forget jobs and cancels that are over for `keep` seconds. Gives how many jobs."""
        limit = self._clock() - keep
        with self._write() as db:
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

    # -- inside -------------------------------------------------------------------------------------------

    @staticmethod
    def _row(db: sqlite3.Connection, job: str, attempt: int) -> Row | None:
        found = db.execute(f"SELECT {_COLUMNS} FROM jobs WHERE id=? AND attempt=?", (job, attempt)).fetchone()  # noqa: S608
        return _row(found) if found else None

    @staticmethod
    def _standing(db: sqlite3.Connection, mark: Mark) -> tuple[Row | None, bool, str | None]:
        """A job, whether the scheduler has assigned it anew as far as we were told, and why it is to be cancelled."""
        found = db.execute(_STANDING, (mark.id, mark.attempt)).fetchone()
        return (_row(found[:-2]), bool(found[-2]), found[-1]) if found else (None, False, None)

    def _event(self, row: Row, state: str, at: float, **more: Any) -> JobEvent:
        return JobEvent(
            id=row.id,
            attempt=row.attempt,
            cluster=self.cluster,
            state=state,
            at=at,
            user=row.user,
            name=row.name,
            **more,
        )

    def _put(self, db: sqlite3.Connection, event: JobEvent, due: float) -> Pending:
        text = event.model_dump_json(exclude_none=True)
        cursor = db.execute(
            "INSERT INTO outbox (id, attempt, state, event, owner, due) VALUES (?, ?, ?, ?, ?, ?)",
            (event.id, event.attempt, event.state, text, self.owner, due),
        )
        return Pending(int(cursor.lastrowid or 0), event, text)

    @staticmethod
    def _sent(db: sqlite3.Connection, pending: Iterable[Pending]) -> None:
        db.executemany("DELETE FROM outbox WHERE seq=?", [(p.seq,) for p in pending])

    @staticmethod
    def _move(db: sqlite3.Connection, row: Row, state: str, now: float) -> None:
        db.execute("UPDATE jobs SET state=?, changed_at=? WHERE id=? AND attempt=?", (state, now, row.id, row.attempt))

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
        event = self._event(
            row, state, ended.at, returncode=ended.returncode, code=ended.code, detail=detail, output=ended.output
        )
        self._put(db, event, now)


class Decided:
    """What `Journal.decide` wrote: `superseded` were submitted by a claim that is no longer valid, and must go."""

    def __init__(self) -> None:
        self.accepted: list[tuple[Submitted, Pending]] = []
        self.cancelled: list[tuple[Submitted, Pending]] = []
        self.refused: list[Pending] = []
        self.superseded: list[Submitted] = []
        self.lapsed: list[Mark] = []


def _chunks(values: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(values), _CHUNK):
        yield values[start : start + _CHUNK]


__all__ = ["ELSEWHERE", "NEVER", "OVER", "Decided", "Journal", "JournalDown", "Pending", "Row", "View", "new_claim"]
