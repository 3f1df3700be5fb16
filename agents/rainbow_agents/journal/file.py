"""The journal's SQLite file: its schema, and transactions that are on the disk before they return.

A full disk or a damaged file raises `JournalDown`: nothing was changed, and the caller must not go on with what it
wanted to write down.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rainbow.errors import InvalidSettings
from rainbow_agents.journal.rows import JournalDown
from rainbow_agents.state import NO_LOCKS, private_folder

VERSION = 1

_SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
  id TEXT NOT NULL, attempt INTEGER NOT NULL, state TEXT NOT NULL, claim TEXT NOT NULL,
  handle TEXT, incarnation TEXT, released INTEGER NOT NULL DEFAULT 0, priority INTEGER NOT NULL DEFAULT 16,
  user TEXT, name TEXT, cancel TEXT, code TEXT, detail TEXT, returncode INTEGER, "grant" TEXT,
  trace TEXT, started_at REAL, taken_at REAL NOT NULL, changed_at REAL NOT NULL,
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
CREATE TABLE IF NOT EXISTS facts (key TEXT PRIMARY KEY, value NUMERIC NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS outbox_due ON outbox (due);
CREATE INDEX IF NOT EXISTS outbox_job ON outbox (id, attempt);
"""


def _remedy(exc: sqlite3.Error) -> str:
    if "locked" in str(exc) or "locking" in str(exc):
        return NO_LOCKS
    return "see that its disk is writable and not full, and that the file belongs to the agent"


class JournalFile:
    """Used from any thread. `connection` writes, under a lock; reads have a connection of their own.

    In WAL mode a read need not wait until a write is on the disk. A writer looks again, since another agent may
    share the file.

    Args:
        path: The file; its folder is made.
        patience: Seconds to wait while another program writes.

    Raises:
        InvalidSettings: The folder cannot be used, or the file is of another version.
        JournalDown: The file cannot be opened.
    """

    def __init__(self, path: Path, patience: float = 10.0) -> None:
        self.path = path
        self.lock = threading.Lock()
        self._reading = threading.RLock()
        with private_folder(path.parent):
            path.touch(mode=0o600)
        try:
            self.connection = sqlite3.connect(path, timeout=patience, isolation_level=None, check_same_thread=False)
            self._prepare(self.connection)
            self._reader = sqlite3.connect(path, timeout=patience, isolation_level=None, check_same_thread=False)
            self._reader.execute("PRAGMA query_only=ON")
        except sqlite3.Error as exc:
            raise JournalDown(f"journal {path} cannot be opened: {exc}: {_remedy(exc)}") from None

    def _prepare(self, db: sqlite3.Connection) -> None:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, VERSION):
            raise InvalidSettings(
                f"journal {self.path} is of version {version}, this agent writes {VERSION}: use the agent that made it"
            )
        db.executescript(_SCHEMA)
        columns = {column[1] for column in db.execute("PRAGMA table_info(jobs)")}
        # Earlier releases wrote none of these.
        for column in ("returncode INTEGER", '"grant" TEXT', "trace TEXT", "started_at REAL"):
            if column.split()[0].strip('"') not in columns:
                db.execute(f"ALTER TABLE jobs ADD COLUMN {column}")
        db.execute(f"PRAGMA user_version={VERSION}")

    def close(self) -> None:
        with self.lock, self._reading:
            self._reader.close()
            self.connection.close()

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One transaction."""
        with self.lock:
            try:
                self.connection.execute("BEGIN IMMEDIATE")
                try:
                    yield self.connection
                    self.connection.execute("COMMIT")
                except BaseException:
                    if self.connection.in_transaction:
                        self.connection.execute("ROLLBACK")
                    raise
            except sqlite3.Error as exc:
                raise JournalDown(f"journal {self.path} cannot be written: {exc}: {_remedy(exc)}") from None

    def read(self, sql: str, args: Sequence[Any] = ()) -> list[Any]:
        with self._reading:
            try:
                return self._reader.execute(sql, args).fetchall()
            except sqlite3.Error as exc:
                raise JournalDown(f"journal {self.path} cannot be read: {exc}") from None

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Reads in it see one state of the file."""
        with self._reading:
            self.read("BEGIN")
            try:
                yield
            finally:
                if self._reader.in_transaction:  # some errors end it
                    self.read("ROLLBACK")
