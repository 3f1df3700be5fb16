"""Between our models and what the scripts take and give.

Arguments of a script are msgpack in which text and bytes are the same, as in Lua. Whatever a model lets through
must pass here (lone surrogates, huge integers, not a number): one odd event may not stop its whole batch.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
import time
from collections.abc import Mapping
from typing import Any

import msgpack

from rainbow.models.cluster import ClusterRecord
from rainbow.models.job import JobRecord
from rainbow_workers.stores.jobspecs import Jobspecs

#: Lua counts in doubles.
_LARGEST = 1 << 53


class _Packers(threading.local):
    """One packer for each thread: making them takes longer than packing with them."""

    def __init__(self) -> None:
        self.opaque = msgpack.Packer(unicode_errors="surrogatepass")
        self.lua = msgpack.Packer(use_bin_type=False, unicode_errors="surrogatepass")


_packers = _Packers()


def pack(value: Any) -> bytes:
    """`value` for Lua (which knows no None: use False)."""
    packed: bytes = msgpack.packb(value, use_bin_type=False, unicode_errors="surrogatepass")
    return packed


def packer() -> msgpack.Packer:
    """Packs as `pack` does, for many values in one thread."""
    return _packers.lua


def pack_record(value: ClusterRecord) -> bytes:
    """A cluster's record as it is kept, opaque to Lua: msgpack in which bytes stay bytes."""
    packed: bytes = msgpack.packb(value.model_dump(), unicode_errors="surrogatepass")
    return packed


def unpack(data: bytes) -> Any:
    """A reply of Lua's, with all text as bytes."""
    return msgpack.unpackb(data, raw=True, strict_map_key=False)


def unpack_text(data: bytes) -> Any:
    """A value in which every text is text."""
    try:
        return msgpack.unpackb(data)
    except UnicodeDecodeError:  # lone surrogates: rare, and slower
        return msgpack.unpackb(data, unicode_errors="surrogatepass")


def text(data: bytes) -> str:
    """A value of Redis as text."""
    return data.decode("utf-8", "surrogatepass")


def number(value: int) -> int:
    """`value`, or the nearest integer that Lua can count to."""
    return max(-_LARGEST, min(_LARGEST, value))


def moment(value: float) -> float:
    """`value`, or the time now when it is not a time at all."""
    return value if math.isfinite(value) else time.time()


def opaque(value: Mapping[str, Any]) -> bytes:
    """A mapping that Lua only passes on: msgpack, or JSON (which begins with a brace) for what msgpack cannot hold."""
    packer = _packers.opaque
    try:
        packed: bytes = packer.pack(value)
    except (OverflowError, TypeError, ValueError):
        packer.reset()
        return json.dumps(value, default=str).encode()
    return packed


class Shared:
    """What many jobs of a batch have alike, packed once and named by its digest: parts of answers, and jobspecs."""

    def __init__(self, jobspecs: Jobspecs) -> None:
        self._jobspecs = jobspecs
        self._specs: dict[int, str | None] = {}
        self._digests: dict[int, tuple[Any, str]] = {}
        #: Digest -> what it stands for.
        self.texts: dict[str, bytes] = {}

    def digest(self, value: Mapping[str, Any]) -> str | None:
        """None for nothing."""
        if not value:
            return None
        known = self._digests.get(id(value))
        if known is None:
            packed = opaque(value)
            digest = hashlib.blake2b(packed, digest_size=16).hexdigest()
            self.texts[digest] = packed
            # The value is kept with it: its id is of no other for as long.
            known = self._digests[id(value)] = value, digest
        return known[1]

    def jobspec(self, document: Mapping[str, Any] | None) -> str | None:
        """None for one that is not kept. The caller holds the documents for as long as this is used."""
        if document is None:
            return None
        try:
            return self._specs[id(document)]
        except KeyError:
            pass
        kept = self._jobspecs.kept(document)
        if kept is not None:
            self.texts[kept.digest] = kept.packed
        found = self._specs[id(document)] = None if kept is None else kept.digest
        return found


def transparent(data: bytes) -> dict[str, Any]:
    """The mapping that `opaque` packed."""
    value: dict[str, Any] = json.loads(data) if data.startswith(b"{") else unpack_text(data)
    return value


def record(
    packed: bytes,
    answer: bytes | bool = False,
    looked: bytes | bool = False,
    history: list[dict[str, Any]] | None = None,
) -> JobRecord:
    """A job record from what the scripts keep of it; False for what it does not have."""
    fields: dict[str, Any] = unpack_text(packed)
    if isinstance(answer, bytes):
        beside = transparent(looked) if isinstance(looked, bytes) else {}
        fields["answer"] = {**transparent(answer), **beside}
    if history is not None:
        fields["history"] = history
    return JobRecord.model_validate(fields)


def entry(kept: bytes) -> dict[str, Any]:
    """An entry of the history from its sign and `opaque` form."""
    value = transparent(kept[1:])
    return {**value, "stale": True} if kept.startswith(b"-") else value


def pairs(flat: list[bytes]) -> Mapping[bytes, bytes]:
    """The mapping that HGETALL gives as a flat list."""
    return dict(zip(flat[::2], flat[1::2], strict=True))
