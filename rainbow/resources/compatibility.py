"""Whether a value that a cluster gives is what an image needs: versions, ranges, alternatives.

The value of a need is one of these, or several with ``|`` between them, of which one must hold:

* ``>=4.1,<5``: bounds (``>= <= > < == != ~=``), all of which must hold; ``==4.1.*`` is any version that begins so.
* ``*``: any value.
* other text: that value, or an equal version (``4.1`` is ``4.1.0``). Case does not matter.

Versions compare as `packaging.version` has it where both sides are such versions. Else both are cut into runs of digits
and runs of letters; digits compare as numbers, letters as text, and the longer one of two that begin alike is later
(``5.15.0-91-generic`` < ``5.15.0-100-generic``). Names of one architecture are equal (``amd64``, ``x86_64``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import ge, gt, le, lt
from typing import Any

from packaging.version import InvalidVersion, Version

Test = Callable[[str], bool]

_LONGEST = 256
"""Characters of a text that is looked at as a version."""
_BOUND = re.compile(r"(>=|<=|==|!=|~=|>|<)\s*([^\s,]+)")
_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {">=": ge, "<=": le, ">": gt, "<": lt}
_ARCHITECTURES = {"amd64": "x86_64", "x86-64": "x86_64", "x64": "x86_64", "arm64": "aarch64", "powerpc64le": "ppc64le"}


@lru_cache(maxsize=4096)
def compiled(value: str) -> Test:
    """A test of one value against what an image needs. Neither this nor the test raises."""
    tests = [_alternative(part.strip()) for part in value.split("|") if part.strip()]
    if len(tests) == 1:
        return tests[0]
    return lambda given: any(test(given) for test in tests)


def _alternative(text: str) -> Test:
    if text == "*":
        return lambda given: True
    if text[0] in "<>=!~":
        bounds = [_BOUND.fullmatch(part.strip()) for part in text.split(",")]
        if all(bounds):
            checks = [_bound(found[1], found[2]) for found in bounds if found is not None]
            return lambda given: len(given) <= _LONGEST and all(check(given) for check in checks)
    wanted = _plain(text)
    return lambda given: _plain(given) == wanted or _same_version(given, text)


def _bound(operator: str, wanted: str) -> Test:
    if operator in _ORDERS:
        holds = _ORDERS[operator]
        return lambda given: holds(*_comparable(given, wanted))
    if operator == "~=":
        # Compatible release: at least this, and the same but for the last number.
        start, dot, _ = wanted.rpartition(".")
        return lambda given: ge(*_comparable(given, wanted)) and (not dot or _begins(given, start))
    if wanted.endswith(".*"):
        equal: Test = lambda given: _begins(given, wanted[:-2])  # noqa: E731
    else:
        equal = lambda given: _plain(given) == _plain(wanted) or _same_version(given, wanted)  # noqa: E731
    return equal if operator == "==" else lambda given: not equal(given)


def _begins(given: str, start: str) -> bool:
    ours, theirs = _runs(given), _runs(start)
    return ours[: len(theirs)] == theirs


def _plain(text: str) -> str:
    text = text.strip().casefold()
    return _ARCHITECTURES.get(text, text)


def _same_version(left: str, right: str) -> bool:
    ours, theirs = _version(left), _version(right)
    return ours is not None and ours == theirs


def _comparable(left: str, right: str) -> tuple[Any, Any]:
    """Both as versions, or both as runs."""
    ours, theirs = _version(left), _version(right)
    if ours is not None and theirs is not None:
        return ours, theirs
    return _runs(left), _runs(right)


@lru_cache(maxsize=4096)
def _version(text: str) -> Version | None:
    try:
        return Version(text) if len(text) <= _LONGEST else None
    except (InvalidVersion, ValueError):
        return None


@lru_cache(maxsize=4096)
def _runs(text: str) -> tuple[tuple[int, int, str], ...]:
    found = re.findall(r"[0-9]+|[^\W\d_]+", text.strip().casefold().removeprefix("v"))
    # A run of letters before one of digits: 5.0-rc1 is before 5.0.1.
    return tuple((1, int(run), "") if run.isascii() and run.isdigit() else (0, 0, run) for run in found)


def words_in(value: str) -> Test:
    """The test of a list attribute (``cpu.features``): each word that is needed is among those given."""
    wanted = frozenset(re.split(r"[\s,]+", value.casefold().strip()))
    return lambda given: wanted.issubset(re.split(r"[\s,]+", given.casefold()))


class Compatibility:
    """`compatibility`: the value is what an image needs: `value` may have bounds (``>=4.1,<5``), ``|`` and ``*``."""

    def accepting(self, arguments: Mapping[str, str]) -> Test:
        wanted = arguments.get("value", "").strip()
        return compiled(wanted) if wanted.strip("| ") else lambda value: False
