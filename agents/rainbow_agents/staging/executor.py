"""Files of jobs, around any executor: what a job needs is there before it starts, what it leaves before it has ended.

A job with files (`rainbow.models.staging`) gets a folder of its own: `work` in it is the job's working directory,
`plan.json` what is to be copied. It is submitted held as any job, and released only when its files are there. Its end
is reported once they are at their place. All of it is found again in the folder by an agent that was started again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from rainbow import trees
from rainbow.errors import InvalidInput, NotFound
from rainbow.models.staging import StagingSettings, staging_of
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
    Started,
    SubmissionKey,
    Undecided,
    Usage,
    Work,
)
from rainbow_agents.staging.plan import Plan, content_of, in_folder, name_of, plan_of, read_plan, reason_of, take, write
from rainbow_agents.state import write_private

log = logging.getLogger(__name__)

#: Jobs whose files are copied at a time.
_THREADS = 4
#: Seconds after which a folder is not of a job that is just being submitted.
_SUBMITTED_WITHIN = 900.0
#: Errors of the names of files, which differ by file system.
_NAMES = frozenset({errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL, errno.EISDIR, errno.ENOTDIR, errno.EEXIST})


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
        wanted = staging_of(work.units[0].document)
        if wanted is None:
            return work
        try:
            plan = plan_of(work, wanted)
            files = [(file, content_of(file)) for file in plan.files]
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
                    write(cwd / file.path, content, file.mode)
            write_private(folder / "plan.json", plan.model_dump_json())
        except OSError as exc:
            _remove(folder)
            if exc.errno in _NAMES:  # it would fail again and again, and no other job would be taken meanwhile
                self._listener(Refused(work.mark, "no-fit", f"this cluster cannot have such a file: {reason_of(exc)}"))
            else:
                self._listener(Undecided(work.mark, reason_of(exc)))
            return None
        units = tuple(dataclasses.replace(u, document=in_folder(u.document, str(cwd))) for u in work.units)
        return dataclasses.replace(work, units=units)

    def _stage_in(self, held: Held, folder: Path) -> None:
        fetched = folder / "in"
        try:
            plan = read_plan(folder, held.mark)
            large = [file for file in plan.files if file.data is None]
            if large:
                _remove(fetched)  # of an agent that died meanwhile
                self._place(plan).get(f"{plan.job}/in", fetched)
            for file in large:
                take(fetched / file.path, folder / "work" / file.path, file)
            _remove(fetched)
            (folder / "ready").touch()
        except Exception as exc:
            _remove(fetched)
            if self._folder(held.mark) is None:
                return  # it was cancelled meanwhile
            why = f"stage-in: {reason_of(exc)}"
            write_private(folder / "failed", why)
            self._inner.cancel([held], why)
        else:
            self._inner.release([held])

    # -- after it ----------------------------------------------------------------------------------------------

    def _receive(self, event: ExecutorEvent) -> None:
        if isinstance(event, Refused | Undecided):
            folder = self._folder(event.mark)
            if folder is not None:
                _remove(folder)
        elif isinstance(event, Started):
            folder = self._folder(event.mark)
            if folder is not None:
                _note_start(folder)
        elif isinstance(event, Ended):
            folder = self._folder(event.mark)
            if folder is not None:
                self._begin("out", event.mark, partial(self._stage_out, event, folder))
                return
        self._listener(event)

    def _recovered(self, job: Found) -> Found:
        """A job that has ended and whose files are not at their place yet still runs."""
        folder = self._folder(job.mark)
        if folder is not None and job.started_at is not None:
            _note_start(folder)
        if job.ended is None:
            return job
        if folder is None:  # its files are dealt with: only the result of that may not be known yet
            why = _failure(self._root / name_of(job.mark)) if self._root is not None else None
            return dataclasses.replace(job, ended=_with(job.ended, why))
        self._begin("out", job.mark, partial(self._stage_out, job.ended, folder))
        return dataclasses.replace(job, ended=None, phase="queued" if job.started_at is None else "running")

    def _stage_out(self, ended: Ended, folder: Path) -> None:
        """Copy what the job left, then report its end.

        One that never started has left nothing, and what it needs stays at the place: another try or
        attempt may still start, here or elsewhere.
        """
        why = _failure(folder)
        unstarted = ended.state == "cancelled" and not os.path.exists(folder / "started")
        if why is None and not unstarted:
            why = self._left(ended, folder)
            if why is not None:
                write_private(folder / "failed", why)
        if why is not None or not unstarted:
            self._clear(ended.mark, folder)
        self._listener(_with(ended, why))
        (folder / "plan.json").unlink()
        if why is None and (unstarted or ended.state == "completed" or not self._keep):
            _remove(folder)

    def _clear(self, mark: SubmissionKey, folder: Path) -> None:
        """Remove what the job needed from the place."""
        try:
            plan = read_plan(folder, mark)
            if plan.place is not None and not plan.element:  # other elements of an array may still need them
                self._place(plan).remove(f"{plan.job}/in" if plan.out else plan.job)
        except Exception as exc:
            log.info("%s", reason_of(exc), extra={"action": "staging", "id": mark.id})

    def _left(self, ended: Ended, folder: Path) -> str | None:
        """Copy what the job left. Returns why not all is there.

        Whatever is wrong with its files, which are the job's to make: it ends.
        """
        try:
            plan = read_plan(folder, ended.mark)
        except (InvalidInput, OSError) as exc:
            return f"stage-out: {reason_of(exc)}"
        found = [self._put(plan, folder / "work", path, ended.state == "completed") for path in plan.out]
        return next((f"stage-out: {problem}" for problem in found if problem is not None), None)

    def _put(self, plan: Plan, cwd: Path, path: str, completed: bool) -> str | None:
        source = cwd / path
        try:
            if not source.exists():
                return f"the job left no {path}" if completed else None
            if not source.resolve().is_relative_to(cwd.resolve()):
                return f"{path} leads out of the working directory"
            if not source.is_dir() and not source.is_file():
                return f"{path} is neither a file nor a folder"
            self._place(plan).put(source.resolve(), f"{plan.job}/out/{plan.element}{path}")
        except Exception as exc:
            return reason_of(exc)
        return None

    # -- inside ------------------------------------------------------------------------------------------------

    def _folder(self, mark: SubmissionKey) -> Path | None:
        """The folder of a job whose files are not dealt with yet."""
        folder = self._root / name_of(mark) if self._root is not None else None
        return folder if folder is not None and os.path.exists(folder / "plan.json") else None

    def _place(self, plan: Plan) -> Place:
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
        before = time.time() - max(self._keep, _SUBMITTED_WITHIN)
        for folder in self._root.glob("*") if self._root is not None else ():
            with contextlib.suppress(OSError):
                if folder.name not in known and folder.lstat().st_mtime < before:
                    _remove(folder)


def _note_start(folder: Path) -> None:
    with contextlib.suppress(OSError):
        (folder / "started").touch()


def _failure(folder: Path) -> str | None:
    """Why files were not copied, as it was written down; None where nothing was."""
    try:
        return (folder / "failed").read_text(errors="replace")
    except OSError:
        return None


def _with(ended: Ended, why: str | None) -> Ended:
    """The end of a job whose files were not all copied: it failed, unless it had failed by itself."""
    if why is None or (ended.state != "completed" and not why.startswith("stage-in")):
        return ended
    return dataclasses.replace(ended, state="failed", returncode=None, code="staging", detail=why)


def _remove(folder: Path) -> None:
    try:
        trees.remove(folder)
    except OSError as exc:
        log.warning("%s", reason_of(exc), extra={"action": "staging"})
