"""The epochs of the store: which one this agent has reported for, and when it last heard that it still holds."""

from __future__ import annotations

import time
from collections.abc import Callable

from rainbow_agents.journal.file import JournalFile


class Epochs:
    """Kept in the journal, so that an agent which was away knows what it missed."""

    def __init__(self, file: JournalFile, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._clock = clock
        self._reported = self._get("reported")

    @property
    def reported(self) -> int:
        """The newest epoch for which all jobs here were published; 0: none yet."""
        return int(self._reported)

    @property
    def confirmed_at(self) -> float:
        """When the registrar last said that `reported` holds, in seconds since 1970; 0: never."""
        return self._get("confirmed_at")

    def report(self, epoch: int) -> None:
        """All jobs here were published for `epoch`."""
        self._put("reported", epoch)
        self._reported = float(epoch)

    def confirm(self) -> None:
        """The registrar said that `reported` is the epoch of the store now."""
        self._put("confirmed_at", self._clock())

    def _get(self, key: str) -> float:
        found = self._file.read("SELECT value FROM facts WHERE key=?", (key,))
        return float(found[0][0]) if found else 0.0

    def _put(self, key: str, value: float) -> None:
        with self._file.write() as db:
            db.execute(
                "INSERT INTO facts VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value=excluded.value", (key, value)
            )
