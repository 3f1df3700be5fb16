"""How many of a resource are asked for (RFC 14), in each of its spellings.

An integer; a mapping ``{min, max, operator, operand}``; a range text (RFC 45: ``"3-30"``, ``"2-16:2:*"``,
``"3+"``); or a text of allowed counts (RFC 22: ``"4,9,16,25"``).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from rainbow.errors import InvalidInput
from rainbow.jobspec.problems import Path, invalid, shown
from rainbow.jobspec.request import Count
from rainbow.ranges.idset import MAX_ID, IdSet

_RANGE = re.compile(r"([1-9][0-9]{0,15})(?:-([1-9][0-9]{0,15})|\+)(?::([1-9][0-9]{0,15})(?::([+*^]))?)?", re.ASCII)
_KEYS = frozenset(("min", "max", "operator", "operand"))


@lru_cache(maxsize=4096)
def exactly(number: int) -> Count:
    """The count that allows `number` only. Kept, because the same few numbers come again and again."""
    return Count(number, number)


ONE = exactly(1)


def read_count(value: Any, path: Path, least: int = 1) -> Count:
    """Read a count of at least `least`.

    Raises:
        InvalidJobspec: not a count by RFC 14.
    """
    if type(value) is int:
        if not least <= value <= MAX_ID:
            raise invalid(path, f"{value} is no count; write a whole number from {least} up")
        return exactly(value)
    if type(value) is str:
        return _from_text(value, path)
    if type(value) is dict:
        return _from_mapping(value, path)
    raise invalid(path, f"{shown(value)} is no count; write a whole number, a range or a mapping with min")


def _from_text(text: str, path: Path) -> Count:
    body = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    match = _RANGE.fullmatch(body)
    if match is not None:
        low, high, operand, operator = match.groups()
        return _range(int(low), None if high is None else int(high), operator or "+", int(operand or 1), path)
    try:
        allowed = IdSet.parse(text)
    except InvalidInput:
        allowed = IdSet()
    if not allowed or allowed.first() == 0:
        raise invalid(path, f"{shown(text)} is no count; write a range such as 2-16 or a list such as 4,9,16")
    return Count(allowed.first(), allowed.last())


def _from_mapping(value: dict[str, Any], path: Path) -> Count:
    if not _KEYS.issuperset(value):
        raise invalid(path, f"unknown key {shown(min(set(value) - _KEYS))}; a range has min, max, operator, operand")
    if "min" not in value:
        raise invalid(path, "a range needs min")
    low = _whole(value["min"], (path, "min"))
    if len(value) == 1:
        return Count(low, None)
    if len(value) != 4:
        raise invalid(path, "a range has max, operator and operand together, or none of them")
    operator = value["operator"]
    if type(operator) is not str or operator not in ("+", "*", "^"):
        raise invalid((path, "operator"), f"{shown(operator)} is no operator; write +, * or ^")
    high = _whole(value["max"], (path, "max"))
    return _range(low, high, operator, _whole(value["operand"], (path, "operand")), path)


def _whole(value: Any, path: Path) -> int:
    if type(value) is not int or not 1 <= value <= MAX_ID:
        raise invalid(path, f"{shown(value)} is no whole number from 1 up")
    return value


def _range(low: int, high: int | None, operator: str, operand: int, path: Path) -> Count:
    if operator != "+" and operand < 2:
        raise invalid(path, f"operator {operator} needs an operand of at least 2")
    if operator == "^" and low < 2:
        raise invalid(path, "operator ^ needs a min of at least 2")
    if high is None:
        return Count(low, None)
    if high < low:
        raise invalid(path, f"max {high} is less than min {low}")
    if operator == "+":
        return Count(low, high - (high - low) % operand)
    last = low
    while (step := last * operand if operator == "*" else last**operand if operand < 64 else high + 1) <= high:
        last = step
    return Count(low, last)
