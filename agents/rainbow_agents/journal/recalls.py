"""Jobs that are to be taken back before they start, in the journal. The mark is in place of the reason of a cancel."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rainbow_agents.journal.file import JournalFile
from rainbow_agents.journal.rows import COLUMNS, RECALLED, Row, to_row

_MAY = "id=:id AND attempt=:attempt AND state='accepted' AND released AND coalesce(cancel, :mark)=:mark"
_MARK = f"UPDATE jobs SET cancel=:mark, changed_at=:now WHERE {_MAY} RETURNING {COLUMNS}"  # noqa: S608
_UNMARK = "UPDATE jobs SET cancel=nullif(cancel, ?) WHERE id=? AND attempt=?"


class Recalls:
    """A start of the job ends its recall, and so does a cancel (`Journal.progress`, `Journal.cancel`)."""

    def __init__(self, file: JournalFile, clock: Callable[[], float]) -> None:
        self._file = file
        self._clock = clock

    def begin(self, wanted: Sequence[tuple[str, int]]) -> list[Row]:
        """Mark these (id, attempt). Returns those that have not started as far as is known, and are not cancelled."""
        out: list[Row] = []
        now = self._clock()
        with self._file.write() as db:
            for job, attempt in wanted:
                marked = db.execute(_MARK, {"mark": RECALLED, "now": now, "id": job, "attempt": attempt})
                out += map(to_row, marked.fetchall())
        return out

    def drop(self, rows: Sequence[Row]) -> None:
        """These stay."""
        with self._file.write() as db:
            db.executemany(_UNMARK, [(RECALLED, row.id, row.attempt) for row in rows])
