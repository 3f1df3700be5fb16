"""`Executor`: futures of functions that run as jobs."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from functools import partial, wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ParamSpec, TypeVar

from rainbow.client import Client, Follower, Job, JobFields
from rainbow.errors import NotFound
from rainbow.executor.calls import FunctionFailed, outcome, pack
from rainbow.models.job import JobRecord

T = TypeVar("T")
P = ParamSpec("P")


class Results(Iterator[T]):
    """Results of calls in their order. `timeout` is how many seconds to wait for each, None without limit."""

    def __init__(self, made: Sequence[futures.Future[T]], timeout: float | None) -> None:
        self._made = made
        self._results = (future.result(timeout) for future in made)

    def __len__(self) -> int:
        return len(self._made)

    def __next__(self) -> T:
        return next(self._results)


class Executor(futures.Executor):
    """Runs Python functions as jobs of rainbow, each where it fits.

    Args:
        client: The client to submit with; a new one from the settings if None, which `shutdown` closes.
        resources: What each call needs: ``nodes``, ``cores``, ``gpus``, ``duration``.
        python: The Python of the clusters, of the same minor version as this one and with cloudpickle.
        environment: Variables of the jobs.
        job: Further fields of each submission (`JobFields`): ``clusters``, ``selection``, ``hold``, ``priority``.
        staging: Large arguments and results go through the place of the settings (`staging.places`), on clusters that
            have it too.

    `submit` and `map` raise InvalidInput for what cannot be pickled, and then submit nothing. A future has the
    function's result or raises its exception; FunctionFailed means that there is none of either. Cancelling a future
    cancels its job as long as the function has not started.
    """

    def __init__(
        self,
        client: Client | None = None,
        *,
        resources: Mapping[str, Any] | None = None,
        python: str = "python3",
        environment: Mapping[str, str] | None = None,
        job: JobFields | None = None,
        staging: bool = False,
    ) -> None:
        self._client = client if client is not None else Client(name="rainbow-executor")
        self._owned = client is None
        self._resources = dict(resources or {})
        self._python = python
        self._environment = environment
        self._staging = staging
        self._job: JobFields = job.copy() if job is not None else {}
        self._follower = Follower(self._client)
        self._lock = threading.Lock()
        self._open: dict[str, futures.Future[Any]] = {}
        self._ended: Counter[str] = Counter()
        self._closed = False

    def _repr_html_(self) -> str:
        """For notebooks: how many calls are in which state."""
        with self._lock:
            running = sum(future.running() for future in self._open.values())
            counts = {"waiting": len(self._open) - running, "running": running, **dict(sorted(self._ended.items()))}
        return "<b>rainbow</b> " + ", ".join(f"{number} {state}" for state, number in counts.items() if number)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> futures.Future[T]:
        """Call ``fn(*args, **kwargs)`` on a cluster."""
        (future,) = self._submit([(fn, args, kwargs)], self._resources)
        return future

    def map(
        self, fn: Callable[..., T], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Results[T]:
        """As `concurrent.futures.Executor.map`: all calls are submitted at once, results come in order.

        The iterator has a length, so that `rich.progress.track` and `tqdm` know the whole.
        """
        made = self._submit([(fn, args, {}) for args in zip(*iterables, strict=False)], self._resources)
        return Results(made, timeout)

    def function(self, **resources: Any) -> Callable[[Callable[P, T]], Callable[P, futures.Future[T]]]:
        """A decorator: calling the function submits it, with these resources over those of the executor."""
        wanted = {**self._resources, **resources}

        def decorate(fn: Callable[P, T]) -> Callable[P, futures.Future[T]]:
            @wraps(fn)
            def call(*args: P.args, **kwargs: P.kwargs) -> futures.Future[T]:
                (future,) = self._submit([(fn, args, kwargs)], wanted)
                return future

            return call

        return decorate

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; with `cancel_futures` cancel those that have not started. Wait for the others."""
        with self._lock:
            self._closed = True
            waiting = list(self._open.values()) if cancel_futures else []
        for future in waiting:
            future.cancel()
        if wait:
            self._follower.join()
            if self._owned:
                self._client.close()

    # -- inside ----------------------------------------------------------------------------------------

    def _submit(
        self,
        calls: Sequence[tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]]],
        resources: Mapping[str, Any],
    ) -> list[futures.Future[Any]]:
        packed = [pack(*call, resources, self._python, self._environment, self._staging) for call in calls]
        with self._lock, TemporaryDirectory(prefix="rainbow-") as folder:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            jobs = self._client.submit_many([{**self._job, **call.fields(Path(folder))} for call in packed])
            made: list[futures.Future[Any]] = [futures.Future() for _ in jobs]
            self._open.update((job.id, future) for job, future in zip(jobs, made, strict=True))
        self._follower.add(
            (job, partial(self._changed, job, call.key, future))
            for job, call, future in zip(jobs, packed, made, strict=True)
        )
        for job, future in zip(jobs, made, strict=True):
            future.add_done_callback(partial(self._done, job.id))
        return made

    def _done(self, job_id: str, future: futures.Future[Any]) -> None:
        state = "cancelled" if future.cancelled() else "failed" if future.exception() is not None else "completed"
        with self._lock:
            self._open.pop(job_id, None)
            self._ended[state] += 1
        if future.cancelled():
            with contextlib.suppress(RuntimeError):  # the follower was first
                future.set_running_or_notify_cancel()
            self._follower.cancel(job_id)

    def _changed(self, job: Job, key: str, future: futures.Future[Any], record: JobRecord | Exception) -> None:
        if isinstance(record, Exception):
            _fail(future, record)
        elif record.terminal and not future.cancelled():
            try:
                good, value, trace = self._outcome(job, key, record)
            except Exception as exc:
                _fail(future, exc)
                return
            if good and _begin(future):
                future.set_result(value)
            elif not good:
                value.add_note(f"on {record.cluster}, job {record.id}:\n{trace}")
                _fail(future, value)
        elif record.state == "running":
            _begin(future)

    def _outcome(self, job: Job, key: str, record: JobRecord) -> tuple[bool, Any, str]:
        """What the function came to: from the end of the output in the record, else from all of it."""
        staged = self._staged(job) if self._staging else None
        found = outcome(record.output or "", key, staged)
        if found is None and record.state in ("completed", "failed"):
            found = outcome("".join(piece.stdout for piece in job.logs(timeout=self._client.timeout)), key, staged)
        if found is None:
            tail = " ".join((record.output or "").split()[-40:])
            reasons = (record.answer or {}).get("reasons", {})
            refused = "; ".join(f"{name}: {reason.get('detail')}" for name, reason in sorted(reasons.items()))
            why = record.detail or refused or tail or record.code or "no output"
            where = f" on {record.cluster}" if record.cluster else ""
            raise FunctionFailed(f"{record.state}{where}: {why}")
        return found

    @staticmethod
    def _staged(job: Job) -> bytes:
        """The file that a staged call left, empty where its result is in its output."""
        with TemporaryDirectory(prefix="rainbow-") as folder:
            file = Path(folder) / "rainbow-result"
            with contextlib.suppress(NotFound):
                job.fetch(folder)
            return file.read_bytes() if file.exists() else b""


def _begin(future: futures.Future[Any]) -> bool:
    """Mark a future as running; False if it was cancelled, even at this very moment."""
    try:
        return future.running() or (not future.cancelled() and future.set_running_or_notify_cancel())
    except RuntimeError:
        return False


def _fail(future: futures.Future[Any], exc: BaseException) -> None:
    if _begin(future):
        future.set_exception(exc)
