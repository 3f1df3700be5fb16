"""The audit log: who did what, one JSON object a line, in a file that rotates or on stdout.

Fields: `time` (seconds since 1970), `sub`, `jti` and `role` of the token, `action` (the operation, or ``submit``),
`object` (a cluster, a group, job ids, a subject), `result` (``done``, or the code of the error), what else matters to
the operation (`approve`, `clusters`, `reason`), and, when refused, `detail`. What only reads, heartbeats, and questions
asked again are noted when they are refused. `sub` is null without a valid token.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from rainbow.logs import redact
from rainbow.security.tokens import Principal

log = logging.getLogger(__name__)

DONE = "done"
#: Written as the setting's value, means stdout.
STDOUT = Path("-")
#: Seconds between looks whether the file was moved away.
_LOOK_EVERY = 1.0
#: A list of objects is cut after so many: a request may name a thousand jobs.
_NAMED = 20


class Audit:
    """Writes to `path`, renamed to ``.1``, ``.2`` … (at most `keep`) when it has grown to `max_bytes`; mode 0600.

    One process writes a file: give each its own, or let them write to stdout. Another program may move the file away: a
    new one is begun within a second. What cannot be written (a full disk) is reported in the log, and the work goes on.
    Without `path` nothing is written.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        max_bytes: int = 64 << 20,
        keep: int = 10,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = None if path == STDOUT else path
        self._on = path is not None
        self._max_bytes = max_bytes
        self._keep = keep
        self._clock = clock
        self._lock = threading.Lock()
        self._file: BinaryIO | None = None
        self._torn = False
        self._lost = 0
        self._looked = 0.0

    def note(
        self,
        who: Principal | None,
        action: str,
        about: str | Sequence[str] | None,
        result: str = DONE,
        detail: str | None = None,
        **more: Any,
    ) -> None:
        """One line. `who` is None for a caller whose token was not good, or who has none."""
        if not self._on:
            return
        entry: dict[str, Any] = {
            "time": round(self._clock(), 3),
            "sub": who.sub if who else None,
            "jti": (who.jti or None) if who else None,
            "role": who.role if who else None,
            "action": action,
            "object": about if about is None or isinstance(about, str) else list(about[:_NAMED]),
            "result": result,
            **({"detail": detail} if detail else {}),
            **more,
        }
        line = redact(json.dumps(entry, default=str)).encode() + b"\n"
        with self._lock:
            try:
                self._write(line)
            except (OSError, ValueError) as exc:
                if not self._lost:
                    log.error("audit log not written", extra={"action": "audit", "detail": str(exc)})  # noqa: TRY400
                self._lost += 1
            else:
                if self._lost:
                    log.warning("audit log written again", extra={"action": "audit", "lost": self._lost})
                self._lost = 0

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _write(self, line: bytes) -> None:
        if self._path is None:
            sys.stdout.write(line.decode())
            sys.stdout.flush()
            return
        self._leave_if_moved()
        file = self._file = self._file or self._open()
        if file.tell() and file.tell() + len(line) > self._max_bytes:
            file = self._file = self._rotate(file)
        # Unbuffered, so that what a full disk did not take is not written later, out of its time.
        whole = b"\n" + line if self._torn else line
        written = file.write(whole)
        self._torn = 0 < written < len(whole) or (self._torn and not written)
        if written < len(whole):
            raise OSError("no space left")

    def _open(self) -> BinaryIO:
        assert self._path is not None
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.touch(mode=0o600)
        return cast(BinaryIO, self._path.open("ab", buffering=0))

    def _leave_if_moved(self) -> None:
        now = time.monotonic()
        if self._file is None or now - self._looked < _LOOK_EVERY:
            return
        self._looked = now
        assert self._path is not None
        try:
            same = os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())
        except OSError:
            same = False
        if not same:
            self._file.close()
            self._file = None

    def _rotate(self, file: BinaryIO) -> BinaryIO:
        assert self._path is not None
        file.close()
        self._file = None
        for number in range(self._keep - 1, 0, -1):
            older = self._numbered(number)
            if older.exists():
                older.replace(self._numbered(number + 1))
        if self._keep:
            self._path.replace(self._numbered(1))
        else:
            self._path.unlink()
        return self._open()

    def _numbered(self, number: int) -> Path:
        assert self._path is not None
        return self._path.with_name(f"{self._path.name}.{number}")
