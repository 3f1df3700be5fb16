"""From text, bytes or a mapping to a plain mapping of JSON values, within bounds.

JSON is tried first, since it is some fifty times cheaper; what is no JSON is read as YAML, of which JSON
with the usual slips (trailing commas, comments) is a part. Nothing here knows what a jobspec is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

from rainbow.jobspec.dialects.limits import MAX_INT_DIGITS, MAX_VALUES
from rainbow.jobspec.problems import invalid, shown

_MAX_INT = 10**MAX_INT_DIGITS


def load(document: str | bytes | Mapping[str, Any], max_bytes: int, max_depth: int) -> dict[str, Any]:
    """Read `document` into a mapping whose values are only dict, list, str, int, float, bool and None.

    Raises:
        InvalidJobspec: no JSON or YAML mapping, or beyond the bounds, or with what JSON cannot hold
            (duplicate keys, tags, NaN, infinities, numbers of more than 64 bits, half surrogates).
    """
    if isinstance(document, str | bytes):
        return parse(document, max_bytes, max_depth)
    if not isinstance(document, Mapping):
        raise invalid("", f"a mapping or its JSON or YAML text is needed, not {type(document).__name__}")
    if type(document) is dict and _is_plain(document, max_depth):
        return document
    copied = _copied(document, "", max_depth)
    assert isinstance(copied, dict)
    return copied


def parse(text: str | bytes, max_bytes: int, max_depth: int) -> dict[str, Any]:
    """Read JSON or YAML text; see `load`."""
    if len(text) > max_bytes:
        raise invalid("", f"{len(text)} bytes; at most {max_bytes} are taken")
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as exc:
            raise invalid("", f"not UTF-8 text at byte {exc.start}; encode it as UTF-8") from None
    elif not text.isascii():
        try:
            size = len(text.encode())
        except UnicodeEncodeError as exc:
            raise invalid("", f"half a surrogate pair at character {exc.start}; send whole characters") from None
        if size > max_bytes:
            raise invalid("", f"{size} bytes; at most {max_bytes} are taken")
    try:
        value = _json(text)
    except json.JSONDecodeError:
        from rainbow.jobspec.dialects.yaml import read_yaml  # costs 80 ms to import: only where it is needed

        value = read_yaml(text, max_depth)
    except RecursionError:
        raise invalid("", f"nested deeper than {max_depth} levels") from None
    else:
        # No more openings than levels allowed means no deeper nesting either: the usual case, and cheap to see.
        if text.count("{") + text.count("[") > max_depth or "\\ud" in text or "\\uD" in text:
            value = _copied(value, "", max_depth)
    if type(value) is not dict:
        raise invalid("", f"a mapping with version, resources and tasks is needed, not {shown(value)}")
    return value


def _json(text: str) -> Any:
    # The decoder is built once: `json.loads` with hooks would build one for each document.
    return _DECODER.decode(text)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise invalid(key, "this key is given twice; keep one")
            seen.add(key)
    return made


def _int(digits: str) -> int:
    if len(digits) > MAX_INT_DIGITS and len(digits.lstrip("-")) > MAX_INT_DIGITS:
        raise invalid("", f"the number {digits[:12]}... has {len(digits)} digits; at most 64 bits are taken")
    return int(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if not isfinite(value):
        raise invalid("", f"the number {digits[:24]} is too large")
    return value


def _constant(name: str) -> Any:
    raise invalid("", f"{name} is no number that JSON has; write a finite one")


# A function for each number costs less than looking through the text for numbers that are too large.
_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_int=_int, parse_float=_float, parse_constant=_constant)


def _is_plain(document: dict[str, Any], max_depth: int) -> bool:
    """Whether everything in the tree is of the very types that JSON gives, and in bounds. No copy is made."""
    level: list[Any] = [document]
    depth = values_seen = 0
    while level:
        depth += 1
        if depth > max_depth:
            return False
        below: list[Any] = []
        for holder in level:
            if type(holder) is dict:
                for key in holder:
                    if type(key) is not str or not key.isascii():
                        return False
                values: Any = holder.values()
            else:
                values = holder
            for value in values:
                kind = type(value)
                if kind is str:
                    if not value.isascii():
                        return False
                elif kind is dict or kind is list:
                    below.append(value)
                elif kind is int:
                    if not -_MAX_INT < value < _MAX_INT:
                        return False
                elif kind is float:
                    if not isfinite(value):
                        return False
                elif kind is not bool and value is not None:
                    return False
        values_seen += len(below)
        if values_seen > MAX_VALUES:
            return False
        level = below
    return True


def _copied(value: Any, path: str, max_depth: int) -> Any:
    """A copy made of JSON's own types; says where it fails."""
    return _copy(value, path, max_depth, iter(range(MAX_VALUES)))


def _copy(value: Any, path: str, depth: int, budget: Iterator[int]) -> Any:
    if next(budget, None) is None:
        raise invalid("", f"more than {MAX_VALUES} values")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, path)
    if isinstance(value, int):
        if not -_MAX_INT < value < _MAX_INT:
            raise invalid(path, "a whole number of more than 64 bits")
        return int(value)
    if isinstance(value, float):
        if not isfinite(value):
            raise invalid(path, f"{value} is no finite number")
        return float(value)
    if depth <= 0:
        raise invalid(path[:80], "nested too deeply")
    if isinstance(value, Mapping):
        made: dict[str, Any] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise invalid(path, f"the key {shown(key)} is not text; quote it")
            key = _text(key, path)
            made[key] = _copy(item, f"{path}.{key}" if path else key, depth - 1, budget)
        return made
    if isinstance(value, list | tuple):
        return [_copy(item, f"{path}[{at}]", depth - 1, budget) for at, item in enumerate(value)]
    raise invalid(path, f"{type(value).__name__} has no place in JSON")


def _text(value: str, path: str) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise invalid(path, "half a surrogate pair in a text; send whole characters") from None
    return str(value)
