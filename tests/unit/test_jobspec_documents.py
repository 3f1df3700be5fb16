"""From text, bytes and mappings to plain values, within bounds."""

from __future__ import annotations

import collections
import subprocess
import sys
from types import MappingProxyType
from typing import Any

import pytest

from rainbow.errors import InvalidJobspec
from rainbow.jobspec.dialects.documents import load
from rainbow.jobspec.dialects.limits import MAX_BYTES, MAX_DEPTH


def plain(document: Any, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH) -> dict[str, Any]:
    return load(document, max_bytes, max_depth)


def refusal(document: Any, **bounds: int) -> str:
    with pytest.raises(InvalidJobspec) as caught:
        plain(document, **bounds)
    return str(caught.value)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ('{"a": 1, "a": 2}', "given twice"),
        ("a: 1\na: 2\n", "given twice"),
        ('{"a": NaN}', "NaN"),
        ('{"a": [-Infinity]}', "Infinity"),
        ('{"a": 1e999}', "too large"),
        ("a: .inf", "finite"),
        ("a: .nan", "finite"),
        ('{"a": 123456789012345678901}', "64 bits"),
        ("a: 123456789012345678901", "64 bits"),
        ("a: " + "1" * 5000, "5000 characters"),
        ({"a": 10**30}, "64 bits"),
        ({"a": float("nan")}, "finite"),
        ("a: !!python/object/apply:os.system [id]", "tag"),
        ("!mine {a: 1}", "tag"),
        ("a: !!binary aGk=", "tag"),
        ("a: &x [*x]", "before its anchor ends"),
        ("a: *nowhere", "anchor"),
        ("{a: 1}\n---\n{b: 1}", "one document"),
        ("", "one document"),
        ("[1, 2]", "a list"),
        ('"text"', "'text'"),
        ("a: b: c", "line 1"),
        ("? [a]\n: b", "not text"),
        (b"\xff\xfe\x00", "UTF-8"),
        ('{"a": "\\ud800"}', "surrogate"),
        ("a: '\ud800'", "surrogate"),
        ({"a": "\ud800"}, "surrogate"),
        ({1: 2}, "not text"),
        ({"a": {1, 2}}, "set has no place"),
        ({"a": b"x"}, "bytes has no place"),
        (7, "not int"),
        (None, "not NoneType"),
    ],
)
def test_refused(document: Any, words: str) -> None:
    assert words in refusal(document)


@pytest.mark.parametrize("depth", [65, 900, 100_000])
def test_nesting_is_bounded(depth: int) -> None:
    for text in ("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth, "- " * depth + "a"):
        refusal(text)
        refusal(f'{{"version": 1, "x": {text}}}')
    nested: Any = 1
    for _ in range(min(depth, 900)):
        nested = [nested]
    assert "nested" in refusal({"a": nested})


def test_nesting_up_to_the_bound_is_taken() -> None:
    depth = MAX_DEPTH - 1
    for text in ("[" * depth + "]" * depth, "[" * depth + "1," + "]" * depth):
        assert plain(f'{{"a": {text}}}')
    nested: Any = []
    for _ in range(depth - 1):
        nested = [nested]
    assert plain({"a": nested}) == {"a": nested}
    assert "nested" in refusal({"a": [nested]})


def test_many_brackets_side_by_side_are_no_depth() -> None:
    assert len(plain('{"a": [' + ",".join(["[]"] * 500) + "]}")["a"]) == 500


def test_size_is_counted_in_bytes() -> None:
    assert "at most 10" in refusal("a: 123456789", max_bytes=10)
    assert "at most 10" in refusal("a: äääää", max_bytes=10)
    assert plain("a: äää", max_bytes=10) == {"a": "äää"}


def test_aliases_that_multiply_are_stopped() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "more than" in refusal("\n".join(lines))
    merges = ["m0: &m0 {a: 1}"] + [f"m{n}: &m{n} {{<<: [*m{n - 1}, *m{n - 1}]}}" for n in range(1, 40)]
    assert "more than" in refusal("\n".join(merges))


def test_shared_parts_of_a_mapping_are_stopped_too() -> None:
    shared: Any = ["x"] * 10
    for _ in range(12):
        shared = [shared] * 10
    assert "more than" in refusal({"a": shared})
    ring: dict[str, Any] = {}
    ring["ring"] = ring
    assert "nested" in refusal(ring)


def test_aliases_and_merges_are_read() -> None:
    text = "base: &b {x: 1, y: [1]}\nuse: {<<: *b, x: 2}\nsame: *b\n"
    assert plain(text) == {"base": {"x": 1, "y": [1]}, "use": {"x": 2, "y": [1]}, "same": {"x": 1, "y": [1]}}


def test_scalars_of_yaml() -> None:
    text = "a: 3600.\nb: no\nc: ~\nd: 2024-04-28\ne: 0x10\nf: 'no'\ng: 1_000\nno: x\n1: y\nh:\n"
    assert plain(text) == {
        "a": 3600.0,
        "b": False,
        "c": None,
        "d": "2024-04-28",
        "e": 16,
        "f": "no",
        "g": 1000,
        "no": "x",
        "1": "y",
        "h": None,
    }


def test_json_with_slips_is_yaml() -> None:
    assert plain('{"a": [1, 2,], }') == {"a": [1, 2]}
    assert plain("\ufeff".encode() + b'{"a": 1}') == {"a": 1}


def test_mappings_are_kept_unless_they_need_copying() -> None:
    document = {"a": [1, {"b": "c"}]}
    assert plain(document) is document
    proxy = MappingProxyType({"a": (1, collections.OrderedDict(b="ü"))})
    copied = plain(proxy)
    assert copied == {"a": [1, {"b": "ü"}]}
    assert type(copied["a"][1]) is dict


def test_yaml_is_not_imported_for_json() -> None:
    code = (
        "import sys; from rainbow.jobspec import read; "
        'read(\'{"version": 1, "resources": {"a": {"type": "node", "count": 1}}}\'); '
        "sys.exit('yaml' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
