"""A submitted job, as the one who submitted it holds it."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from html import escape
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from rainbow import codec
from rainbow.client.mailbox import Slot
from rainbow.client.views import Cancelled
from rainbow.errors import Denied, InvalidInput, NotFound, RainbowError, Refused, TimedOut, TooManyRequests, Unavailable
from rainbow.models.job import TERMINAL, Answer, JobRecord
from rainbow.models.wire import parse

if TYPE_CHECKING:
    from rainbow.brokers.base import Delivery
    from rainbow.models.requests import Output

#: Seconds without the scheduler's answer before the job's record is looked at: it may have been lost on its way.
_LOOK_AFTER = 5.0


class JobClient(Protocol):
    """What a job needs of the client that submitted it."""

    timeout: float

    def status(self, ids: Sequence[str], timeout: float | None = None) -> list[JobRecord | None]: ...

    def events(
        self, ids: Sequence[str], *, timeout: float | None = None, patient: bool = False
    ) -> Iterator[JobRecord]: ...

    def logs(self, job_id: str, *, follow: bool = False, timeout: float | None = None) -> Iterator[Output]: ...

    def cancel(self, ids: Sequence[str], *, reason: str = ...) -> list[Cancelled | None]: ...

    def fetch(self, job_id: str, into: str | PurePath = ".") -> list[str]: ...


class Job:
    """A handle on a job. `id` is its UUID; submitting the same id again gives the same job."""

    def __init__(self, client: JobClient, job_id: str, slot: Slot | None = None, *, recorded: bool = True) -> None:
        self.id = job_id
        self._client = client
        self._slot = slot
        self._recorded = recorded
        self._answer: Answer | None = None

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Job belongs to its Client: send its id, and use Client.job(id) there")

    def _repr_html_(self) -> str:
        """For notebooks: the job with its state."""
        try:
            record = self.status()
        except RainbowError as exc:
            return f"<code>{self.id}</code>: {escape(str(exc))}"
        where = f" on {escape(record.cluster)}" if record.cluster else ""
        name = f"<b>{escape(record.name)}</b> " if record.name else ""
        tail = f"<pre>{escape(record.output)}</pre>" if record.output else ""
        return f"{name}<code>{self.id}</code>: {record.state}{where}{tail}"

    def __await__(self) -> Generator[Any, None, JobRecord]:
        """``await job`` is `result` without blocking the loop."""
        import asyncio  # not for programs that never await

        return asyncio.to_thread(self.result).__await__()

    @property
    def answer(self) -> Answer:
        """The scheduler's answer, waited for at most the client's time limit.

        Raises Denied and InvalidInput when the answer says so, TimedOut without one: the job is in the queue all
        the same, and its `status` tells later.
        """
        return _good(self.wait_answer())

    def wait_answer(self, timeout: float | None = None) -> Answer:
        """The scheduler's answer whatever it says, within `timeout` seconds (the client's limit if None)."""
        if self._answer is None:
            self._answer = self._await(self._client.timeout if timeout is None else timeout)
        return self._answer

    def poll_answer(self) -> Answer | None:
        """The scheduler's answer if it has arrived, None if not. Does not wait."""
        if self._answer is None and self._slot is not None:
            delivery = self._slot.wait(0.0)
            self._answer = _read(delivery) if delivery is not None else None
        return self._answer

    def status(self) -> JobRecord:
        """What is known of the job now. Raises NotFound while no scheduler has seen it."""
        return self._client.status([self.id])[0] or self._missing()

    def wait(self, timeout: float | None = None) -> JobRecord:
        """The job's record once it has ended, however it ended (see `state` and `returncode`).

        Raises TimedOut after `timeout` seconds (None: no limit); Denied and InvalidInput as `answer` does.
        """
        begun = time.monotonic()
        if self._slot is not None:
            answer = _good(self.wait_answer(float("inf") if timeout is None else timeout))
            if answer.status in TERMINAL:
                return record_of(answer)
        left = None if timeout is None else max(0.0, timeout - (time.monotonic() - begun))
        last: JobRecord | None = None
        for record in self._client.events([self.id], timeout=left, patient=True):
            last = record
        return last or self._missing()

    def result(self, timeout: float | None = None) -> JobRecord:
        """The job's record once it has completed. Raises Refused when it ended in any other way, else as `wait`."""
        record = self.wait(timeout)
        if record.state != "completed":
            why = record.detail or (f"exit {record.returncode}" if record.returncode is not None else record.code)
            raise Refused(f"job {self.id} {record.state}{f': {why}' if why else ''}")
        return record

    def events(self, timeout: float | None = None) -> Iterator[JobRecord]:
        """The job's record each time it changes, until it has ended."""
        return self._client.events([self.id], timeout=timeout, patient=True)

    def logs(self, *, follow: bool = False, timeout: float | None = None) -> Iterator[Output]:
        """The job's output, piece by piece; to `follow`, until it has ended."""
        return self._client.logs(self.id, follow=follow, timeout=timeout)

    def fetch(self, into: str | PurePath = ".") -> list[str]:
        """Bring home what the job left (`stage_out`), once it has ended. Returns the paths in `into`."""
        return self._client.fetch(self.id, into)

    def cancel(self, reason: str = "cancelled by its user") -> Cancelled:
        """Ask for the job to end. Raises NotFound. Asking again is harmless."""
        return self._client.cancel([self.id], reason=reason)[0] or self._missing()

    # -- inside --------------------------------------------------------------------------------------

    def _missing(self) -> NoReturn:
        raise NotFound(f"no job {self.id} (or it is another user's)")

    def _await(self, timeout: float) -> Answer:
        end = time.monotonic() + timeout
        while (left := end - time.monotonic()) > 0:
            delivery = self._slot.wait(min(left, _LOOK_AFTER)) if self._slot is not None else None
            if delivery is not None:
                return _read(delivery)
            if not self._recorded:
                continue
            answer = self._from_record(min(_LOOK_AFTER, end - time.monotonic()))
            if answer is not None:
                return answer
            if self._slot is None:
                raise NotFound(f"job {self.id} has no answer yet")
        kept = f"; job {self.id} waits in the queue" if self._recorded else ""
        raise TimedOut(f"no scheduler answered within {timeout:g} s{kept}: is rainbow-scheduler running?")

    def _from_record(self, timeout: float) -> Answer | None:
        """The answer as kept in the job's record, for when the one sent to us was lost."""
        try:
            record = self._client.status([self.id], timeout=max(0.1, timeout))[0]
        except (TimedOut, Unavailable, Denied):
            return None
        return parse(Answer, record.answer) if record is not None and record.answer else None


#: An answer names every cluster that was not chosen, so it may be longer than a submission.
_MAX_ANSWER = 64 << 20


def _read(delivery: Delivery) -> Answer:
    return parse(Answer, codec.decode(delivery.body, delivery.content_type, max_bytes=_MAX_ANSWER))


def _good(answer: Answer) -> Answer:
    if answer.code == TooManyRequests.code:
        raise TooManyRequests(answer.error or "too many jobs: submit it again later")
    if answer.status == "denied":
        raise Denied(answer.error or "the job was denied")
    if answer.status == "invalid":
        raise InvalidInput(answer.error or "the job is invalid")
    return answer


def record_of(answer: Answer) -> JobRecord:
    """Return the record that an answer stands for when it ends the job."""
    return parse(
        JobRecord,
        {"id": answer.id, "state": answer.status, "detail": answer.error, "answer": answer.model_dump(mode="json")},
    )
