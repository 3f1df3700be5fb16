"""The Dependencies on Redis (keys: `lua/await.lua`)."""

from __future__ import annotations

from collections.abc import Sequence

from rainbow.models.job import RANK
from rainbow_workers.stores.base import Dependent, Progress
from rainbow_workers.stores.history import AWAITED_TTL
from rainbow_workers.stores.redis.codec import pack, text, unpack
from rainbow_workers.stores.redis.connection import Connection

#: How many other jobs one call is about: it never holds the server up for long.
SLICE = 500
#: How many that moved are read at once.
_AT_ONCE = 1000


class RedisDependencies:
    """See `rainbow_workers.stores.base.Dependencies`."""

    def __init__(self, connection: Connection, prefix: str) -> None:
        self._connection = connection
        self._keys = {False: f"{prefix}moved", True: f"{prefix}moved-arrays"}

    def await_(self, dependents: Sequence[Dependent]) -> list[list[Progress | None]]:
        out: list[list[Progress | None]] = [[] for _ in dependents]
        for part in _slices(dependents):
            asked = pack([[d.id, d.user, ids] for _, d, ids in part])
            reply = unpack(self._connection.run("await", RANK["completed"], AWAITED_TTL, asked))
            for (at, _, _), found in zip(part, reply, strict=True):
                out[at] += [Progress(text(one[0]), bool(one[1]), bool(one[2])) if one else None for one in found]
        return out

    def forget(self, dependents: Sequence[Dependent]) -> None:
        for part in _slices(dependents):
            self._connection.run("unawait", pack([[d.id, ids] for _, d, ids in part]))

    def moved(self, since: str, timeout: float, *, arrays: bool = False) -> tuple[str, list[str]]:
        key = self._keys[arrays]
        if not since:
            newest = self._connection.command("XREVRANGE", key, "+", "-", "COUNT", 1)
            return (text(newest[0][0]) if newest else "0-0"), []
        milliseconds = max(1, int(1000 * timeout))
        block = ("BLOCK", milliseconds) if timeout > 0 else ()
        reply = self._connection.command("XREAD", "COUNT", _AT_ONCE, *block, "STREAMS", key, since)
        if not reply:
            return since, []
        entries = reply[0][1]
        return text(entries[-1][0]), [text(values[1]) for _, values in entries]


def _slices(dependents: Sequence[Dependent]) -> list[list[tuple[int, Dependent, Sequence[str]]]]:
    """Parts of at most SLICE other jobs each: position, dependent and others."""
    parts: list[list[tuple[int, Dependent, Sequence[str]]]] = [[]]
    count = 0
    for at, dependent in enumerate(dependents):
        for start in range(0, len(dependent.after), SLICE):
            ids = list(dependent.after[start : start + SLICE])
            if count + len(ids) > SLICE:
                parts.append([])
                count = 0
            parts[-1].append((at, dependent, ids))
            count += len(ids)
    return [part for part in parts if part]
