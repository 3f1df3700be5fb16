"""Jobspecs as stores keep them: packed, compressed, and named by a digest, so that equal ones are kept once."""

from __future__ import annotations

import hashlib
import threading
import zlib
from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgpack

#: What most jobspecs say, for the compressor. What is kept can only be read with the same words: others need another
#: `_FORM`.
_WORDS = msgpack.packb(
    {
        "resources": [
            {"type": "node", "count": 1, "exclusive": True, "with": []},
            {"type": "slot", "label": "task", "count": 1, "with": [{"type": "core", "count": 1}]},
            {"type": "gpu", "count": 1},
        ],
        "attributes": {
            "system": {
                "cwd": "/home/",
                "queue": "batch",
                "constraints": {"properties": []},
                "shell": {"options": {}},
                "environment": {"HOME": "/home/", "PATH": "/usr/local/bin:/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
                "duration": 0,
                "job": {"name": ""},
            },
            "user": {},
        },
        "tasks": [{"command": ["/bin/sh", "-c", ""], "slot": "task", "count": {"per_slot": 1}}],
        "version": 1,
    }
)
_FORM = b"1"
#: How many documents are known with what they were made into, and up to how many bytes each when packed.
_KNOWN, _SMALL = 1024, 4096
#: Larger than so many times the bound when packed: compressing it is not tried.
_AT_MOST = 8


class Kept(NamedTuple):
    """A jobspec as it is kept, and its name."""

    digest: str
    packed: bytes


class Jobspecs:
    """Makes them. `limit` is in bytes: larger ones are not kept, and 0 keeps none. Used by several threads."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._known: OrderedDict[int, tuple[Mapping[str, Any], Kept | None]] = OrderedDict()

    def kept(self, document: Mapping[str, Any] | None) -> Kept | None:
        """None for one that is not kept. The document may not change afterwards."""
        if document is None or not self._limit:
            return None
        with self._lock:
            known = self._known.get(id(document))
        if known is not None:
            return known[1]
        packed = _packed(document)
        made = None if packed is None else _compressed(packed, self._limit)
        if packed is not None and len(packed) <= _SMALL:
            with self._lock:
                # The document is kept with it: its id is of no other for as long.
                self._known[id(document)] = document, made
                if len(self._known) > _KNOWN:
                    self._known.popitem(last=False)
        return made


def _packed(document: Mapping[str, Any]) -> bytes | None:
    try:
        packed: bytes = msgpack.packb(document, unicode_errors="surrogatepass")
    except (OverflowError, TypeError, ValueError):  # numbers that msgpack cannot hold
        return None
    return packed


def _compressed(packed: bytes, limit: int) -> Kept | None:
    if len(packed) > _AT_MOST * limit:
        return None
    compressor = zlib.compressobj(1, zdict=_WORDS)
    kept = _FORM + compressor.compress(packed) + compressor.flush()
    if len(kept) > limit:
        return None
    return Kept(urlsafe_b64encode(hashlib.blake2b(packed, digest_size=18).digest()).decode(), kept)


def unpacked(kept: bytes) -> dict[str, Any] | None:
    """The document; None for a form that this release does not know."""
    if not kept.startswith(_FORM):
        return None
    packed = zlib.decompressobj(zdict=_WORDS).decompress(kept[len(_FORM) :])
    document: dict[str, Any] = msgpack.unpackb(packed, unicode_errors="surrogatepass", strict_map_key=False)
    return document
