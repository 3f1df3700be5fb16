"""`folder`: compatibility documents as files, named for their image as compspec's cache names them.

``ghcr.io/org/app:1.0`` is ``ghcr.io-org-app-1.0.json`` in the folder `path`. A name that ends in ``.json`` is a file
itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rainbow import paths
from rainbow.artifacts.base import ImageFacts
from rainbow.artifacts.compspec import MAX_BYTES, read_document
from rainbow.artifacts.reference import parse
from rainbow.errors import InvalidInput


class Folder:
    """Files of compspec documents in the folder `path`, named for their image (``ghcr.io-org-app-1.0.json``)."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        unknown = sorted(set(options) - {"path"})
        if unknown or not isinstance(options.get("path"), str):
            raise InvalidInput("artifacts folder takes path, a folder")
        self._path = paths.expand(options["path"])

    def find(self, image: str) -> ImageFacts | None:
        reference = parse(image)
        file = self._path / f"{f'{reference.name}:{reference.wanted}'.replace('/', '-').replace(':', '-')}.json"
        return read_file(file) if file.is_file() else None


def read_file(file: Path) -> ImageFacts:
    """What a file says. Raises InvalidInput."""
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except OSError as exc:
        raise InvalidInput(f"{file} cannot be read: {exc.strerror}") from None
    return ImageFacts(str(file), tuple(read_document(data, str(file))))
