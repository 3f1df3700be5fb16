"""Submissions that are, but for their id, byte for byte one that was read before: workflows send them by the thousand.

They need no parsing. What is remembered is found by the bytes with the id cut out, so two submissions that differ in
anything else never meet.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass

from rainbow.jobspec import Jobspec
from rainbow.models.job import SubmitRequest
from rainbow_workers.scheduling.job_templates import JobTemplate

#: An id as it is usually written. In any other form it stays part of the bytes, and each such submission is read.
_ID = re.compile(rb'"id":\s*"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"')


@dataclass(slots=True, eq=False)
class Known:
    """What a submission was read as, and once it came again, the template of its job. Its `id` is the first one's."""

    request: SubmitRequest
    jobspec: Jobspec
    template: JobTemplate | None = None


class ParseCache:
    """Bounded by number and by bytes; the ones used least lately go first. Of one thread."""

    def __init__(self, max_entries: int = 4096, max_bytes: int = 8 << 20) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._bytes = 0
        self._known: OrderedDict[tuple[bytes, bytes], Known] = OrderedDict()

    def find(self, body: bytes) -> tuple[str | None, Known] | None:
        """The id in `body`, and what an equal one was read as."""
        job_id, key = _split(body)
        found = self._known.get(key)
        if found is None:
            return None
        self._known.move_to_end(key)
        return job_id, found

    def add(self, body: bytes, request: SubmitRequest, jobspec: Jobspec) -> None:
        """Remember what `body` was read as."""
        job_id, key = _split(body)
        # The id found must be the submission's own, and nowhere else in it: else the cut is in the wrong place.
        if key in self._known or job_id != request.id or (job_id is not None and body.count(job_id.encode()) != 1):
            return
        self._known[key] = Known(request, jobspec)
        self._bytes += len(key[0]) + len(key[1])
        while self._known and (len(self._known) > self._max_entries or self._bytes > self._max_bytes):
            (before, after), _ = self._known.popitem(last=False)
            self._bytes -= len(before) + len(after)


def _split(body: bytes) -> tuple[str | None, tuple[bytes, bytes]]:
    found = _ID.search(body, max(0, body.find(b'"id"')))
    if found is None:
        return None, (body, b"")
    start, end = found.span(1)
    return found[1].decode(), (body[:start], body[end:])
