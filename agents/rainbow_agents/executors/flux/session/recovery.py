"""Finds our jobs again: the active ones in the journal, the ended ones by their ids.

A job that cannot be looked up is its own trouble: the answer names it with the reason, and holds up no other job.
"""

from __future__ import annotations

import errno
import json
from typing import Any

import flux.constants

from .channel import Json
from .connection import Connection
from .events import RECOVERED, fetch_tail, journal
from .jobs import JobTable, Part, key_of, mark_in, number_of

#: Seconds for all look-ups together, below the time that the agent waits for the answer.
LOOK_UP_WITHIN = 8.0
#: Tries, 0.1 s apart, for a job whose last events are not in the KVS yet.
_TRIES = 30


class Recovery:
    """Answers the question `recover`."""

    def __init__(self, connection: Connection, owner: str, tail: int) -> None:
        self._connection = connection
        self._owner = owner
        self._tail = tail

    def recover(self, request: Json) -> None:
        """All active jobs of ours, from the journal as it is now; of the expected jobs also those that ended."""
        ask = request["ask"]
        active = JobTable(self._owner)

        def arrived(future: Any) -> None:
            try:
                reply = future.get()
            except OSError as exc:
                self._connection.answer(ask, error=f"Flux's journal ended: {exc}")
                return
            if reply["id"] != -1:
                future.reset()
                active.apply(reply)
                return
            future.stop()
            no_response = flux.constants.FLUX_RPC_NORESPONSE
            tag = {"matchtag": future.pimpl.get_matchtag()}
            self._connection.handle.rpc("job-manager.events-journal-cancel", tag, nodeid=0, flags=no_response)
            _LookUp(self._connection, ask, active, request["expected"], self._tail).start()

        journal(self._connection, RECOVERED, arrived, passing=True)


class _LookUp:
    """Looks up the expected jobs that are not active any more. A mark shows whether a job is ours indeed."""

    def __init__(self, connection: Connection, ask: int, active: JobTable, expected: list[Json], tail: int) -> None:
        self._connection = connection
        self._ask = ask
        self._active = active
        self._expected = expected
        self._tail = tail
        self._ended = JobTable(active.owner)
        self._waiting: dict[str, Json] = {}
        self._trouble: list[Json] = []
        self._answered = False

    def start(self) -> None:
        for job in self._expected:
            known = {p.number for p in self._active.parts(job["mark"])}
            self._waiting.update((name, job["mark"]) for name in job["names"] if number_of(name) not in known)
        if not self._waiting:
            self._answer()
            return
        self._connection.later(LOOK_UP_WITHIN, self._expire)
        for name in list(self._waiting):
            self._look_up(name, 0)

    def _look_up(self, name: str, tries: int) -> None:
        payload = {"id": number_of(name), "keys": ["jobspec", "eventlog"], "flags": 0}
        self._connection.rpc("job-info.lookup", payload, self._arrived, name, tries)

    def _arrived(self, future: Any, name: str, tries: int) -> None:
        if name not in self._waiting:
            return  # too late
        try:
            found = future.get()
        except OSError as exc:
            # ENOENT: purged, or never there.
            self._done(name, None if exc.errno == errno.ENOENT else f"Flux cannot look up job {name}: {exc}")
            return
        try:
            part = self._read(name, found)
        except (KeyError, TypeError, ValueError) as exc:
            self._done(name, f"what Flux keeps of job {name} cannot be read: {exc}")
            return
        if part is None:
            self._done(name)  # somebody else's job, with an id that was given out again
        elif part.ended is None and tries < _TRIES:
            self._connection.later(0.1, lambda: self._look_up(name, tries + 1))
        else:
            fetch_tail(self._connection, self._ended.add(part), self._tail, lambda: self._done(name))

    def _read(self, name: str, found: Json) -> Part | None:
        mark = mark_in(found.get("jobspec"), self._active.owner)
        if mark is None or key_of(mark) != key_of(self._waiting[name]):
            return None
        part = Part(number_of(name), mark)
        for line in found["eventlog"].splitlines():
            part.apply(json.loads(line))
        return part

    def _done(self, name: str, trouble: str | None = None) -> None:
        mark = self._waiting.pop(name, None)
        if mark is not None and trouble:
            self._trouble.append({"mark": mark, "reason": trouble})
        if not self._waiting:
            self._answer()

    def _expire(self) -> None:
        for name in list(self._waiting):
            self._done(name, f"Flux did not look up job {name} within {LOOK_UP_WITHIN:g} s")

    def _answer(self) -> None:
        if self._answered:
            return
        self._answered = True
        jobs = []
        names = {key_of(job["mark"]): job["names"] for job in self._expected}
        unknown = {key_of(job["mark"]) for job in self._trouble}
        for key in {**self._active.by_key, **self._ended.by_key}:
            mark = {"id": key[0], "attempt": key[1], "claim": key[2]}
            parts = sorted(self._active.parts(mark) + self._ended.parts(mark), key=lambda p: p.index)
            if key in unknown and all(p.ended is not None for p in parts):
                continue  # the part that cannot be looked up may have failed
            wanted = names.get(key)
            # Where only some parts are found and the others are gone, it was never complete, or they were purged.
            whole = len(parts) == (len(wanted) if wanted else parts[0].count)
            jobs.append({"mark": mark, "whole": whole, "parts": [p.facts() for p in parts]})
        result = {"incarnation": self._connection.incarnation, "jobs": jobs, "trouble": self._trouble}
        self._connection.answer(self._ask, result=result)
