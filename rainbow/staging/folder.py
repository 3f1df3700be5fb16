"""`folder`: a folder that submitters and clusters share."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rainbow import paths, trees
from rainbow.errors import InvalidInput, NotFound, Unavailable


class Folder:
    """A folder `path` that submitters and clusters both see (NFS, Lustre).

    What is copied there is for its owner alone; with the setgid bit on the folder (``chmod g+s``) for its group too.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        if set(options) != {"path"} or not isinstance(options["path"], str):
            raise InvalidInput("staging folder takes path, a folder")
        self._path = paths.expand(options["path"])
        if not self._path.is_absolute():
            raise InvalidInput(f"path {str(self._path)!r} must be absolute: it is used by several programs")

    def put(self, source: Path, key: str) -> None:
        target = self._path / key
        with self._told():
            self._path.mkdir(parents=True, exist_ok=True)
            mode = 0o2770 if self._path.stat().st_mode & stat.S_ISGID else 0o700
            trees.make_folder(target.parent, mode)
            if not self._is_here(target.parent, key.rpartition("/")[0]):
                raise Unavailable(f"staging folder {self._path}: {key} is behind a link")
            trees.copy(source, target, mode)

    def get(self, key: str, target: Path) -> None:
        source = self._path / key
        with self._told():
            if not source.is_dir() or not self._is_here(source, key):
                raise NotFound(f"no {key} in {self._path}")
            trees.copy(source, target)

    def remove(self, key: str) -> None:
        with self._told():
            if self._is_here((self._path / key).parent, key.rpartition("/")[0]):
                trees.remove(self._path / key)

    def _is_here(self, path: Path, key: str) -> bool:
        """Whether no link leads elsewhere."""
        return path.resolve() == self._path.resolve() / key

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            where = f"{exc.filename}: " if exc.filename else ""
            raise Unavailable(f"staging folder {self._path}: {where}{exc.strerror}") from None
