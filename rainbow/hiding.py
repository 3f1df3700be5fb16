"""Secrets taken out of messages before people see them: of a dead letter, whoever wrote it and however wrong it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rainbow import codec
from rainbow.errors import InvalidInput
from rainbow.logs import redact

HIDDEN = "***"
#: Fields whose value is a secret, however they are spelt.
SECRET = frozenset({"token", "tokens", "secret", "authorization", "password", "bearer"})
#: Fields that are a job's own: what is in them is its user's choice, and is needed to send it once more.
_OWN = frozenset({"jobspec", "command", "environment", "graph", "summary", "subsystems", "route"})
#: As far as a body is read to find secrets in it: the largest that any consumer takes.
_MAX_READ = 64 << 20
#: In what cannot be read: the value after such a name, in JSON, YAML or msgpack (its head of a text, then the text).
_IN_TEXT = re.compile(
    r"((?:tokens?|secret|authorization|password|bearer)[\"']?"
    r"(?:\s*+[:=]\s*+(?:\[\s*+)?[\"']?|[\xa0-\xbf]|\xd9.|\xda..|\xdb....))[^\s\"',\]}]+",
    re.IGNORECASE | re.DOTALL,
)


def body(data: bytes, content_type: str | None, most: int) -> bytes:
    """A message body without secrets, at most `most` bytes of it; unchanged where there are none."""
    try:
        found = codec.decode(data, content_type, max_bytes=_MAX_READ)
    except InvalidInput:
        # Latin-1 keeps every byte as it was. A little more than is kept is read, so that no secret is cut in two.
        text = data[: 2 * most].decode("latin-1")
        return redact(_IN_TEXT.sub(rf"\1{HIDDEN}", text)).encode("latin-1")[:most]
    shown = mapping(found)
    if shown == found:
        return data[:most]
    binary = (content_type or "").startswith(codec.MSGPACK)
    return (codec.encode_msgpack(shown) if binary else codec.encode_json(shown))[:most]


def mapping(data: Mapping[str, Any]) -> dict[str, Any]:
    """A message's fields without secrets, at any depth; what is a job's own stays."""
    return {
        key if isinstance(key, str) and redact(key) == key else HIDDEN: _value(str(key).lower(), value)
        for key, value in data.items()
    }


def headers(data: Mapping[str, Any]) -> dict[str, Any]:
    """A message's headers without secrets."""
    return {key: HIDDEN if key.lower() in SECRET else value for key, value in data.items()}


def _value(key: str, value: Any) -> Any:
    if key in _OWN:
        return value
    if key in SECRET and value is not None:
        return HIDDEN
    if isinstance(value, Mapping):
        return mapping(value)
    if isinstance(value, list):
        return [_value("", item) for item in value]
    return redact(value) if isinstance(value, str) else value
