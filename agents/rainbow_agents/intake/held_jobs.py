"""Jobs that are held here, accepted, and whose delivery did not come back: the ledger says what becomes of them.

It happens when the agent ended, or was cut off, between the broker's confirm of `accepted` and its own release. The
ledger knows whether the attempt is still the one that counts: if so it starts now; if the job went elsewhere it is
dropped. One that the executor lost meanwhile ends `lost`, unless its delivery comes back.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from rainbow.backoff import Backoff
from rainbow.client.rpc import Rpc
from rainbow.errors import RainbowError
from rainbow_agents.executors.base import Executor
from rainbow_agents.journal import Journal, JournalDown, Row

log = logging.getLogger(__name__)

#: Seconds between questions about jobs whose dispatch is in doubt: at first, and at most.
_SOON, _LATER = 0.5, 30.0
#: Seconds to wait for the delivery before the ledger is asked about any other job.
AFTER = 120.0
#: Seconds after which a held job that even the ledger does not know is dropped.
_GIVE_UP = 86400.0


class HeldJobReconciler:
    """`look` is called from time to time, while the agent takes jobs (so that deliveries have come back by then)."""

    def __init__(
        self,
        journal: Journal,
        rpc: Rpc,
        cluster: str,
        executor: Executor,
        *,
        wake: Callable[[], None] = lambda: None,
        after: float = AFTER,
    ) -> None:
        self._wake = wake
        self._executor = executor
        self._journal = journal
        self._rpc = rpc
        self._cluster = cluster
        self._after = after
        self._backoff = Backoff(_SOON, _LATER, 1.5)
        self._due = 0.0
        self._lock = threading.Lock()
        self._doubtful: dict[tuple[str, int], None] = {}
        #: Those gone from the executor that are not ours to end.
        self._elsewhere: set[tuple[str, int]] = set()

    def confirm(self, keys: Sequence[tuple[str, int]]) -> None:
        """These held jobs are to start, or to go, as soon as the ledger says which."""
        with self._lock:
            self._doubtful.update(dict.fromkeys(keys))
            self._backoff.reset()
            self._due = 0.0

    def confirm_left(self) -> None:
        """The same for all that were held when the agent started: their deliveries may have been settled."""
        self.confirm([(r.id, r.attempt) for r in self._journal.active() if not r.released])

    def run(self, stop: threading.Event) -> None:
        """Ask for those that `confirm` named, until `stop`."""
        while not stop.wait(_SOON):
            if self._doubtful and time.monotonic() >= self._due:
                self._due = time.monotonic() + self._backoff.next()
                try:
                    self.look()
                except JournalDown as exc:
                    log.warning("held jobs wait: %s", exc, extra={"action": "confirm"})

    def look(self, clock: Callable[[], float] = time.time) -> None:
        now = clock()
        with self._lock:
            doubtful = set(self._doubtful)
        rows = [
            r
            for r in self._journal.active()
            if not r.released and (r.changed_at < now - self._after or (r.id, r.attempt) in doubtful)
        ]
        with self._lock:
            for key in doubtful - {(r.id, r.attempt) for r in rows}:
                self._doubtful.pop(key, None)
        gone = [r for r in self._journal.gone() if r.changed_at < now - self._after]
        self._elsewhere &= {(r.id, r.attempt) for r in gone}
        rows += [r for r in gone if (r.id, r.attempt) not in self._elsewhere]
        if not rows:
            return
        for start in range(0, len(rows), 500):
            chunk = rows[start : start + 500]
            try:
                reply = self._rpc.call({"op": "status", "version": 1, "ids": [r.id for r in chunk]}, 10.0)
            except RainbowError as exc:
                log.info("the ledger was not reached: %s", exc, extra={"action": "limbo", "code": exc.code})
                return
            if reply.get("doubt"):
                continue  # other clusters may still report that they have one of them
            elsewhere = set(reply.get("elsewhere", ()))
            for row, record in zip(chunk, reply["jobs"], strict=True):
                self._settle(row, {} if row.id in elsewhere else record, now)

    def _settle(self, row: Row, record: object, now: float) -> None:
        ours = (
            isinstance(record, dict)
            and record.get("attempt") == row.attempt
            and record.get("cluster", self._cluster) == self._cluster
        )
        here = isinstance(record, dict) and ours and record.get("state") in ("accepted", "running")
        if row.state == "returned":
            if here:
                self._journal.lose([row], "the executor lost it before it started: submit it again")
                self._wake()
            elif record is not None:
                self._elsewhere.add((row.id, row.attempt))
            return
        if isinstance(record, dict) and here:
            if record.get("cancel_requested"):
                self._executor.cancel([row.held], "cancelled")
                return
            released = self._journal.release([row.mark], [])
            self._executor.release([r.held for r in released])
            log.info("held job starts: the ledger has it here", extra={"action": "limbo", "id": row.id})
        elif (isinstance(record, dict) and not (ours and record.get("state") == "assigned")) or (
            record is None and row.changed_at < now - _GIVE_UP
        ):
            self._journal.drop([row], "the job went elsewhere")
            self._executor.cancel([row.held], "the job went elsewhere")
            log.info("held job dropped: it went elsewhere", extra={"action": "limbo", "id": row.id})
