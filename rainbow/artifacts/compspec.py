"""Compatibility documents as compspec writes them: ``{version, kind, metadata, compatibilities: [...]}``.

Each of `compatibilities` has the `name` of a vocabulary and `attributes`, a flat mapping. The vocabularies' names
(``org.supercontainers``, ``io.archspec``) only say who keeps them: ``mpi.version`` is that in any of them. The
vocabulary ``rainbow.prefer`` holds preferences.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rainbow.artifacts.base import Origin, Statement
from rainbow.errors import InvalidInput

PREFER = "rainbow.prefer"
#: Layers and artifacts of these types hold such a document.
MEDIA_TYPES = frozenset(
    {
        "application/org.supercontainers.compspec",
        "application/vnd.compspec.compatibility.v1+json",
        "application/vnd.oci.image.compatibilities.v1+json",
    }
)
#: Annotations of an image that begin so are attributes of it.
NAMESPACES = ("org.supercontainers.", "io.archspec.", "rainbow.compatibility.")
MAX_BYTES = 1 << 20
_MAX_ATTRIBUTES = 1000


def read_document(data: bytes, where: str) -> list[Statement]:
    """The statements of a document. Raises InvalidInput naming `where` it is."""
    if len(data) > MAX_BYTES:
        raise InvalidInput(f"{where}: {len(data)} bytes are too many for a compatibility document ({MAX_BYTES})")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidInput(f"{where} is not JSON") from None
    rows = document.get("compatibilities") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise InvalidInput(f"{where} has no list of compatibilities: it is no compspec document")
    found: list[Statement] = []
    for at, row in enumerate(rows):
        attributes = row.get("attributes") if isinstance(row, dict) else None
        if not isinstance(attributes, dict):
            raise InvalidInput(f"{where}: compatibilities[{at}] has no mapping of attributes")
        origin: Origin = "preference" if row.get("name") == PREFER else "artifact"
        found += [
            Statement(name, _text(value, f"{where}: {name}"), origin)
            for name, value in attributes.items()
            if value not in (None, "")
        ]
    if len(found) > _MAX_ATTRIBUTES:
        raise InvalidInput(f"{where}: {len(found)} attributes are too many (at most {_MAX_ATTRIBUTES})")
    return found


def read_annotations(annotations: Any) -> list[Statement]:
    """The statements among the annotations of a manifest or descriptor."""
    if not isinstance(annotations, Mapping):
        return []
    return [
        Statement(name.removeprefix(prefix), value, "annotation")
        for name, value in annotations.items()
        for prefix in NAMESPACES
        if isinstance(value, str) and value and isinstance(name, str) and name.startswith(prefix) and name != prefix
    ]


def _text(value: Any, where: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise InvalidInput(f"{where} must be text or a number")
