"""Match algorithms: does the value of one subsystem field meet one requirement?

Plugins of the entry points `rainbow.match`.

An algorithm sees one text and the requirement's arguments, and nothing of graphs. Values are compared as text:
numbers as Python writes them, booleans in lower case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from math import isnan, nan
from typing import Any, Protocol

from packaging.version import InvalidVersion, Version

_SEMVER = re.compile(
    r"v?(0|[1-9]\d*)(?:\.(0|[1-9]\d*))?(?:\.(0|[1-9]\d*))?(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?", re.ASCII
)


class MatchAlgorithm(Protocol):
    """What a plugin of the group `rainbow.match` is: a class without arguments, with this one method."""

    def accepting(self, arguments: Mapping[str, str]) -> Callable[[str], bool]:
        """A test of one value (the field of one subsystem vertex) against what `arguments` ask for.

        Neither this nor the test may raise; the test is called once for each different value.
        """
        ...


class Equality:
    """`match`: the value is the text asked for."""

    def accepting(self, arguments: Mapping[str, str]) -> Callable[[str], bool]:
        wanted = arguments.get("match")
        return lambda value: value == wanted


class Range:
    """`range`: the value is a version between `min` and `max`, both included; either may be left out.

    Versions are semantic versions of one to three numbers (missing ones are 0) with an optional ``v``; a
    pre-release or what cannot be read is never inside, as Masterminds/semver has it for plain bounds. Big plain
    numbers (bytes of memory) are versions of one number. What is no semantic version is read by PEP 440 where
    bounds and value all can be (``1.2.3.4``), and as plain numbers otherwise (``1e3``, ``-1``).
    """

    def accepting(self, arguments: Mapping[str, str]) -> Callable[[str], bool]:
        low, high = arguments.get("min"), arguments.get("max")
        if low is None and high is None:
            return lambda value: False
        # Each reading in which the bounds that are given can be read at all.
        readings: list[tuple[Callable[[str], Any], Any, Any]] = []
        for reader in (_semantic, _pep440, _plain):
            floor = None if low is None else reader(low)
            ceiling = None if high is None else reader(high)
            if (low is None or floor is not None) and (high is None or ceiling is not None):
                readings.append((reader, floor, ceiling))

        def accepts(value: str) -> bool:
            for reader, floor, ceiling in readings:
                at = reader(value)
                if at is not None:
                    return at is not _PRE and (floor is None or floor <= at) and (ceiling is None or at <= ceiling)
            return False

        return accepts


_LONGEST = 256
"""Characters of a text that is looked at as a version or number."""

_PRE = (-1,)
"""Stands for a pre-release: a version, but inside no range."""


@lru_cache(maxsize=4096)
def _semantic(text: str) -> tuple[int, ...] | None:
    match = _SEMVER.fullmatch(text.strip()) if len(text) <= _LONGEST else None
    if match is None:
        return None
    if match[4]:
        return _PRE
    return int(match[1]), int(match[2] or 0), int(match[3] or 0)


@lru_cache(maxsize=4096)
def _pep440(text: str) -> Version | tuple[int, ...] | None:
    if len(text) > _LONGEST:
        return None
    try:
        version = Version(text)
    except (InvalidVersion, ValueError):
        return None
    return _PRE if version.is_prerelease else version


@lru_cache(maxsize=4096)
def _plain(text: str) -> float | None:
    try:
        number = float(text) if len(text) <= _LONGEST else nan
    except ValueError:
        return None
    return None if isnan(number) else number
