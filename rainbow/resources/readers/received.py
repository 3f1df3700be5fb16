"""Summaries that somebody else packed: checked in full before anything is made of them.

`Summary.from_bytes` trusts what this side packed itself and stored. What comes in a message may say anything: each
value is checked for its type and bounds, and each reference for what it leads to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rainbow import codec
from rainbow.errors import InvalidGraph, InvalidInput
from rainbow.ranges.hostlist import MAX_HOSTS, MAX_NAME, MAX_PIECES
from rainbow.ranges.idset import MAX_ID
from rainbow.resources.readers.summary import VERSION, Summary

MAX_BYTES = 64 << 20
MAX_VALUES = 2_000_000
MAX_COUNT = 2**53
"""The largest count, number of vertices and sum of sizes of a type: what JSON numbers can say."""

MAX_SHAPES = 20_000
MAX_TYPES = 256
MAX_DEPTH = 64
"""Levels of a graph: matching walks it with recursion."""

MAX_TEXT = 256
_FIELDS = frozenset({"v", "shapes", "hosts", "ranks", "properties", "keys", "subsystems", "name", "dominant"})


def received(data: bytes) -> Summary:
    """The summary in `data`, which came in a message.

    Raises:
        InvalidGraph: anything in it that `Summary.to_bytes` does not write, or beyond the bounds.
    """
    try:
        document = codec.decode(data, codec.MSGPACK, max_bytes=MAX_BYTES, max_depth=10, max_items=MAX_VALUES)
    except InvalidInput as exc:
        raise InvalidGraph(f"a damaged summary: {exc.message}") from None
    version = document.get("v")
    if version != VERSION or type(version) is not int:
        raise InvalidGraph(f"a summary of version {str(version)[:40]}; this rainbow reads {VERSION}")
    _need(document.keys() == _FIELDS, "its fields")
    _shapes(_list(document["shapes"], "shapes", MAX_SHAPES))
    _text(document["dominant"], "dominant")
    if document["name"] is not None:
        _text(document["name"], "name", MAX_NAME)
    _need(document["keys"] is None or isinstance(document["keys"], bytes), "keys")
    made = Summary.from_bytes(_shapes_alone(document))
    root = made.root
    _need(max(root.vertices, *root.totals.values(), *root.counts.values()) <= MAX_COUNT, "its size")
    targets = root.targets
    _hosts(document["hosts"], targets)
    _ranks(_list(document["ranks"], "ranks"), targets)
    for name, row in _mapping(document["properties"], "properties").items():
        _text(name, "a property", MAX_NAME)
        _ids(row, targets, "a property")
    for name, groups in _mapping(document["subsystems"], "subsystems").items():
        _text(name, "a subsystem", MAX_NAME)
        for group in _list(groups, "a subsystem"):
            _group(group, targets, root.vertices)
    return Summary.from_bytes(data)


def _shapes_alone(document: Mapping[str, Any]) -> bytes:
    """The same shapes alone: how many targets there are is needed to check the rest."""
    bare = {**document, "hosts": None, "ranks": [], "properties": {}, "subsystems": {}, "keys": None}
    return codec.encode_msgpack(bare)


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise InvalidGraph(f"a damaged summary: {what}")


def _list(value: Any, what: str, most: int = MAX_VALUES) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise InvalidGraph(f"a damaged summary: {what}")
    return value


def _mapping(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidGraph(f"a damaged summary: {what}")
    return value


def _text(value: Any, what: str, most: int = MAX_TEXT) -> None:
    _need(isinstance(value, str) and len(value) <= most, what)


def _number(value: Any, low: int, high: int, what: str) -> None:
    _need(type(value) is int and low <= value <= high, what)


def _shapes(shapes: list[Any]) -> None:
    """Each shape has children before it. What it costs to make one grows with the types below it."""
    _need(bool(shapes), "shapes")
    types: set[str] = set()
    depths: list[int] = []
    below: list[int] = []
    cost = 0
    for at, shape in enumerate(shapes):
        _need(isinstance(shape, list) and len(shape) == 5, "a shape")
        kind, size, unit, outer, row = shape
        _text(kind, "a type")
        _text(unit, "a unit")
        _number(size, 0, MAX_COUNT, "a size")
        _need(type(outer) is bool, "a shape")
        types.add(kind)
        _need(len(types) <= MAX_TYPES, "too many types")
        _need(isinstance(row, list) and len(row) % 2 == 0, "children")
        depth = vertices = 1
        for child, count in zip(row[::2], row[1::2], strict=True):
            _number(child, 0, at - 1, "a child")
            _number(count, 1, MAX_COUNT, "a count")
            depth = max(depth, depths[child] + 1)
            vertices += below[child] * count
            cost += min(len(types), depths[child] * depths[child])
        _need(depth <= MAX_DEPTH and vertices <= MAX_COUNT and cost <= MAX_VALUES, "its shapes")
        depths.append(depth)
        below.append(vertices)


def _hosts(hosts: Any, targets: int) -> None:
    if hosts is None:
        return
    total = 0
    for piece in _list(hosts, "hosts", MAX_PIECES):
        _need(isinstance(piece, list) and len(piece) == 5, "a host")
        prefix, start, stop, width, suffix = piece
        _text(prefix, "a host", MAX_NAME)
        _text(suffix, "a host", MAX_NAME)
        _number(width, 1, 18, "a host")
        if start == -1:
            _number(stop, -1, -1, "a host")
            total += 1
        else:
            _number(start, 0, 10**18, "a host")
            _number(stop, start + 1, 10**18, "a host")
            total += stop - start
    _need(total == targets and total <= MAX_HOSTS, "its hosts are not as many as its nodes")


def _ranks(ranks: list[Any], targets: int) -> None:
    end = 0
    for run in ranks:
        _need(isinstance(run, list) and len(run) == 3, "ranks")
        rank, count, ordinal = run
        _number(ordinal, end, targets, "ranks")
        _number(count, 1, targets - ordinal, "ranks")
        _number(rank, 0, MAX_ID - count, "ranks")
        end = ordinal + count


def _ids(row: Any, stop: int, what: str) -> None:
    """Ranges as rising pairs."""
    before = -1
    for end in _list(row, what):
        _number(end, before + 1, stop, what)
        before = end
    _need(len(row) % 2 == 0, what)


def _group(group: Any, targets: int, vertices: int) -> None:
    _need(isinstance(group, list) and len(group) == 3, "a subsystem")
    _ids(group[0], targets, "a subsystem")
    _ids(group[1], vertices, "a subsystem")
    for row in _list(group[2], "a subsystem"):
        for name, value in _mapping(row, "a subsystem").items():
            _text(name, "a subsystem", MAX_NAME)
            _need(isinstance(value, str), "a subsystem")


__all__ = ["received"]
