"""`folder`: a folder that submitters and clusters share."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rainbow import paths
from rainbow.errors import InvalidInput, NotFound, Unavailable


class Folder:
    """A folder `path` that submitters and clusters both see (NFS, Lustre)."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        if set(options) != {"path"} or not isinstance(options["path"], str):
            raise InvalidInput("staging folder takes path, a folder")
        self._path = paths.expand(options["path"])
        if not self._path.is_absolute():
            raise InvalidInput(f"path {str(self._path)!r} must be absolute: it is used by several programs")

    def put(self, source: Path, key: str) -> None:
        target = self._path / key
        with self._told():
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=_links, dirs_exist_ok=True)
            else:
                shutil.copy(source, target)

    def get(self, key: str, target: Path) -> None:
        source = self._path / key
        with self._told():
            if not source.is_dir() or source.resolve() != self._path.resolve() / key:
                raise NotFound(f"no {key} in {self._path}")
            shutil.copytree(source, target, ignore=_links, dirs_exist_ok=True)

    def remove(self, key: str) -> None:
        with self._told(), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._path / key)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except shutil.Error as exc:
            raise Unavailable(f"staging folder {self._path}: {exc.args[0][0][2]}") from None
        except OSError as exc:
            raise Unavailable(f"staging folder {self._path}: {exc.filename}: {exc.strerror}") from None


def _links(folder: str, names: list[str]) -> list[str]:
    """Of these names those that are neither files nor folders."""
    found = [(name, os.path.join(folder, name)) for name in names]
    return [name for name, path in found if os.path.islink(path) or not (os.path.isdir(path) or os.path.isfile(path))]
