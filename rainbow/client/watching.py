"""Follow jobs: a watch on the registrar, renewed before it runs out, which also makes up for what was missed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence

from rainbow.backoff import Backoff
from rainbow.client.mailbox import Mailbox, Slot
from rainbow.client.rpc import Rpc
from rainbow.errors import Denied, NotFound, PublishFailed, TimedOut
from rainbow.models.job import RANK, JobRecord
from rainbow.models.wire import parse

#: Seconds a watch holds on the registrar's side; asked for anew after half of it.
TTL = 60.0
#: The registrar takes this many ids in one request.
CHUNK = 1000
#: Seconds between two looks for further ids.
_LOOK = 0.05


#: Ids of jobs, or a function that is asked several times a second for further ones, until it returns None.
Ids = Sequence[str] | Callable[[], Sequence[str] | None]


class _Watch:
    """What is known of the jobs watched, and which of the tokens sees which of them."""

    def __init__(self, rpc: Rpc, mailbox: Mailbox, tokens: Sequence[str], ids: Sequence[str]) -> None:
        self.rpc = rpc
        self.mailbox = mailbox
        self.first = mailbox.open()
        self.tokens = list(tokens)
        self.open = dict.fromkeys(ids)
        self.known: dict[str, JobRecord] = {}
        self.owner: dict[str, str] = {}
        self.slots: dict[tuple[str, int], Slot] = {}
        self.unanswered = set(tokens)
        self.unanswered_parts: set[tuple[str, int]] = set()

    @property
    def answered(self) -> bool:
        """Has every token been answered, for all the jobs it was asked for?"""
        return not self.unanswered and not self.unanswered_parts

    @property
    def complete(self) -> bool:
        """Is every job known that has not ended?"""
        return all(job in self.known for job in self.open)

    def ask(self, limit: float) -> None:
        """Ask anew, with each token for the jobs it sees and for those that none is known to see."""
        from rainbow.models.control import parse_request

        for token in self.tokens:
            ids = [job for job in self.open if self.owner.get(job, token) == token]
            for part, start in enumerate(range(0, len(ids), CHUNK)):
                slot = self.slots.get((token, part))
                if slot is None:
                    slot = self.slots[token, part] = self.mailbox.open(into=self.first)
                    self.unanswered_parts.add((token, part))
                request = {"op": "watch", "ids": ids[start : start + CHUNK], "ttl": TTL, "token": token}
                self.rpc.post(parse_request(request), slot, limit)

    def take(self, timeout: float) -> list[JobRecord]:
        """The jobs that changed, as soon as there are some; [] after `timeout` seconds. Raises what every token met."""
        delivery = self.first.wait(timeout)
        if delivery is None:
            return []
        key = next((key for key, slot in self.slots.items() if slot.id == delivery.correlation_id), ("", 0))
        token = key[0]
        self.unanswered_parts.discard(key)
        try:
            result = self.rpc.read(delivery)
        except Denied:
            self.tokens = [t for t in self.tokens if t != token]
            self.unanswered.discard(token)
            self.unanswered_parts = {key for key in self.unanswered_parts if key[0] != token}
            if not self.tokens:
                raise
            return []
        self.unanswered.discard(token)
        records = [parse(JobRecord, job) for job in result.get("jobs", ()) if job is not None]
        return [record for record in records if self.learn(record, token)]

    def learn(self, record: JobRecord, token: str) -> bool:
        """Note a record; True when it says something new of a job still open."""
        if record.id not in self.open:
            return False
        self.owner[record.id] = token
        old = self.known.get(record.id)
        if old is not None:
            if (record.attempt, RANK[record.state]) < (old.attempt, RANK[old.state]):
                return False  # overtaken on the way
            if record.model_copy(update={"history": old.history}) == old:
                return False
        self.known[record.id] = record
        if record.terminal:
            del self.open[record.id]
        return True


def changes(
    rpc: Rpc,
    mailbox: Mailbox,
    tokens: Sequence[str],
    ids: Ids,
    *,
    timeout: float | None = None,
    answer_within: float = 30.0,
    grace: float | None = None,
) -> Iterator[JobRecord]:
    """The record of each job as it is, then each time it changed, until all have ended.

    Raises TimedOut after `timeout` seconds, and when nobody answers the first question within `answer_within`;
    NotFound when a job is not known `grace` seconds after asking (None: it is waited for); Denied when no token
    may see anything. A registrar or broker that goes away later is waited for.
    """
    begun = time.monotonic()
    end = math.inf if timeout is None else begun + timeout
    more = ids if callable(ids) else None
    watch = _Watch(rpc, mailbox, tokens, () if callable(ids) else ids)
    backoff = Backoff(0.1, 2.0)
    ask_at = begun
    reconnects = mailbox.reconnects
    while watch.open or more is not None:
        now = time.monotonic()
        if more is not None:
            further = more()
            if further is None:
                return
            watch.open.update(dict.fromkeys(further))
            ask_at = now if further else ask_at
        if mailbox.reconnects != reconnects:
            reconnects, ask_at = mailbox.reconnects, now
        if now >= end:
            raise TimedOut(f"{_count(len(watch.open))} not ended after {timeout:g} s")
        if len(watch.unanswered) == len(tokens) and now - begun > answer_within:
            raise TimedOut(f"the registrar did not answer within {answer_within:g} s: is rainbow-scheduler running?")
        if grace is not None and now - begun >= grace and watch.answered and not watch.complete:
            missing = next(job for job in watch.open if job not in watch.known)
            raise NotFound(f"no job {missing} (or it is another user's)")
        if now >= ask_at and watch.open:
            try:
                watch.ask(min(answer_within, end - now))
            except (PublishFailed, TimedOut):
                if len(watch.unanswered) == len(tokens):
                    raise
            ask_at = now + (TTL / 2 if watch.complete else backoff.next())
        wake = now + (_LOOK if more is not None else 1.0)
        yield from watch.take(min(end, wake, ask_at if watch.open else wake) - time.monotonic())


def _count(jobs: int) -> str:
    return "the job has" if jobs == 1 else f"{jobs} jobs have"
