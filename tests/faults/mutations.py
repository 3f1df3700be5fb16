"""Changes to documents and bytes, from a seed, and messages that are known to cost much to read."""

from __future__ import annotations

import contextlib
import copy
import json
import random
import sys
from collections.abc import Iterator
from typing import Any

import msgpack

from rainbow import codec

EVIL: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1 << 31,
    1 << 53,
    1 << 63,
    (1 << 64) - 1,
    -(1 << 63),
    0.5,
    float("nan"),
    float("inf"),
    1e308,
    "",
    "\0",
    "\x1b[2J\x1b]0;owned\x07",
    "x" * 5000,
    "é\u202e\ufeff",
    "0-9007199254740991",
    "0," * 2000 + "0",
    "node[0-999999999999]",
    "*",
    "@all",
    "../../etc/passwd",
    "{" * 500,
    "a: &a [1]\nb: [" + "*a," * 900 + "*a]",
    [],
    {},
    [[]] * 300,
    {"": None},
    {str(n): n for n in range(300)},
    b"\xff" * 40,
    list(range(2000)),
)


class Mutator:
    """Changes documents and bodies, from a seed alone."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def document(self, document: Any) -> Any:
        """A copy with one to four changes: values, keys or whole parts replaced, taken out, doubled or nested."""
        with _deep():
            made = copy.deepcopy(document)
            for _ in range(self._rng.randint(1, 4)):
                made = self._change(made)
        return made

    def _change(self, made: Any) -> Any:
        rng = self._rng
        holders = [made, *_below(made)]
        holder = rng.choice(holders)
        if not holder:
            return made
        at = rng.choice(list(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
        match rng.randrange(7):
            case 0 | 1 | 2:
                holder[at] = copy.deepcopy(rng.choice(EVIL))
            case 3:
                del holder[at]
            case 4:
                if isinstance(holder, dict):
                    holder[rng.choice(("", "colour", "token", "op", "id", "x" * 300))] = copy.deepcopy(rng.choice(EVIL))
                else:
                    holder.extend([holder[at]] * rng.choice((1, 100, 3000)))
            case 5:
                holder[at] = copy.deepcopy(rng.choice([h for h in holders if len(h) < 100] or [None]))
            case 6:
                value = holder[at]
                for _ in range(rng.choice((2, 70, 300))):
                    value = [value] if rng.random() < 0.5 else {"a": value}
                holder[at] = value
        return made

    def body(self, body: bytes) -> bytes:
        """Bytes changed, cut, doubled or inserted."""
        rng = self._rng
        raw = bytearray(body)
        for _ in range(rng.randint(1, 5)):
            at = rng.randrange(len(raw) + 1)
            match rng.randrange(5):
                case 0 if raw:
                    raw[at % len(raw)] = rng.randrange(256)
                case 1:
                    del raw[at:]
                case 2:
                    raw[at:at] = raw[: rng.randrange(2000)]
                case 3:
                    raw[at:at] = bytes([rng.randrange(256)]) * rng.choice((1, 10, 4000))
                case _:
                    del raw[at : at + rng.randrange(20)]
        return bytes(raw)

    def encoded(self, document: Any, binary: bool) -> bytes:
        with _deep():
            try:
                return bytes(msgpack.packb(document)) if binary else _json(document)
            except (ValueError, OverflowError, TypeError, RecursionError):
                return _json("never to be written")


@contextlib.contextmanager
def _deep() -> Iterator[None]:
    """Some documents nest deeper than Python likes to copy and write."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def _below(value: Any, depth: int = 0) -> Iterator[Any]:
    """All lists and mappings in a document."""
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        if isinstance(item, dict | list) and depth < 40:
            yield item
            yield from _below(item, depth + 1)


def _json(value: Any) -> bytes:
    return json.dumps(value, default=lambda odd: odd.hex() if isinstance(odd, bytes) else repr(odd)).encode()


def bombs() -> list[tuple[str, bytes, str]]:
    """What is known to cost much to read: (name, body, content type). Each is small, or as large as is let in."""
    empty = b"\xdc\xff\xff" + b"\x90" * 65535
    aliases = "a: &a [" + "1," * 900 + "1]\nb: [" + "*a," * 9000 + "*a]"
    apart = {
        "version": 1,
        "execution": {
            "R_lite": [{"rank": str(2 * n), "children": {"core": f"0-{n}"}} for n in range(8000)],
            "properties": {f"p{n}": f"{n}" for n in range(2000)},
        },
    }
    endless = {"version": 1, "execution": {"R_lite": [{"rank": "0-9007199254740991", "children": {"core": "0-3"}}]}}
    named = {
        "version": 1,
        "execution": {"R_lite": [{"rank": "0-9007199254740991", "node": "n", "children": {"core": "0"}}]},
    }
    hosts = {"type": "constraint", "hostlist": [",".join(f"h{n}x{n}" for n in range(0, 240_000, 2))]}
    register = {"op": "register", "cluster": "red", "identity": "identity-of-red"}
    chosen = {"name": "constraint", "options": {"priorities": aliases}}
    return [
        ("lists", b"\x81\xa1a\xdc\x00\x7f" + empty * 127, codec.MSGPACK),
        ("lists of JSON", b'{"a":[' + b"[]," * 2_600_000 + b"[]]}", codec.JSON),
        ("depth", b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", codec.JSON),
        ("digits", b'{"a":' + b"9" * 900_000 + b"}", codec.JSON),
        ("aliases", _json({"command": ["true"], "selection": chosen}), codec.JSON),
        ("endless ranks", _json({**register, "graph": endless}), codec.JSON),
        ("endless names", _json({**register, "graph": named}), codec.JSON),
        ("ranks apart", _json({**register, "graph": apart}), codec.JSON),
        ("hosts", _json({"command": ["true"], "requires": [hosts]}), codec.JSON),
        ("16 MiB", b'{"a":"' + b"x" * (16 << 20) + b'"}', codec.JSON),
    ]
