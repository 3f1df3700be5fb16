"""What library users and the command line call: one connection, everything one may ask of rainbow."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePath
from types import TracebackType
from typing import Any, Self, Unpack

from pydantic import SecretStr

from rainbow import settings as settings_module
from rainbow.brokers.base import Broker, Message
from rainbow.client.clusters import Clusters, with_each
from rainbow.client.connection import Connection
from rainbow.client.credentials import Credentials
from rainbow.client.elements import followed, named, plain, unsent
from rainbow.client.job import Job
from rainbow.client.output import pieces
from rainbow.client.submission import JobFields, build, message
from rainbow.client.views import Cancelled, merged
from rainbow.client.watching import CHUNK, Ids, changes
from rainbow.errors import Denied, InvalidInput, NotFound, TimedOut
from rainbow.models.job import STATES, Answer, JobRecord
from rainbow.models.requests import MAX_OUTPUT, JobPage, Output
from rainbow.models.wire import parse
from rainbow.settings import Settings

#: Seconds after which a job that is waited for must be known: as a rule, and after this client submitted some. A
#: scheduler that is busy, or was just started, takes its time.
_KNOWN_WITHIN, _RECORDED_WITHIN = 2.0, 20.0


class Client(Clusters):
    """A connection to rainbow. Safe to use from several threads; close it, or use it in a ``with`` statement.

    `url` of the broker and `token` go before what `settings` say; without `settings` they are read as the command
    line does (`rainbow.settings.load`). `timeout` in seconds is the limit of each call, but for those that wait for
    jobs to end. `broker` is one made already: it stays open.

    Every method raises Denied without the right for what is asked, BrokerUnavailable when there is no broker,
    and TimedOut when nobody answers.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        settings: Settings | None = None,
        token: str | None = None,
        broker: Broker | None = None,
        timeout: float = 30.0,
        name: str = "rainbow-client",
    ) -> None:
        chosen = settings or settings_module.load()
        if url is not None:
            section = chosen.broker.model_copy(update={"url": SecretStr(url)})
            chosen = chosen.model_copy(update={"broker": section})
        self.timeout = timeout
        self._submitted_at = -math.inf
        self._limit, self._staging = chosen.limits.message_bytes, chosen.staging
        self._credentials = Credentials.from_settings(chosen, token)
        self._connection = Connection(chosen, self._credentials, broker=broker, timeout=timeout, name=name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect. Idempotent. Jobs go on."""
        self._connection.close()

    @property
    def subjects(self) -> frozenset[str]:
        """The subjects that this client submits as, by its tokens."""
        return self._credentials.subjects()

    # -- jobs ----------------------------------------------------------------------------------------

    def submit(self, **job: Unpack[JobFields]) -> Job:
        """Submit a job (see `JobFields`). Returns once the broker has confirmed that it keeps it.

        Raises InvalidInput naming the field, TooLarge, and PublishFailed or a subclass when the broker did not take
        it: then submitting again with the same `id`, which the error names, is safe.
        """
        return self.submit_many([job])[0]

    def submit_many(self, jobs: Iterable[JobFields], timeout: float | None = None) -> list[Job]:
        """Submit many jobs, confirms pipelined; raises as `submit`. Give them an `id` each to be able to repeat a
        part that failed."""
        given = [self._with_files(fields) for fields in jobs]
        requests = [build(fields, max_bytes=self._limit) for fields, _ in given]
        allowed = [self._credentials.for_submission(request.clusters or ()) for request in requests]
        self._connection.ready()
        handles: list[Job] = []
        messages: list[Message] = []
        for request, tokens in zip(requests, allowed, strict=True):
            slot = self._connection.mailbox.open(request.id)
            handles.append(Job(self, slot.id, slot, recorded=not request.satisfy_only))
            messages.append(message(request, tokens, slot.address, max_bytes=self._limit))
        for request, (_, upload) in zip(requests, given, strict=True):
            if upload is not None and not request.satisfy_only:
                upload()
        self._connection.confirm(messages, self.timeout if timeout is None else timeout)
        self._submitted_at = time.monotonic()
        return handles

    def _with_files(self, fields: JobFields) -> tuple[Mapping[str, Any], Callable[[], None] | None]:
        if not fields.get("stage_in") and not fields.get("stage_out"):
            return fields, None
        from rainbow.client.staging import with_files  # not for jobs without files

        return with_files(fields, self._staging)

    def fetch(self, job_id: str, into: str | PurePath = ".", paths: Iterable[str] | None = None) -> list[str]:
        """Bring home what a job left (`stage_out`); of an array, into a folder for each index. The place is emptied.

        Into a folder with files come only the `paths` that the job was to leave (None: as its jobspec has them), so
        that a cluster cannot put others there.

        Raises NotFound while there is nothing, and InvalidInput without a place (`staging.places`).
        """
        from rainbow.client.staging import fetch

        return fetch(job_id, Path(into), self._staging, self.jobspec if paths is None else list(paths))

    def satisfy(self, **job: Unpack[JobFields]) -> Answer:
        """Which clusters could run the job; nothing is submitted. Raises as `submit` and `Job.wait_answer`."""
        question = job.copy()
        question["satisfy_only"] = True
        return self.submit_many([question])[0].answer

    def job(self, job_id: str) -> Job:
        """A handle on a job submitted before; ``ID[7]`` is element 7 of an array."""
        return Job(self, job_id)

    def status(self, ids: Sequence[str], timeout: float | None = None) -> list[JobRecord | None]:
        """The records of jobs with their history, in order; None for those not known, or another user's."""
        elements = named(ids)
        ids = plain(ids)
        found: dict[str, JobRecord] = {}

        def ask(token: str, missing: list[str]) -> None:
            for part in _chunks(missing):
                jobs = self._connection.call("status", token, timeout, ids=part)["jobs"]
                found.update((job["id"], parse(JobRecord, job)) for job in jobs if job is not None)

        with_each(self._credentials.for_jobs(), ids, found, ask)
        missing = {job_id: element for job_id, element in elements.items() if job_id not in found}
        if missing:
            arrays = self.status([array for array, _ in missing.values()], timeout)
            made = [unsent(array, index) for array, (_, index) in zip(arrays, missing.values(), strict=True)]
            found.update((one.id, one) for one in made if one is not None)
        return [found.get(job_id) for job_id in ids]

    def jobs(self, *, state: str | None = None, cluster: str | None = None, limit: int = 100) -> list[JobRecord]:
        """The newest jobs one may see, newest first, without their history."""
        page = self.job_page(state=state, cluster=cluster, limit=limit)
        found = page.jobs
        while len(found) < limit and page.next is not None:
            page = self.job_page(state=state, cluster=cluster, limit=limit - len(found), before=page.next)
            found += page.jobs
        return found

    def job_page(
        self,
        *,
        state: str | None = None,
        cluster: str | None = None,
        user: str | None = None,
        text: str | None = None,
        array: str | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> JobPage:
        """A page of the list of jobs one may see, newest first, without their history; or of the elements of `array`.

        `text` is in the id, name, user or detail of each.

        It begins after the position `before`, where another page ended (`JobPage.next`). It may have fewer jobs than
        `limit`, which is 10,000 at most, although there are more.
        """
        if state is not None and state not in STATES:
            raise InvalidInput(f"no state {state!r}: choose of {', '.join(STATES)}")
        given = {"state": state, "cluster": cluster, "user": user, "text": text, "array": array, "limit": limit}
        given["before"] = before
        fields: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        pages: list[JobPage] = []

        def ask(token: str, _: list[str]) -> None:
            pages.append(parse(JobPage, self._connection.call("jobs", token, **fields)))

        with_each(self._credentials.for_jobs(), (), {}, ask)
        return pages[0] if len(pages) == 1 else merged(pages, limit)

    def cancel(self, ids: Sequence[str], *, reason: str = "cancelled by its user") -> list[Cancelled | None]:
        """Ask for jobs to end; None for those not known, or another user's. Repeating is harmless."""
        given, ids = ids, plain(ids)
        found: dict[str, Cancelled] = {}
        tokens = self._credentials.for_jobs()

        def ask(token: str, missing: list[str]) -> None:
            mine = missing
            if token != tokens[-1]:
                # Another user's job spoils a whole request: the last token takes those that none is known to see.
                parts = [self._connection.call("status", token, ids=part)["jobs"] for part in _chunks(missing)]
                mine = [job["id"] for jobs in parts for job in jobs if job is not None]
            for part in _chunks(mine):
                jobs = self._connection.call("cancel", token, ids=part, reason=reason)["jobs"]
                found.update((job["id"], parse(Cancelled, job)) for job in jobs if job is not None)

        with_each(tokens, ids, found, ask)
        # What is not known is marked: an element that is not sent yet will not start.
        unknown = [name for name, job_id in zip(given, ids, strict=True) if name != job_id and job_id not in found]
        for record in self.status(unknown) if unknown else ():
            if record is not None:
                found[record.id] = Cancelled(id=record.id, state=record.state)
        return [found.get(job_id) for job_id in ids]

    def events(self, ids: Ids, *, timeout: float | None = None, patient: bool = False) -> Iterator[JobRecord]:
        """The record of each job as it is now, then each time it changes, until all have ended (see `Ids`).

        Raises NotFound for a job nobody knows, unless `patient`; TimedOut after `timeout` seconds (None: no limit).
        """
        self._connection.ready()
        lately = time.monotonic() - self._submitted_at < _RECORDED_WITHIN
        grace = None if patient else _RECORDED_WITHIN if lately else _KNOWN_WITHIN

        def follow(ids: Ids, grace: float | None = grace) -> Iterator[JobRecord]:
            rpc, mailbox, tokens = self._connection.rpc, self._connection.mailbox, self._credentials.for_jobs()
            return changes(rpc, mailbox, tokens, ids, timeout=timeout, answer_within=self.timeout, grace=grace)

        if callable(ids) or not named(ids):
            return follow(ids)
        known = None not in self.status(ids)
        return followed(ids, partial(follow, grace=None if known else grace), self.status)

    def wait(self, ids: Sequence[str], timeout: float | None = None) -> list[JobRecord]:
        """The records of jobs once all have ended, in order. Raises as `events`."""
        last = {record.id: record for record in self.events(ids, timeout=timeout)}
        return [last[job_id] for job_id in plain(ids)]

    def output(
        self, job_id: str, *, stdout: int = 0, stderr: int = 0, limit: int = MAX_OUTPUT, timeout: float | None = None
    ) -> Output:
        """A piece of a job's output, from these bytes of each stream on (negative: from the end), fetched from its
        cluster; what was recorded of it (`source` ``tail``) where that cannot be asked. Raises NotFound.
        """
        [job_id] = plain([job_id])
        try:
            asked = self._ask_of("logs", job_id, timeout, stdout=stdout, stderr=stderr, limit=limit)
            piece = parse(Output, asked)
        except TimedOut:
            return self._recorded_output(job_id, "its cluster does not answer")
        return piece if piece.source == "job" else self._recorded_output(job_id, piece.detail)

    def jobspec(self, job_id: str) -> dict[str, Any]:
        """What was submitted as a job. Raises NotFound also where it is not kept (`store.jobspec_bytes`)."""
        [job_id] = plain([job_id])
        found: dict[str, Any] | None = self._ask_of("jobspec", job_id)["jobspec"]
        if found is None:
            raise NotFound(f"the jobspec of job {job_id} is not kept: it was too large, or is lost")
        return found

    def _ask_of(self, op: str, job_id: str, timeout: float | None = None, **fields: Any) -> dict[str, Any]:
        """The answer to a question about a job, with the token of its submitter. Raises NotFound."""
        missing = NotFound(f"no job {job_id} (or it is another user's)")
        for token in self._credentials.for_jobs():
            try:
                return self._connection.call(op, token, timeout, id=job_id, **fields)
            except NotFound as exc:  # another token may be the one that submitted it
                missing = exc
        raise missing

    def _recorded_output(self, job_id: str, why: str | None) -> Output:
        record = self.status([job_id])[0]
        if record is None:
            raise NotFound(f"no job {job_id} (or it is another user's)")
        return Output(
            id=job_id,
            attempt=record.attempt,
            source="tail",
            stdout=record.output or "",
            ended=record.terminal,
            detail=why,
        )

    def logs(self, job_id: str, *, follow: bool = False, timeout: float | None = None) -> Iterator[Output]:
        """A job's output piece by piece: what there is, or, to `follow`, until the job has ended. Raises as `output`;
        TimedOut after `timeout` seconds (None: no limit)."""
        return pieces(self.output_fetcher(job_id), follow, timeout)

    def output_fetcher(self, job_id: str) -> Callable[..., Output]:
        """What fetches pieces of a job's output, for `rainbow.client.output.OutputReader`."""
        return lambda **where: self.output(job_id, timeout=self.timeout / 3, **where)

    # -- rainbow itself -----------------------------------------------------------------------------

    def waiting(self, queues: Iterable[str]) -> dict[str, int | None]:
        """How many messages wait in queues of the broker; None for those that are not there or may not be looked at."""
        self._connection.ready()
        return {name: self._depth(name) for name in queues}

    def _depth(self, queue: str) -> int | None:
        try:
            return self._connection.broker.stats(queue).messages
        except (Denied, NotFound):
            return None

    def ping(self, timeout: float | None = None) -> dict[str, Any]:
        """The registrar's ``version`` and ``time``."""
        return self._connection.call("ping", None, timeout)


def _chunks(ids: Sequence[str]) -> Iterator[list[str]]:
    for start in range(0, len(ids), CHUNK):
        yield list(ids[start : start + CHUNK])
