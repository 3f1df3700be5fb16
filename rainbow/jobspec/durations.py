"""Lengths of time: seconds as a number, or Flux Standard Duration text (RFC 23: ``30``, ``10m``, ``1.5h``)."""

from __future__ import annotations

import re
from math import isfinite
from typing import Any

from rainbow.jobspec.problems import invalid, shown

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?", re.ASCII)
_UNITS = (("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0), ("", 1.0))


def read_seconds(value: Any, path: str) -> float:
    """A number of seconds, finite and not negative. Raises InvalidJobspec."""
    if (type(value) is int or type(value) is float) and value >= 0 and isfinite(value):
        return float(value)
    raise invalid(path, f"{shown(value)} is no duration; write a number of seconds from 0 up")


def read_duration(value: Any, path: str = "duration") -> float:
    """Seconds from a number or from RFC 23 text (units ms, s, m, h, d). Raises InvalidJobspec.

    >>> read_duration("1.5h"), read_duration("500ms"), read_duration(30)
    (5400.0, 0.5, 30.0)
    """
    if isinstance(value, str):
        for unit, seconds in _UNITS:
            number = value.removesuffix(unit) if unit else value
            if value.endswith(unit) and _DURATION.fullmatch(number):
                length = float(number) * seconds
                if isfinite(length):
                    return length
        raise invalid(path, f"{shown(value)} is no duration; write seconds, or a number with ms, s, m, h or d")
    return read_seconds(value, path)


def as_number(seconds: float) -> float | int:
    """Whole seconds as an integer, as people write them."""
    return int(seconds) if seconds.is_integer() else seconds
