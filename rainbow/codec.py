"""Bytes at the edge: JSON and msgpack with bounded size and depth, and nothing ambiguous let through.

Every failure is InvalidInput (TooLarge for size) with one plain line.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import msgpack

from rainbow.errors import InvalidInput, TooLarge

JSON = "application/json"
MSGPACK = "application/x-msgpack"

MAX_BYTES = 1 << 20
MAX_DEPTH = 64
#: Values, lists and mappings of one message. Each takes some 60 bytes once it is decoded, however short it is written.
MAX_ITEMS = 200_000


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        seen: set[str] = set()
        twice = next(k for k, _ in pairs if k in seen or seen.add(k))  # type: ignore[func-returns-value]
        raise InvalidInput(f"key {twice[:80]!r} is given twice: give it once")
    return out


def _no_constant(text: str) -> NoReturn:
    raise InvalidInput(f"{text} is not JSON: use a finite number")


_decoder = json.JSONDecoder(object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def check_size(body: bytes, max_bytes: int = MAX_BYTES) -> None:
    """Raise TooLarge for a body of more than `max_bytes`."""
    if len(body) > max_bytes:
        raise TooLarge(f"message of {len(body)} bytes is over the limit of {max_bytes} bytes")


def decode(
    body: bytes,
    content_type: str | None = None,
    *,
    max_bytes: int = MAX_BYTES,
    max_depth: int = MAX_DEPTH,
    max_items: int = MAX_ITEMS,
) -> dict[str, Any]:
    """The mapping in `body`. msgpack when `content_type` says so, else JSON (UTF-8).

    Refused: over `max_bytes`; nested deeper than `max_depth`; more than `max_items` values; duplicate keys, NaN and
    Infinity, invalid UTF-8, numbers of absurd length; msgpack extension types and non-text keys; anything that is not
    a mapping. Size and number of values are bounded before memory is taken for them.
    """
    check_size(body, max_bytes)
    for magic, what in _NOT_PLAIN:
        if body.startswith(magic):
            raise InvalidInput(f"the message is {what}: send it as plain UTF-8 JSON or msgpack")
    body = body.removeprefix(_BOM)
    kind = (content_type or JSON).partition(";")[0].strip().lower()
    if kind in (MSGPACK, "application/msgpack"):
        value = _from_msgpack(body, max_items)
        check_depth(value, max_depth)
    elif kind in (JSON, "", "text/plain", "text/json", "application/octet-stream"):
        _check_json_items(body, max_items)
        value = _from_json(body)
        # An opening bracket a level: fewer of them than levels allowed means there is nothing to look for.
        if body.count(b"{") + body.count(b"[") > max_depth:
            check_depth(value, max_depth)
    else:
        raise InvalidInput(f"content type {kind[:80]!r} is not read: use {JSON} or {MSGPACK}")
    if not isinstance(value, dict):
        raise InvalidInput(f"the message is a {_kind(value)}: it must be one mapping (a JSON object)")
    return value


#: What begins so is no mapping, in JSON or in msgpack.
_NOT_PLAIN = (
    (b"\x1f\x8b", "compressed with gzip"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
    (b"\xff\xfe", "not UTF-8 but UTF-16"),
    (b"\xfe\xff", "not UTF-8 but UTF-16"),
)
#: A byte order mark, which some editors write in front of UTF-8.
_BOM = b"\xef\xbb\xbf"
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)


def _check_json_items(body: bytes, max_items: int) -> None:
    """Every value but the first of its holder stands behind a comma. Texts are looked at only if need be."""
    if len(body) <= max_items:
        return
    for text in (body, _TEXT.sub(b"", body)):
        if text.count(b",") + text.count(b"[") + text.count(b"{") <= max_items:
            return
    raise TooLarge(f"the message has more than {max_items} values")


def _from_json(body: bytes) -> Any:
    try:
        return _decoder.decode(body.decode("utf-8"))
    except UnicodeDecodeError as exc:
        raise InvalidInput(f"the message is not UTF-8 (byte {exc.start})") from None
    except RecursionError:
        raise InvalidInput("the message is nested too deep") from None
    except json.JSONDecodeError as exc:
        raise InvalidInput(f"the message is not JSON: {exc.msg} (line {exc.lineno}, column {exc.colno})") from None
    except ValueError as exc:  # an integer of thousands of digits
        raise InvalidInput(f"the message is not JSON we read: {exc}") from None


def _no_extension(code: int, data: bytes) -> NoReturn:
    raise InvalidInput(f"msgpack extension type {code} is not read")


def _no_duplicates_msgpack(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
    for key, _ in pairs:
        if not isinstance(key, str):
            raise InvalidInput(f"msgpack map key {str(key)[:80]!r} is not text")
    return _no_duplicates(pairs)


class _Counted:
    """Hooks for msgpack that count what they are given."""

    def __init__(self, left: int) -> None:
        self._limit = self._left = left

    def items(self, items: list[Any]) -> list[Any]:
        self._take(1 + len(items))
        return items

    def pairs(self, pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
        self._take(1 + len(pairs))
        return _no_duplicates_msgpack(pairs)

    def _take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise TooLarge(f"the message has more than {self._limit} values")


def _from_msgpack(body: bytes, max_items: int) -> Any:
    # A value has at least one byte: a short message needs no counting.
    hooks: dict[str, Any] = {"object_pairs_hook": _no_duplicates_msgpack}
    if len(body) > max_items:
        counted = _Counted(max_items)
        hooks = {"object_pairs_hook": counted.pairs, "list_hook": counted.items}
    try:
        return msgpack.unpackb(
            body, raw=False, ext_hook=_no_extension, max_array_len=max_items, max_map_len=max_items, **hooks
        )
    except InvalidInput:
        raise
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException) as exc:
        raise InvalidInput(f"the message is not msgpack: {exc or type(exc).__name__}") from None


def check_depth(value: Any, max_depth: int = MAX_DEPTH) -> None:
    """Raise InvalidInput when `value` nests lists and mappings deeper than `max_depth`."""
    level = [value]
    for _ in range(max_depth + 1):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        if not below:
            return
        level = below
    raise InvalidInput(f"the message is nested deeper than {max_depth} levels")


def _kind(value: Any) -> str:
    return {list: "list", str: "text", type(None): "null"}.get(type(value), type(value).__name__)


def encode_json(value: Mapping[str, Any] | list[Any]) -> bytes:
    """Compact UTF-8 JSON. NaN and Infinity raise InvalidInput."""
    try:
        return _encoder.encode(value).encode()
    except ValueError as exc:
        raise InvalidInput(f"cannot be written as JSON: {exc}") from None


class _Packers(threading.local):
    """One for each thread: making a packer takes longer than packing a message with it."""

    def __init__(self) -> None:
        self.packer = msgpack.Packer()


_packers = _Packers()


@dataclass(frozen=True, slots=True)
class Pairs:
    """Some pairs of a mapping, packed."""

    count: int
    packed: bytes


def pack_pairs(value: Mapping[str, Any]) -> Pairs:
    """The pairs of `value`, to become part of several messages."""
    count = len(value)
    return Pairs(count, encode_msgpack(value)[len(_map_header(count)) :])


def _map_header(count: int) -> bytes:
    header: bytes = _packers.packer.pack_map_header(count)
    return header


def encode_msgpack(value: Mapping[str, Any], more: Pairs | None = None) -> bytes:
    """`value` as msgpack, followed by the pairs in `more`."""
    packer = _packers.packer
    try:
        packed: bytes = packer.pack(value)
        if more is None:
            return packed
    except BaseException:
        packer.reset()
        raise
    count = len(value)
    return _map_header(count + more.count) + packed[len(_map_header(count)) :] + more.packed
