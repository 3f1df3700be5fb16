"""What is said about an image in OCI manifests: its platform, its annotations, and artifacts that refer to it.

The same for an image layout on disk and for a registry: both are `Blobs`. Whatever is fetched by digest is checked
against it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from rainbow.artifacts import compspec
from rainbow.artifacts.base import ImageFacts, Statement
from rainbow.errors import InvalidInput

INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
CONFIGS = ("application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json")
MAX_MANIFEST = 4 << 20
_MAX_REFERRERS = 64
#: A tag that compspec's own tools push an artifact under, beside that of the image.
_BESIDE = "-compspec"

Descriptor = Mapping[str, Any]


class Blobs(Protocol):
    """Where manifests and blobs come from."""

    def tagged(self, tag: str) -> Descriptor | None:
        """The descriptor of a tag or digest; None when there is none. Its digest names the content."""

    def read(self, descriptor: Descriptor, most: int) -> bytes:
        """The content, not checked yet, of at most `most` bytes. Raises InvalidInput."""

    def referrers(self, digest: str) -> Sequence[Descriptor]:
        """Manifests whose subject is `digest`, as far as they are listed."""


def checked(descriptor: Descriptor, data: bytes) -> bytes:
    """`data`, which is what the descriptor's digest says. Raises InvalidInput."""
    algorithm, _, wanted = str(descriptor.get("digest")).partition(":")
    if algorithm not in ("sha256", "sha512") or hashlib.new(algorithm, data).hexdigest() != wanted:
        raise InvalidInput(f"blob {str(descriptor.get('digest'))[:80]} is not what its digest says")
    return data


class Image:
    """One image among `blobs`."""

    def __init__(self, blobs: Blobs, where: str, platform: str | None = None) -> None:
        self._blobs, self._where, self._platform = blobs, where, platform

    def facts(self, reference: str) -> ImageFacts | None:
        """What is said about the image of this tag or digest; None when there is no such image."""
        found = self._blobs.tagged(reference)
        if found is None:
            return None
        statements = [*self._beside(reference), *self._of(found)]
        manifest = self._manifest(found)
        statements += compspec.read_annotations(manifest.get("annotations"))
        if "manifests" in manifest:
            statements += self._of_platforms(manifest)
        else:
            statements += self._platform_of_config(manifest)
        return ImageFacts(f"{self._where} ({str(found.get('digest'))[:19]})", tuple(statements))

    # -- several platforms ----------------------------------------------------------------------

    def _of_platforms(self, index: Mapping[str, Any]) -> list[Statement]:
        """Of an index: of the one platform, of the one that is set, or what all have in common."""
        images = [row for row in index["manifests"] if isinstance(row, dict) and _platform_name(row) is not None]
        if self._platform is not None:
            images = [row for row in images if _fits(str(_platform_name(row)), self._platform)]
            if not images:
                raise InvalidInput(f"{self._where} has no image for platform {self._platform}")
        each = [self._of_one_platform(row) for row in images]
        if len({frozenset(own) for own in each}) > 1:
            names = ", ".join(sorted({str(_platform_name(row)) for row in images}))
            raise InvalidInput(
                f"{self._where}: the needs differ by platform ({names}): set compatibility.platform to one of these"
            )
        architectures = {str(_platform_name(row)).split("/")[1] for row in images}
        platform = [Statement("cpu.target", " | ".join(sorted(architectures)), "platform")] if images else []
        return [*(each[0] if each else ()), *platform]

    def _of_one_platform(self, descriptor: Descriptor) -> list[Statement]:
        manifest = self._manifest(descriptor)
        return [*self._of(descriptor), *compspec.read_annotations(manifest.get("annotations"))]

    # -- one manifest ---------------------------------------------------------------------------

    def _of(self, descriptor: Descriptor) -> list[Statement]:
        """What a descriptor's annotations say, and the artifacts that refer to it."""
        digest = str(descriptor.get("digest"))
        found: list[Statement] = []
        seen: set[str] = set()
        for row in [*self._blobs.referrers(digest), *self._fallback(digest)][:_MAX_REFERRERS]:
            if str(row.get("digest")) not in seen:
                seen.add(str(row.get("digest")))
                found += self._artifact(row, digest)
        return found + compspec.read_annotations(descriptor.get("annotations"))

    def _fallback(self, digest: str) -> Iterator[Descriptor]:
        """Referrers of a registry without that endpoint: an index under the tag ``sha256-<hex>``."""
        tag = digest.replace(":", "-", 1)[:128]
        row = self._blobs.tagged(tag)
        rows = self._manifest(row).get("manifests") if row is not None else None
        yield from (one for one in (rows if isinstance(rows, list) else ()) if isinstance(one, dict))

    def _beside(self, reference: str) -> list[Statement]:
        row = None if ":" in reference else self._blobs.tagged(reference + _BESIDE)
        return [] if row is None else self._artifact(row, None)

    def _artifact(self, descriptor: Descriptor, subject: str | None) -> list[Statement]:
        """The compatibility documents of an artifact; none when it is about something else."""
        manifest = self._manifest(descriptor)
        of = manifest.get("subject")
        if subject is not None and (not isinstance(of, dict) or of.get("digest") != subject):
            return []  # listed for it, and names another one itself
        config = manifest.get("config")
        kinds = {manifest.get("artifactType"), config.get("mediaType") if isinstance(config, dict) else None}
        layers = [row for row in manifest.get("layers") or () if isinstance(row, dict)]
        found: list[Statement] = []
        for layer in layers:
            typed = layer.get("mediaType") in compspec.MEDIA_TYPES
            if typed or (kinds & compspec.MEDIA_TYPES and layer.get("mediaType") == "application/json"):
                data = checked(layer, self._blobs.read(layer, compspec.MAX_BYTES))
                found += compspec.read_document(data, f"{self._where}, artifact {str(layer.get('digest'))[:19]}")
        return found

    def _platform_of_config(self, manifest: Mapping[str, Any]) -> list[Statement]:
        config = manifest.get("config")
        if not isinstance(config, dict) or config.get("mediaType") not in CONFIGS:
            return []
        document = _json(checked(config, self._blobs.read(config, MAX_MANIFEST)), self._where)
        architecture = document.get("architecture")
        return [Statement("cpu.target", architecture, "platform")] if isinstance(architecture, str) else []

    def _manifest(self, descriptor: Descriptor) -> dict[str, Any]:
        return _json(checked(descriptor, self._blobs.read(descriptor, MAX_MANIFEST)), self._where)


def _json(data: bytes, where: str) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidInput(f"{where}: a manifest is not JSON") from None
    if not isinstance(document, dict):
        raise InvalidInput(f"{where}: a manifest is no object")
    return document


def _platform_name(descriptor: Descriptor) -> str | None:
    """``linux/arm64/v8``; None for what is no image (an attestation has the platform unknown/unknown)."""
    platform = descriptor.get("platform")
    if not isinstance(platform, dict) or descriptor.get("mediaType") not in MANIFESTS:
        return None
    parts = [platform.get(key) for key in ("os", "architecture", "variant")]
    if not isinstance(parts[0], str) or not isinstance(parts[1], str) or parts[1] == "unknown":
        return None
    return "/".join(part for part in parts if isinstance(part, str))


def _fits(name: str, wanted: str) -> bool:
    return name == wanted or name.startswith(f"{wanted}/")
