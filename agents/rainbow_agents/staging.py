"""Files of jobs, around any executor: what a job needs is there before it starts, what it leaves before it has ended.

A job with files (`rainbow.models.staging`) gets a folder of its own: `work` in it is the job's working directory,
`plan.json` what is to be copied. It is submitted held as any job, and released only when its files are there. Its end
is reported once they are at their place. All of it is found again in the folder by an agent that was started again.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import logging
import os
import queue
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rainbow.errors import InvalidInput, NotFound, RainbowError
from rainbow.models.staging import StagedFile, Staging, StagingSettings
from rainbow.models.wire import parse
from rainbow.staging import Place, open_place
from rainbow_agents.executors.base import (
    Ended,
    Executor,
    ExecutorEvent,
    Found,
    Held,
    Listener,
    Recovery,
    Refused,
    SubmissionKey,
    Undecided,
    Usage,
    Work,
)
from rainbow_agents.state import write_private

log = logging.getLogger(__name__)

#: Jobs whose files are copied at a time.
_THREADS = 4


class StagingExecutor:
    """The executor that `make` gives for a listener, with the files of its jobs. `folder` None: none are taken.

    Raises:
        InvalidSettings: A place of the settings has wrong options.
    """

    def __init__(
        self,
        make: Callable[[Listener], Executor],
        listener: Listener,
        settings: StagingSettings,
        folder: Path | None,
    ) -> None:
        self._listener = listener
        self._root = folder
        self._keep = settings.keep
        self._places = {name: open_place(name, chosen) for name, chosen in settings.places.items()}
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._threads = 0
        self._closed = False
        self._lock = threading.Lock()
        self._busy: set[tuple[str, SubmissionKey]] = set()
        self._inner = make(self._receive)
        for name in ("outlook", "output"):  # what an executor may be asked besides
            if hasattr(self._inner, name):
                setattr(self, name, getattr(self._inner, name))

    # -- the contract ------------------------------------------------------------------------------------------

    def submit(self, works: Sequence[Work]) -> None:
        self._inner.submit([ready for work in works if (ready := self._prepared(work)) is not None])

    def release(self, jobs: Sequence[Held]) -> None:
        now = []
        for held in jobs:
            folder = self._folder(held.mark)
            if folder is None or os.path.exists(folder / "ready"):
                now.append(held)
            else:
                self._begin("in", held.mark, partial(self._stage_in, held, folder))
        if now:
            self._inner.release(now)

    def cancel(self, jobs: Sequence[Held], reason: str) -> None:
        self._inner.cancel(jobs, reason)

    def usage(self) -> Usage:
        return self._inner.usage()

    def recover(self, expected: Sequence[Held]) -> Recovery:
        found = self._inner.recover(expected)
        known = {name_of(job.mark) for job in found.jobs} | {name_of(job.mark) for job in found.trouble}
        jobs = tuple(self._recovered(job) for job in found.jobs)
        self._prune(known)
        return dataclasses.replace(found, jobs=jobs)

    def close(self) -> None:
        self._closed = True
        for _ in range(self._threads):
            self._tasks.put(lambda: None)  # for those who wait
        self._inner.close()

    # -- before a job ------------------------------------------------------------------------------------------

    def _prepared(self, work: Work) -> Work | None:
        """The job with its working directory; None where it is refused."""
        user = work.units[0].document["attributes"].get("user") or {}
        wanted = (user.get("rainbow") or {}).get("staging") if isinstance(user, dict) else None
        if wanted is None:
            return work
        try:
            plan = _plan_of(work, wanted)
            files = [(file, _content(file)) for file in plan.files]
        except (InvalidInput, ValueError) as exc:
            self._listener(Refused(work.mark, "bad-spec", f"attributes.user.rainbow.staging: {exc}"))
            return None
        if self._root is None or (plan.place is not None and plan.place not in self._places):
            what = "files of jobs (staging.folder)" if self._root is None else f"staging place {plan.place!r}"
            self._listener(Refused(work.mark, "no-fit", f"this cluster has no {what}"))
            return None
        folder = self._root / name_of(work.mark)
        cwd = folder / "work"
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700)
            cwd.mkdir(mode=0o700)
            for file, content in files:
                if content is not None:
                    _write(cwd / file.path, content, file.mode)
            write_private(folder / "plan.json", plan.model_dump_json())
        except OSError as exc:
            shutil.rmtree(folder, ignore_errors=True)
            self._listener(Undecided(work.mark, f"{exc.filename}: {exc.strerror}"))
            return None
        units = tuple(dataclasses.replace(u, document=_in_folder(u.document, str(cwd))) for u in work.units)
        return dataclasses.replace(work, units=units)

    def _stage_in(self, held: Held, folder: Path) -> None:
        plan = _plan(folder)
        large = [file for file in plan.files if file.data is None]
        try:
            if large:
                self._place(plan).get(f"{plan.job}/in", folder / "in")
            for file in large:
                _take(folder / "in" / file.path, folder / "work" / file.path, file)
        except (RainbowError, OSError) as exc:
            why = f"stage-in: {_why(exc)}"
            write_private(folder / "failed", why)
            self._inner.cancel([held], why)
        else:
            (folder / "ready").touch()
            self._inner.release([held])

    # -- after it ----------------------------------------------------------------------------------------------

    def _receive(self, event: ExecutorEvent) -> None:
        if isinstance(event, Refused | Undecided):
            folder = self._folder(event.mark)
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
        elif isinstance(event, Ended):
            folder = self._folder(event.mark)
            if folder is not None:
                self._begin("out", event.mark, partial(self._stage_out, event, folder))
                return
        self._listener(event)

    def _recovered(self, job: Found) -> Found:
        """A job that has ended and whose files are not at their place yet still runs."""
        folder = self._folder(job.mark)
        if job.ended is None or folder is None:
            return job
        self._begin("out", job.mark, partial(self._stage_out, job.ended, folder))
        return dataclasses.replace(job, ended=None, phase="queued" if job.started_at is None else "running")

    def _stage_out(self, ended: Ended, folder: Path) -> None:
        plan = _plan(folder)
        why: str | None
        try:
            why = (folder / "failed").read_text()
        except FileNotFoundError:
            why = self._left(plan, folder / "work", ended.state == "completed")
        if why and (ended.state == "completed" or why.startswith("stage-in")):
            ended = dataclasses.replace(ended, state="failed", returncode=None, code="staging", detail=why)
        try:
            if plan.place is not None and not plan.element:  # other elements of an array may still need them
                self._place(plan).remove(f"{plan.job}/in" if plan.out else plan.job)
        except RainbowError as exc:
            log.info("%s", exc, extra={"action": "staging", "id": plan.job})
        self._listener(ended)
        (folder / "plan.json").unlink()
        if ended.state == "completed":
            shutil.rmtree(folder, ignore_errors=True)

    def _left(self, plan: _Plan, cwd: Path, completed: bool) -> str | None:
        """Copy what the job left. Returns why it is not all there."""
        problems = []
        for path in plan.out:
            source = cwd / path
            if not source.exists():
                problems += [f"the job left no {path}"] if completed else []
            elif not source.resolve().is_relative_to(cwd.resolve()):
                problems.append(f"{path} leads out of the working directory")
            else:
                try:
                    self._place(plan).put(source.resolve(), f"{plan.job}/out/{plan.element}{path}")
                except (RainbowError, OSError) as exc:
                    problems.append(_why(exc))
        return f"stage-out: {problems[0]}" if problems else None

    # -- inside ------------------------------------------------------------------------------------------------

    def _folder(self, mark: SubmissionKey) -> Path | None:
        """The folder of a job whose files are not dealt with yet."""
        folder = self._root / name_of(mark) if self._root is not None else None
        return folder if folder is not None and os.path.exists(folder / "plan.json") else None

    def _place(self, plan: _Plan) -> Place:
        """Raises NotFound for one that the settings had when the job came."""
        if plan.place not in self._places:
            raise NotFound(f"this cluster has no staging place {plan.place!r}")
        return self._places[plan.place]

    def _begin(self, what: str, mark: SubmissionKey, task: Callable[[], None]) -> None:
        """Run `task` in a thread, one of its kind for each job. What is left at a close is for the next agent."""
        with self._lock:
            if (what, mark) in self._busy:
                return
            self._busy.add((what, mark))
            if self._threads < _THREADS:
                self._threads += 1
                threading.Thread(target=self._work, name="staging", daemon=True).start()

        def run() -> None:
            try:
                task()
            except Exception:  # looked at again with the next comparison
                log.exception("files of a job were not copied", extra={"action": "staging", "id": mark.id})
            finally:
                with self._lock:
                    self._busy.discard((what, mark))

        self._tasks.put(run)

    def _work(self) -> None:
        while True:
            task = self._tasks.get()
            if self._closed:
                return
            task()

    def _prune(self, known: set[str]) -> None:
        """Remove folders of jobs that ended, or that are not known any more, after their time."""
        for folder in self._root.glob("*") if self._root is not None else ():
            with contextlib.suppress(OSError):
                if folder.name not in known and folder.stat().st_mtime < time.time() - self._keep:
                    shutil.rmtree(folder, ignore_errors=True)


def name_of(mark: SubmissionKey) -> str:
    """The name of a job's folder."""
    return f"{mark.id}.{mark.attempt}.{mark.claim}"


class _Plan(Staging):
    """What is to be copied for a job. Elements of an array have their own folder (`element`) in what is left."""

    job: str
    element: str = ""


def _plan_of(work: Work, wanted: object) -> _Plan:
    found = parse(Staging, wanted).model_dump()
    if work.element is None:
        return _Plan(job=work.mark.id, **found)
    return _Plan(job=work.element.array, element=f"{work.element.index}/", **found)


def _plan(folder: Path) -> _Plan:
    return _Plan.model_validate_json((folder / "plan.json").read_bytes())


def _in_folder(document: dict[str, Any], cwd: str) -> dict[str, Any]:
    attributes = document["attributes"]
    return {**document, "attributes": {**attributes, "system": {**attributes["system"], "cwd": cwd}}}


def _content(file: StagedFile) -> bytes | None:
    if file.data is None:
        if file.sha256 is None:
            raise ValueError(f"the file {file.path} has neither data nor a checksum")
        return None
    data = str(file.data.get("data", ""))
    return base64.b64decode(data, validate=True) if file.data.get("encoding") == "base64" else data.encode()


def _write(path: Path, content: bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)


def _take(source: Path, target: Path, file: StagedFile) -> None:
    """Move a file that was fetched to its path, if it is the one that the job was submitted with."""
    if source.is_symlink() or not source.is_file():
        raise NotFound(f"{file.path} is not at the place")
    with source.open("rb") as opened:
        if hashlib.file_digest(opened, "sha256").hexdigest() != file.sha256:
            raise InvalidInput(f"{file.path} does not match its checksum: it changed after it was submitted")
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(source, target)
    target.chmod(file.mode)


def _why(exc: Exception) -> str:
    return f"{exc.filename}: {exc.strerror}" if isinstance(exc, OSError) and exc.filename else str(exc)


__all__ = ["StagingExecutor"]
