"""Open a document given as text, bytes, a file or a path; what is no JSON is read as YAML."""

from __future__ import annotations

import gzip
import io
import lzma
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, cast

from rainbow.errors import InvalidGraph

Source = str | bytes | Mapping[str, Any] | Path | IO[bytes]

MAX_BYTES = 1 << 30
"""A document larger than this, unpacked, is refused."""

MAX_YAML_BYTES = 64 << 20
"""YAML needs some fifty times its size while it is read."""


def text_of(source: str | bytes | Path | IO[bytes]) -> str:
    """The text of a document; `.gz` and `.xz` are unpacked (by their first bytes, whatever the name).

    A `str` that begins like a document is one; otherwise it is taken as the name of a file.

    Raises:
        InvalidGraph: cannot be read, damaged, too large, or not UTF-8.
    """
    try:
        if isinstance(source, str):
            head = source.lstrip()[:1]
            if head in "{[" or "\n" in source or len(source) > 4096:
                return source
            source = Path(source)
        if isinstance(source, Path):
            with source.open("rb") as file:
                return _decode(file)
        if isinstance(source, (bytes, bytearray, memoryview)):
            return _decode(io.BytesIO(source))
        return _decode(source)
    except OSError as exc:
        name = source if isinstance(source, Path) else "the document"
        raise InvalidGraph(f"cannot read {name}: {exc.strerror or exc}") from exc
    except (EOFError, lzma.LZMAError, ValueError, MemoryError) as exc:
        raise InvalidGraph(f"cannot read the document: {exc}") from exc


def _decode(file: IO[bytes]) -> str:
    head = file.read(6)
    whole = cast(IO[bytes], _Rejoined(head, file))
    rest: IO[bytes] | gzip.GzipFile | lzma.LZMAFile = whole
    if head[:2] == b"\x1f\x8b":
        rest = gzip.GzipFile(fileobj=whole)
    elif head == b"\xfd7zXZ\0":
        rest = lzma.LZMAFile(whole)  # noqa: SIM115 (it closes nothing of ours)
    parts: list[bytes] = []
    size = 0
    while block := rest.read(1 << 20):
        size += len(block)
        if size > MAX_BYTES:
            raise InvalidGraph(f"the document has more than {MAX_BYTES >> 20} MiB")
        parts.append(block)
    joined = b"".join(parts)
    parts.clear()
    return joined.decode("utf-8-sig")


class _Rejoined(io.RawIOBase):
    """A stream with the bytes that were looked at put back in front (pipes cannot seek)."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if self._head:
            size = len(self._head) if size < 0 else size
            head, self._head = self._head[:size], self._head[size:]
            return head
        return self._rest.read(size)


def from_yaml(text: str) -> Any:
    """Parse YAML (a superset of JSON that also takes trailing commas).

    Raises:
        InvalidGraph: not YAML either, or too large to be tried.
    """
    if len(text) > MAX_YAML_BYTES:
        raise InvalidGraph("the document is not JSON, and too large to be read as YAML")
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(text, Loader=loader)  # noqa: S506 (a safe loader)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError, OverflowError, AttributeError) as exc:
        raise InvalidGraph(f"neither JSON nor YAML: {exc}") from None
