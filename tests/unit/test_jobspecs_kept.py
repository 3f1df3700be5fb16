"""Jobspecs as stores keep them, and what is remembered of them."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

from rainbow_workers.stores.jobspecs import Jobspecs, unpacked


class Document(dict[str, Any]):
    """Can be watched."""


def test_equal_ones_have_one_name_and_are_read_again() -> None:
    jobspecs = Jobspecs(16_384)
    first, second = jobspecs.kept({"tasks": ["a"]}), jobspecs.kept({"tasks": ["a"]})
    assert first is not None
    assert first == second
    assert unpacked(first.packed) == {"tasks": ["a"]}
    assert jobspecs.kept({"tasks": ["b"]}) != first


@pytest.mark.parametrize(
    ("text", "kept"), [("0" * 60_000, True), ("0" * 600_000, False)], ids=["compressed it is small", "too large"]
)
def test_large_documents_are_not_held(text: str, kept: bool) -> None:
    """Else a thousand large submissions stay in memory for as long as no others come."""
    jobspecs = Jobspecs(16_384)
    document = Document(tasks=[text])
    watched = weakref.ref(document)
    assert (jobspecs.kept(document) is not None) is kept
    del document
    assert watched() is None


def test_small_ones_are_known_again() -> None:
    jobspecs = Jobspecs(16_384)
    document = {"tasks": ["a"]}
    assert jobspecs.kept(document) is jobspecs.kept(document)
