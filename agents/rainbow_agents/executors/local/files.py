"""The folders of the local executor: jobs that are held or run in `active`, ended ones in `ended`.

Several agents may share them. A job's folder is made in `new` and moved, so that it is whole or not there.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rainbow import trees
from rainbow_agents.executors.base import SubmissionKey, Work
from rainbow_agents.executors.local import plain
from rainbow_agents.executors.local.folder import Folder, locked
from rainbow_agents.state import private_folder, write_once, write_private

#: Ended jobs whose folders are kept at most.
_KEEP_ENDED = 5000
#: Seconds after which an unfinished folder belongs to an agent that died.
_UNFINISHED = 3600.0


class Files:
    """`name` is this executor's: it holds a lock of that name for as long as it lives.

    Raises:
        InvalidSettings: The folder cannot be used.
    """

    def __init__(self, root: Path, keep: float) -> None:
        self.name = secrets.token_hex(8)
        self._root = root
        self._keep = keep
        self._new, self._active, self._over = root / "new", root / "active", root / "ended"
        for folder in (root, self._new, self._active, self._over):
            with private_folder(folder):
                pass
        with private_folder(root):
            self._own = os.open(root / f"{self.name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._own, fcntl.LOCK_EX)
            self._sweep_locks()
            #: One for the life of the folder: jobs are found in it again, whichever agent looks.
            self.incarnation = write_once(root / "incarnation", secrets.token_hex(8))

    def close(self) -> None:
        os.close(self._own)

    def make(self, work: Work, handle: str, description: dict[str, Any]) -> Folder:
        """Make the folder of a job, whole or not at all. Raises OSError."""
        temporary = self._new / handle
        temporary.mkdir(mode=0o700)
        try:
            plain.write_files(temporary / "files", work)
            for unit in description["units"]:
                if unit["cwd"] is None:
                    (temporary / "work").mkdir(mode=0o700, exist_ok=True)
                    unit["cwd"] = str(self._active / handle / "work")
            write_private(temporary / "job.json", json.dumps(description))
            temporary.rename(self._active / handle)
        except OSError:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        return Folder(self._active / handle, work.mark)

    def brought(self, handle: str) -> Path:
        """The folder of the files that a job brings."""
        return self._active / handle / "files"

    def active(self) -> Iterator[Folder]:
        for path in self._active.iterdir():
            parts = path.name.rsplit(".", 2)
            if len(parts) == 3 and parts[0] and not path.name.startswith(".") and parts[1].isdigit():
                yield Folder(path, SubmissionKey(parts[0], int(parts[1]), parts[2]))

    def find_active(self, mark: SubmissionKey, handle: str) -> Folder | None:
        return self._find(self._active, mark, handle)

    def find(self, mark: SubmissionKey, handle: str) -> Folder | None:
        """The folder of a job, also of one that ended."""
        return self._find(self._active, mark, handle) or self._find(self._over, mark, handle)

    def archive(self, folder: Folder) -> None:
        """Move the folder of an ended job. Another agent may have done it; `recover` does what could not be done."""
        with contextlib.suppress(OSError):
            folder.path.rename(self._over / folder.handle)
            folder.path = self._over / folder.handle

    def check_writable(self) -> None:
        """Raises OSError while nothing can be written."""
        probe = self._new / f".probe.{self.name}"
        try:
            write_private(probe, "x" * 8192)
        finally:
            probe.unlink(missing_ok=True)

    def prune(self) -> None:
        """Remove folders of jobs that ended long ago, and what an agent that died left unfinished."""
        now = time.time()
        aged = sorted((_changed(path), path) for path in self._over.iterdir())
        for number, (changed, path) in enumerate(reversed(aged)):
            if changed < now - self._keep or number >= _KEEP_ENDED:
                with contextlib.suppress(OSError):
                    trees.remove(path)
        for path in self._new.iterdir():
            if _changed(path) < now - _UNFINISHED:
                with contextlib.suppress(OSError):
                    trees.remove(path)

    @staticmethod
    def _find(root: Path, mark: SubmissionKey, handle: str) -> Folder | None:
        if handle != handle_of(mark) or "/" in handle or not (root / handle).is_dir():
            return None
        return Folder(root / handle, mark)

    def _sweep_locks(self) -> None:
        """Locks of agents that are gone."""
        for path in self._root.glob("*.lock"):
            if path.stem != self.name and not locked(path):
                path.unlink(missing_ok=True)


def handle_of(mark: SubmissionKey) -> str:
    return f"{mark.id}.{mark.attempt}.{mark.claim}"


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # another agent removed it
        return 0.0


__all__ = ["Files", "handle_of"]
