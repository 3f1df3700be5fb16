"""The executor `local`: see the package."""

from __future__ import annotations

from collections.abc import Sequence

from rainbow_agents.executors.base import (
    Context,
    Found,
    Held,
    Listener,
    Outlook,
    Piece,
    Recovery,
    Refused,
    Submitted,
    Trouble,
    Undecided,
    Up,
    Usage,
    Work,
    cut,
)
from rainbow_agents.executors.environment import PATH
from rainbow_agents.executors.local.description import Describer, Unfit, time_limit
from rainbow_agents.executors.local.files import Files, handle_of
from rainbow_agents.executors.local.folder import Folder
from rainbow_agents.executors.local.queue import JobQueue
from rainbow_agents.executors.options import read_options


class LocalExecutor:
    """The methods of the contract. Raises InvalidSettings for wrong options, or a folder that cannot be used."""

    def __init__(self, context: Context, listener: Listener) -> None:
        options = read_options(
            "local", context.options, output_bytes=102400, kill_after=5.0, max_tasks=256, path=PATH, keep_s=3600.0
        )
        self._files = Files(context.state_dir, options.pop("keep_s"))
        self._describer = Describer(**options)
        self._listener = listener
        self._queue = JobQueue(self._files, context.capacity, listener)
        self.incarnation = self._files.incarnation
        listener(Up(self.incarnation))

    def submit(self, works: Sequence[Work]) -> None:
        for work in works:
            handle = handle_of(work.mark)
            if self._queue.down is not None:
                self._listener(Undecided(work.mark, self._queue.down))
                continue
            try:
                self._queue.check_fits(work.demand)
                description = self._describer.describe(work, self._files.brought(handle))
                folder = self._files.make(work, handle, description)
            except Unfit as exc:
                self._listener(Refused(work.mark, "no-fit", str(exc)))
            except OSError as exc:  # disk full, no inodes: no fault of the job
                self._listener(Undecided(work.mark, self._queue.disk_failed(exc)))
            else:
                with self._queue.lock:
                    self._queue.add(folder, work.demand, time_limit(description["units"]))
                self._listener(Submitted(work.mark, handle, self.incarnation))

    def release(self, jobs: Sequence[Held]) -> None:
        with self._queue.lock:
            for held in jobs:
                job = self._queue.find(held)
                if job is None or job.queued or job.folder.started() is not None:
                    continue
                try:
                    self._queue.enqueue(job, held.priority)
                except FileNotFoundError:  # another agent ended it, and moved the folder
                    self._queue.forget(job)
                except OSError as exc:  # it stays held, and is released again by who compares after `Up`
                    self._queue.disk_failed(exc)
        self._queue.wake()

    def cancel(self, jobs: Sequence[Held], reason: str) -> None:
        for held in jobs:
            with self._queue.lock:
                job = self._queue.find(held)
                if job is None:
                    continue
                ended = None
                try:
                    first = job.folder.cancel_first()
                except FileNotFoundError:
                    self._queue.forget(job)
                    continue
                except OSError as exc:
                    self._queue.disk_failed(exc)
                    continue
                if first:
                    ended = job.folder.end("cancelled", "cancel", reason)
                    self._queue.finish(job)
                else:
                    job.folder.terminate()
                    self._queue.watch(job)
            if ended is not None:
                self._listener(ended)
        self._queue.wake()

    def usage(self) -> Usage:
        with self._queue.lock:
            return self._queue.slots.usage()

    def outlook(self) -> Outlook:
        with self._queue.lock:
            return self._queue.slots.outlook()

    def output(self, job: Held, stdout: int, stderr: int, limit: int) -> Piece | None:
        folder = self._files.find(job.mark, job.handle)
        if folder is None:
            return None
        (out_lost, out), (err_lost, err) = folder.streams()
        out_piece, out_from = cut(out, stdout, limit, out_lost)
        err_piece, err_from = cut(err, stderr, limit, err_lost)
        return Piece(out_piece, err_piece, out_from, err_from, out_lost + len(out), err_lost + len(err))

    def recover(self, expected: Sequence[Held]) -> Recovery:
        wanted = {held.handle: held for held in expected}
        found: list[Found] = []
        trouble: list[Trouble] = []
        for folder in list(self._files.active()):
            try:
                job = self._look(folder)
            except FileNotFoundError:  # another agent moved it meanwhile: looked for below
                continue
            except OSError as exc:
                wanted.pop(folder.handle, None)
                trouble.append(Trouble(folder.mark, f"its folder cannot be used: {exc.strerror or exc}"))
                continue
            if job.ended is None or folder.handle in wanted:
                wanted.pop(folder.handle, None)
                found.append(job)
            if job.ended is not None:
                self._files.archive(folder)
        for held in wanted.values():
            over = self._files.find(held.mark, held.handle)
            if over is not None:
                found.append(Found(held.mark, held.handle, "ended", None, over.ended()))
        self._files.prune()
        self._queue.wake()
        return Recovery(self.incarnation, tuple(found), tuple(trouble))

    def close(self) -> None:
        if self._queue.close():
            self._files.close()

    def _look(self, folder: Folder) -> Found:
        """What there is of a job. Raises FileNotFoundError when it is gone, OSError."""
        with self._queue.lock:
            phase = folder.phase()
            status = folder.read("status.json")
            if phase == "running":
                self._queue.watch(self._queue.adopt(folder))
            ended = folder.ended() if phase == "ended" else None
            if not folder.path.is_dir():
                raise FileNotFoundError(folder.path)
        return Found(folder.mark, folder.handle, phase, (status or {}).get("started_at"), ended)


__all__ = ["LocalExecutor"]
