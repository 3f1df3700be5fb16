"""Read a JSON text part by part, without holding all of it as Python objects.

A resource graph can have hundreds of thousands of vertices. Its two long rows (`graph.nodes`, `graph.edges`) are
parsed block by block with the C parser of `json`, so that only one block exists as Python objects at a time.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any, TypeVar
from zlib import crc32

_BLOCK = 1 << 16
_SPACE = re.compile(r"[ \t\n\r]*")

Made = TypeVar("Made")


class Blocks:
    """What blocks of documents were made into, to read a changed document again at a fraction of the cost.

    Bounded by the characters of the blocks it stands for; the oldest go first. One thread.
    """

    last: Any = None
    """What the reader keeps of the last document, to go on from."""

    def __init__(self, max_chars: int = 256 << 20) -> None:
        self._max = max_chars
        self._chars = 0
        self._made: OrderedDict[bytes, tuple[int, Any]] = OrderedDict()

    def get(self, key: bytes) -> Any:
        found = self._made.get(key)
        if found is None:
            return None
        self._made.move_to_end(key)
        return found[1]

    def put(self, key: bytes, chars: int, made: Any) -> None:
        self._made[key] = (chars, made)
        self._chars += chars
        while self._chars > self._max:
            _, (dropped, _) = self._made.popitem(last=False)
            self._chars -= dropped


def _block(text: str, kind: str, convert: Callable[[list[Any]], Made], known: Blocks | None) -> Made | None:
    """A block of elements converted; None when the text is no row of whole elements."""
    key = b""
    if known is not None:
        name = kind.encode("utf-8", "surrogatepass")
        key = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16, key=blake2b(name).digest()).digest()
        found: Made | None = known.get(key)
        if found is not None:
            return found
    try:
        elements = json.loads(f"[{text}]")
    except ValueError:
        return None
    made = convert(elements)
    if known is not None:
        known.put(key, len(text), made)
    return made


class NotJson(ValueError):
    """The text is not JSON (it may still be YAML)."""


class Cursor:
    """A place in a JSON text. Each method reads one value and leaves the cursor after it."""

    __slots__ = ("_scan", "at", "text")

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        # What `raw_decode` calls after some checks: (value, where it ends).
        self._scan: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
        self._skip()

    def _skip(self) -> None:
        match = _SPACE.match(self.text, self.at)
        assert match is not None
        self.at = match.end()

    def peek(self) -> str:
        """The first character of the value that follows, or "" at the end."""
        return self.text[self.at : self.at + 1]

    def value(self) -> Any:
        """The whole value, parsed."""
        try:
            value, self.at = self._scan(self.text, self.at)
        except (StopIteration, ValueError) as exc:
            raise NotJson(str(exc)) from exc
        self._skip()
        return value

    def finish(self) -> None:
        if self.at != len(self.text):
            raise NotJson(f"text after the end, at character {self.at}")

    def items(self) -> Iterator[str]:
        """The keys of an object; the caller reads the value of each before taking the next."""
        self._expect("{")
        if self.peek() == "}":
            self._expect("}")
            return
        while True:
            if self.peek() != '"':
                raise NotJson(f"no key at character {self.at}")
            key = self.value()
            self._expect(":")
            yield key
            if self._one_of(",}") == "}":
                return

    def pairs(self) -> Iterator[tuple[str, Any]]:
        """Keys and parsed values of an object."""
        for key in self.items():
            yield key, self.value()

    def blocks(self, kind: str, convert: Callable[[list[Any]], Made], known: Blocks | None) -> Iterator[Made]:
        """The elements of a list, some hundreds at a time, each block as `convert` makes it.

        A block ends where the text between two elements (known from the first two) is found again; that it
        really is a border, and not part of a text or of something nested, shows when the block parses. Blocks
        in `known` (by `kind` and text) are neither parsed nor converted again.
        """
        self._expect("[")
        if self.peek() == "]":
            self._expect("]")
            return
        text = self.text
        border = ""
        stop = 0
        while True:
            start = self.at
            if border and stop >= 0:
                stop = self._cut(start, border)
            if border and stop >= 0:
                made = _block(text[start:stop], kind, convert, known)
                if made is not None:
                    self.at = stop + len(border) - 2
                    yield made
                    continue
            value, ended, last = self._element()
            if not border and not last and text[ended - 1] == "}" and self.peek() == "{":
                border = text[ended - 1 : self.at + 1]
            yield convert([value])
            if last:
                return

    def _element(self) -> tuple[Any, int, bool]:
        """One element of a list, where it ends, and whether it is the last."""
        try:
            value, self.at = self._scan(self.text, self.at)
        except (StopIteration, ValueError) as exc:
            raise NotJson(str(exc)) from exc
        ended = self.at
        self._skip()
        return value, ended, self._one_of(",]") == "]"

    def _cut(self, start: int, border: str) -> int:
        """Where the block that begins at `start` ends; -1 when the rest is too short for one.

        If possible at a border whose neighbourhood has a certain checksum, so that a change somewhere in the
        document moves the borders near it only.
        """
        text = self.text
        cut = first = text.find(border, start + _BLOCK)
        limit, reach = start + 4 * _BLOCK, len(border) + 40
        while 0 <= cut < limit and crc32(text[cut : cut + reach].encode("utf-8", "replace")) & 7:
            cut = text.find(border, cut + 1)
        if cut < 0:
            cut = first
        return cut + 1 if cut >= 0 else -1

    def _expect(self, char: str) -> None:
        if self.peek() != char:
            raise NotJson(f"{char!r} expected at character {self.at}")
        self.at += 1
        self._skip()

    def _one_of(self, chars: str) -> str:
        found = self.peek()
        if not found or found not in chars:
            raise NotJson(f"one of {chars!r} expected at character {self.at}")
        self.at += 1
        self._skip()
        return found
