"""`layout`: OCI image layouts in a folder, as `skopeo copy` and `oras copy --to-oci-layout` make them.

Option `path` is one layout, or a folder of them: ``PATH/ghcr.io/org/app``, ``PATH/org/app`` or ``PATH/app`` is then
that of the image ``ghcr.io/org/app``. Option `platform` chooses among several platforms (``linux/amd64``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rainbow import paths
from rainbow.artifacts.base import ImageFacts
from rainbow.artifacts.oci import MAX_MANIFEST, Descriptor, Image
from rainbow.artifacts.reference import Reference, parse
from rainbow.errors import InvalidInput

_REF_NAME = "org.opencontainers.image.ref.name"
_FULL_NAME = "io.containerd.image.name"
_DIGEST = re.compile(r"(sha256):([0-9a-f]{64})|(sha512):([0-9a-f]{128})")
#: Referrers are found by looking at what a layout has: at most at so many manifests.
_MAX_LOOKED_AT = 1000


class Layout:
    """OCI image layouts in the folder `path`."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        unknown = sorted(set(options) - {"path", "platform"})
        if unknown or not isinstance(options.get("path"), str):
            raise InvalidInput("artifacts layout takes path, a folder, and platform")
        self._path = paths.expand(options["path"])
        self._platform = options.get("platform")

    def find(self, image: str) -> ImageFacts | None:
        reference = parse(image)
        for folder in self._folders(reference):
            found = Image(_Folder(folder, reference), str(folder), self._platform).facts(reference.wanted)
            if found is not None:
                return found
        return None

    def _folders(self, reference: Reference) -> Iterator[Path]:
        parts = reference.path.split("/")
        candidates = [self._path, *(self._path.joinpath(*row) for row in _tails(reference.host, parts))]
        yield from (folder for folder in candidates if (folder / "oci-layout").is_file())


def _tails(host: str | None, parts: list[str]) -> Iterator[list[str]]:
    if host is not None:
        yield [host, *parts]
    for start in range(len(parts)):
        yield parts[start:]


class _Folder:
    """One layout, as `oci.Blobs`."""

    def __init__(self, folder: Path, reference: Reference) -> None:
        self._folder, self._reference = folder, reference
        self._rows: list[Descriptor] | None = None

    def tagged(self, tag: str) -> Descriptor | None:
        rows = self._index()
        if ":" in tag:
            return next((row for row in rows if row.get("digest") == tag), None)
        full = f"{self._reference.name}:{tag}"
        for row in rows:
            notes = row.get("annotations")
            if isinstance(notes, dict) and (notes.get(_REF_NAME) in (tag, full) or notes.get(_FULL_NAME) == full):
                return row
        # A layout of this image's own may have it without a name.
        unnamed = [row for row in rows if not isinstance(row.get("annotations"), dict) and "artifactType" not in row]
        own = self._folder.name == self._reference.path.rpartition("/")[2]
        return unnamed[0] if own and len(rows) == 1 and unnamed and tag == self._reference.wanted else None

    def referrers(self, digest: str) -> Sequence[Descriptor]:
        found = []
        for row in self._index()[:_MAX_LOOKED_AT]:
            if row.get("digest") != digest and int(row.get("size") or 0) <= MAX_MANIFEST:
                try:
                    document = json.loads(self.read(row, MAX_MANIFEST))
                    subject = document.get("subject")
                except (ValueError, AttributeError, RecursionError, InvalidInput):
                    continue  # none of ours
                if isinstance(subject, dict) and subject.get("digest") == digest:
                    found.append(row)
        return found

    def read(self, descriptor: Descriptor, most: int) -> bytes:
        found = _DIGEST.fullmatch(str(descriptor.get("digest")))
        if found is None:
            raise InvalidInput(f"{self._folder}: {str(descriptor.get('digest'))[:80]!r} is no digest")
        return _bytes(self._folder / "blobs" / (found[1] or found[3]) / (found[2] or found[4]), most)

    def _index(self) -> list[Descriptor]:
        if self._rows is None:
            try:
                document = json.loads(_bytes(self._folder / "index.json", MAX_MANIFEST))
            except (ValueError, RecursionError):
                raise InvalidInput(f"{self._folder / 'index.json'} is not JSON") from None
            rows = document.get("manifests") if isinstance(document, dict) else None
            if not isinstance(rows, list):
                raise InvalidInput(f"{self._folder / 'index.json'} has no list of manifests")
            self._rows = [row for row in rows if isinstance(row, dict)]
        return self._rows


def _bytes(file: Path, most: int) -> bytes:
    try:
        with file.open("rb") as opened:
            data = opened.read(most + 1)
    except OSError as exc:
        raise InvalidInput(f"{file} cannot be read: {exc.strerror}") from None
    if len(data) > most:
        raise InvalidInput(f"{file} has more than {most} bytes")
    return data
