"""The keys of a document's vertices by position, packed small."""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Sequence
from itertools import chain
from operator import sub

import msgpack

from rainbow.errors import InvalidGraph


def plain_numbers(keys: list[str]) -> array[int] | None:
    """Keys as numbers, when each is written as Python writes a number of 64 bits."""
    try:
        numbers = array("q", map(int, keys))
    except (ValueError, OverflowError):
        return None
    return numbers if list(map(str, numbers)) == keys else None


class VertexKeys:
    """The keys of all vertices by position, packed; unpacked when a subsystem is to be linked."""

    __slots__ = ("_where", "packed")

    def __init__(self, packed: bytes) -> None:
        self.packed = packed
        self._where: dict[str, int] | None = None

    @classmethod
    def of(cls, keys: list[str]) -> VertexKeys:
        """Keys that are plain numbers (most are) become differences, which pack to almost nothing.

        Raises:
            InvalidGraph: a key that is no proper text.
        """
        numbers = plain_numbers(keys)
        if numbers is not None and (made := cls.of_numbers(numbers)):
            return made
        try:
            packed: bytes = msgpack.packb(keys)
        except UnicodeEncodeError:
            raise InvalidGraph("a vertex has an id that is no text that can be written") from None
        return cls(b"t" + zlib.compress(packed, 1))

    @classmethod
    def of_numbers(cls, numbers: Sequence[int]) -> VertexKeys | None:
        """Keys given as numbers (see `plain_numbers`); None when two neighbours lie too far apart."""
        try:
            steps = array("q", map(sub, numbers, chain((0,), numbers)))
        except OverflowError:
            return None
        return cls(b"n" + zlib.compress(steps.tobytes(), 1))

    def position(self, key: str) -> int | None:
        if self._where is None:
            self._where = {name: at for at, name in enumerate(self._keys())}
        return self._where.get(key)

    def _keys(self) -> list[str]:
        """Raises InvalidGraph: what was packed elsewhere may be anything."""
        try:
            body = _unpacked(self.packed[1:])
            if self.packed[:1] == b"t":
                keys = msgpack.unpackb(body)
                if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
                    raise InvalidGraph("the keys of the summary are damaged")
                return keys
            return _numbers(body)
        except (ValueError, zlib.error, msgpack.UnpackException) as exc:
            raise InvalidGraph(f"the keys of the summary are damaged: {exc}") from None


MAX_UNPACKED = 256 << 20
"""Bytes of the keys of one cluster, unpacked."""


def _unpacked(packed: bytes) -> bytes:
    inflating = zlib.decompressobj()
    body = inflating.decompress(packed, MAX_UNPACKED)
    if inflating.unconsumed_tail:
        raise InvalidGraph(f"the keys of the summary have more than {MAX_UNPACKED} bytes")
    return body


def _numbers(body: bytes) -> list[str]:
    """Numbers kept as steps from one to the next."""
    steps = array("q")
    steps.frombytes(body)
    number, found = 0, []
    for step in steps:
        number += step
        found.append(str(number))
    return found
