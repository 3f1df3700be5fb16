"""The contract of a place for files: entry points `rainbow.staging`."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Place(Protocol):
    """A plugin: a class made with a mapping of options (InvalidInput for wrong ones), and these methods.

    A key is a relative path without ``..``. Links are never followed out of what is copied: they are left out.
    All methods raise Unavailable where the place cannot be reached or written.
    """

    def put(self, source: Path, key: str) -> None:
        """Copy a file, or a folder with all that is in it, to `key`."""

    def get(self, key: str, target: Path) -> None:
        """Copy what is in the folder `key` into the folder `target`. Raises NotFound if there is no such folder."""

    def remove(self, key: str) -> None:
        """Remove `key` with all that is in it, if it is there."""
