"""Read a jobspec of any dialect into the one request model; keep what was read lately."""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from rainbow.errors import InvalidJobspec
from rainbow.jobspec.compatibility import with_needs
from rainbow.jobspec.dialects.canonical import read_canonical
from rainbow.jobspec.dialects.documents import load
from rainbow.jobspec.dialects.limits import MAX_BYTES, MAX_DEPTH
from rainbow.jobspec.dialects.nextgen import read_nextgen
from rainbow.jobspec.dialects.nextgen_list import read_old_list
from rainbow.jobspec.problems import invalid
from rainbow.jobspec.request import Jobspec
from rainbow.jobspec.waits import NONE, take_waits

Question = Literal["V1", "canonical", "nextgen", "nextgen-list"]
"""What a document can be read as on demand. ``V1`` refuses whatever RFC 25 does not allow."""


def read(
    document: str | bytes | Mapping[str, Any],
    *,
    dialect: Question | None = None,
    max_bytes: int = MAX_BYTES,
    max_depth: int = MAX_DEPTH,
) -> Jobspec:
    """Read a jobspec from a mapping or from JSON or YAML text; find out its dialect unless it is given.

    `max_bytes` bounds the text, `max_depth` the nesting. The mapping that is given is neither copied (if
    it holds only what JSON gives) nor changed, and is kept as `Jobspec.document`.

    Raises:
        InvalidJobspec: and nothing else, whatever the input.
    """
    try:
        plain = load(document, max_bytes, max_depth)
        return _read(plain, dialect)
    except RecursionError:  # only when the caller allows more depth than Python itself
        raise invalid("", "nested too deeply") from None


def detect(document: dict[str, Any]) -> Question:
    """Which dialect a document is meant to be, right or wrong.

    A list of resources with ``task``, or with wishes in ``tasks[].resources``, is the older list form. Any
    other list, a task with ``slot`` or ``count``, or ``attributes.system`` means canonical, so that a
    canonical jobspec with a slip in its resources is not taken for nextgen. The rest is nextgen.
    """
    tasks = document.get("tasks")
    listed = [task for task in tasks if type(task) is dict] if type(tasks) is list else []
    if type(document.get("resources")) is list:
        if "task" in document:
            return "nextgen-list"
        for task in listed:
            if "resources" in task:
                return "nextgen-list"
        return "canonical"
    for task in listed:
        if "slot" in task or type(task.get("count")) is dict:
            return "canonical"
    attributes = document.get("attributes")
    if type(attributes) is dict and "system" in attributes:
        return "canonical"
    return "nextgen"


def _read(document: dict[str, Any], dialect: Question | None) -> Jobspec:
    bare, waits = take_waits(document)
    made = with_needs(_READERS[dialect or detect(bare)](bare))
    return made if waits == NONE else replace(made, after=waits[0], begin=waits[1])


def _read_v1(document: dict[str, Any]) -> Jobspec:
    return read_canonical(document, as_v1=True)


_READERS = {
    "V1": _read_v1,
    "canonical": read_canonical,
    "nextgen": read_nextgen,
    "nextgen-list": read_old_list,
}


class Cache:
    """Jobspecs read lately, by the very text they were read from; bounded by number and by bytes of text.

    Safe to share between threads. Refusals are not kept: they are rare, and their texts unbounded in kind.
    """

    def __init__(self, max_entries: int = 4096, max_bytes: int = 32 << 20) -> None:
        self.max_entries = max_entries
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str | bytes, str | None], Jobspec] = OrderedDict()
        self._bytes = 0

    def read(self, document: str | bytes | Mapping[str, Any], *, dialect: Question | None = None) -> Jobspec:
        """As `read`, without parsing a text that is known.

        A mapping is known by its canonical JSON; it is one that a decoder gave (no tuples in it, nor types of one's
        own).

        The `Jobspec` is shared by all who ask: its document must not be changed.
        """
        if isinstance(document, str | bytes):
            text: str | bytes = document
        else:
            try:
                text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
            except (TypeError, ValueError, RecursionError):
                return read(document, dialect=dialect)  # which says what is wrong with it
        if len(text) > MAX_BYTES:
            raise invalid("", f"{len(text)} bytes; at most {MAX_BYTES} are taken")
        key = (text, dialect)
        with self._lock:
            known = self._kept.get(key)
            if known is not None:
                self._kept.move_to_end(key)
                return known
        if type(document) is dict and _surely_plain(str(text)):
            made = _read(document, dialect)
        else:
            made = read(document, dialect=dialect)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = made
                self._bytes += len(text)
            while self._kept and (len(self._kept) > self.max_entries or self._bytes > self.max_bytes):
                (dropped, _), _ = self._kept.popitem(last=False)
                self._bytes -= len(dropped)
        return made

    def __len__(self) -> int:
        return len(self._kept)

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self._bytes = 0


def _surely_plain(text: str) -> bool:
    """Whether a decoded mapping with this JSON needs no check of each value.

    True for nothing but ASCII, no number that may be too large, and no deep nesting.
    """
    return "\\u" not in text and text.count("{") + text.count("[") <= MAX_DEPTH and not _LONG_NUMBER.search(text)


_LONG_NUMBER = re.compile("[0-9]{18}")
_CACHE = Cache()


def read_cached(document: str | bytes | Mapping[str, Any], *, dialect: Question | None = None) -> Jobspec:
    """As `read`, with default bounds, keeping the jobspecs read lately in one cache of the process.

    The `Jobspec` is shared by all who ask: its document must not be changed.

    Raises:
        InvalidJobspec: as `read`.
    """
    return _CACHE.read(document, dialect=dialect)


__all__ = ["Cache", "InvalidJobspec", "Question", "detect", "read", "read_cached"]
