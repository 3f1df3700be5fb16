"""The two match algorithms of our own, found as plugins."""

from __future__ import annotations

from typing import Any

import pytest

from rainbow.plugins import load, names


def accepts(algorithm: str, value: str, **arguments: str) -> Any:
    return load("rainbow.match", algorithm)().accepting(arguments)(value)


def test_they_are_plugins() -> None:
    assert {"match", "range"} <= set(names("rainbow.match"))


def test_equality() -> None:
    assert accepts("match", "shm", match="shm")
    assert not accepts("match", "shm", match="SHM")
    assert not accepts("match", "shm")


@pytest.mark.parametrize(
    ("value", "low", "high", "expected"),
    [
        ("0.5.2", "0.5.1", "0.5.5", True),
        ("0.5.1", "0.5.1", None, True),
        ("0.5.5", None, "0.5.5", True),
        ("0.5.6", "0.5.1", "0.5.5", False),
        ("0.10.0", "0.9", None, True),
        ("v1.2", "1.2.0", "1.2.0", True),
        ("1", "1.0.0", "1.0", True),
        ("1.2.3-rc1", "1.2.0", None, False),
        ("1.2.3+build5", "1.2.3", "1.2.3", True),
        ("14745817829", "8000000000", None, True),
        ("274877906944", None, "1000", False),
        ("1.2.3.4", "1.2.3.1", "1.2.4.0", True),
        ("2024.1rc1", "2023.0.0.0", None, False),
        ("0.25", "0.1", "0.5", False),  # versions: 25 is more than 5
        ("0.25", "0.1", "0.5e0", True),
        ("-1", None, "0", True),
        ("-1", "0", None, False),
        ("1e3", "999", "1001", True),
        ("nan", "0", "1", False),
        ("latest", "1.0", None, False),
        ("", "1.0", None, False),
        ("1.0", "latest", None, False),
        ("1.0", None, None, False),
        ("9" * 5000, "1", None, False),
    ],
)
def test_range(value: str, low: str | None, high: str | None, expected: bool) -> None:
    bounds = {name: bound for name, bound in (("min", low), ("max", high)) if bound is not None}
    assert accepts("range", value, **bounds) is expected
