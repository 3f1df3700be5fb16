"""Jobs that are held here, accepted, and whose delivery did not come back: the ledger says what becomes of them.

It happens when the agent was cut off between the broker's confirm of `accepted` and its own release. The ledger knows
whether the attempt is still the one that counts: if so it starts now; if the job went elsewhere it is dropped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from rainbow.client.rpc import Rpc
from rainbow.errors import RainbowError
from rainbow_agents.executors.base import Executor
from rainbow_agents.journal import Journal, Row

log = logging.getLogger(__name__)

#: Seconds to wait for the delivery before the ledger is asked.
AFTER = 120.0
#: Seconds after which a held job that even the ledger does not know is dropped.
_GIVE_UP = 86400.0


class Limbo:
    """`look` is called from time to time, while the agent takes jobs (so that deliveries have come back by then)."""

    def __init__(self, journal: Journal, rpc: Rpc, cluster: str, *, after: float = AFTER) -> None:
        self.executor: Executor | None = None
        self._journal = journal
        self._rpc = rpc
        self._cluster = cluster
        self._after = after

    def look(self, clock: Callable[[], float] = time.time) -> None:
        now = clock()
        rows = [r for r in self._journal.active() if not r.released and r.changed_at < now - self._after]
        if not rows or self.executor is None:
            return
        for start in range(0, len(rows), 500):
            chunk = rows[start : start + 500]
            try:
                records = self._rpc.call({"op": "status", "version": 1, "ids": [r.id for r in chunk]}, 10.0)["jobs"]
            except RainbowError as exc:
                log.info("the ledger was not reached: %s", exc, extra={"action": "limbo", "code": exc.code})
                return
            for row, record in zip(chunk, records, strict=True):
                self._settle(row, record, now)

    def _settle(self, row: Row, record: object, now: float) -> None:
        assert self.executor is not None
        ours = isinstance(record, dict) and record.get("attempt") == row.attempt
        if isinstance(record, dict) and ours and record.get("state") in ("accepted", "running"):
            if record.get("cancel_requested"):
                self.executor.cancel([row.held], "cancelled")
                return
            released = self._journal.release([row.mark], [])
            self.executor.release([r.held for r in released])
            log.info("held job starts: the ledger has it here", extra={"action": "limbo", "id": row.id})
        elif (isinstance(record, dict) and not (ours and record.get("state") == "assigned")) or (
            record is None and row.changed_at < now - _GIVE_UP
        ):
            self._journal.drop([row], "the job went elsewhere")
            self.executor.cancel([row.held], "the job went elsewhere")
            log.info("held job dropped: it went elsewhere", extra={"action": "limbo", "id": row.id})
