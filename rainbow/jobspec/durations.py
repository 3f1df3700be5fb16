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


_PARTS = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?(?:ms|[smhd]))+", re.ASCII)
_PART = re.compile(r"([0-9.]+)(ms|[smhd])", re.ASCII)
_CLOCK = re.compile(r"(?:([0-9]{1,6})-)?([0-9]{1,6})(?::([0-9]{1,6}))?(?::([0-9]{1,6}))?", re.ASCII)


def read_time_limit(text: str, path: str = "time limit") -> float:
    """Read a time limit as command lines of Slurm and Flux write it, in seconds; 0 means none.

    A bare number is minutes. Also ``MM:SS``, ``HH:MM:SS``, ``D-HH``, ``D-HH:MM``, ``D-HH:MM:SS`` (sbatch(1)), RFC 23
    text (``30s``, ``1.5h``), several of its parts (``1h30m``), and ``infinity`` or ``unlimited``.

    Raises:
        InvalidJobspec: anything else.

    >>> read_time_limit("10"), read_time_limit("1:30:00"), read_time_limit("2-00:00:00"), read_time_limit("1h30m")
    (600.0, 5400.0, 172800.0, 5400.0)
    """
    if text.lower() in ("infinity", "infinite", "unlimited"):
        return 0.0
    if _DURATION.fullmatch(text):
        minutes = float(text)
        if isfinite(minutes * 60):
            return minutes * 60
    if _PARTS.fullmatch(text):
        return sum(read_duration(number + unit, path) for number, unit in _PART.findall(text))
    clock = _CLOCK.fullmatch(text)
    if clock is not None:
        days, first, second, third = (None if part is None else int(part) for part in clock.groups())
        if days is not None:
            return float(days * 86400 + (first or 0) * 3600 + (second or 0) * 60 + (third or 0))
        if third is not None:
            return float((first or 0) * 3600 + (second or 0) * 60 + third)
        return float((first or 0) * 60 + (second or 0))
    raise invalid(path, f"{shown(text)} is no time limit; write minutes, or 30s, 1h30m, HH:MM:SS, D-HH:MM:SS")


def as_number(seconds: float) -> float | int:
    """Whole seconds as an integer, as people write them."""
    return int(seconds) if seconds.is_integer() else seconds
