"""Secrets taken out of messages before people see them: of a dead letter, whatever its sender and however malformed."""

from __future__ import annotations

import base64
import json
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
#: In what cannot be read: the value after such a name, in JSON, YAML or msgpack (its head of a text, then the text).
_IN_TEXT = re.compile(
    r"((?:tokens?|secret|authorization|password|bearer)[\"']?"
    r"(?:\s*+[:=]\s*+(?:\[\s*+)?[\"']?|[\xa0-\xbf]|\xd9.|\xda..|\xdb....))[^\s\"',\]}]+",
    re.IGNORECASE | re.DOTALL,
)

_TOKEN = re.compile(r"eyJ[A-Za-z0-9_-]{8,512}+\.[A-Za-z0-9_-]{8,16384}+(?:\.[A-Za-z0-9_-]*+)?")


def body(data: bytes, content_type: str | None, most: int) -> bytes:
    """A message body without secrets, at most `most` bytes of it; unchanged where there are none."""
    try:
        # What was refused for its size is not read after all, only to be shown.
        found = codec.decode(data, content_type)
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
    """A message's fields without secrets, at any depth. What is a job's own stays, but for tokens of ours in it."""
    return {
        key if isinstance(key, str) and redact(key) == key else HIDDEN: _value(str(key).lower(), value)
        for key, value in data.items()
    }


def own(value: Any) -> Any:
    """What is a job's own, without tokens of ours: whatever looks like one is taken out, wherever it was put."""
    if isinstance(value, str):
        return (
            _TOKEN.sub(lambda found: HIDDEN if looks_ours(found[0]) else found[0], value) if "eyJ" in value else value
        )
    if isinstance(value, Mapping):
        return {own(key): own(item) for key, item in value.items()}
    if isinstance(value, list):
        return [own(item) for item in value]
    return value


def looks_ours(text: str) -> bool:
    """Whether `text` has the form of a token of rainbow's, good or not."""
    try:
        payload = text.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, IndexError, RecursionError):
        return False
    return isinstance(claims, dict) and "rainbow" in (claims.get("aud"), claims.get("iss"))


def headers(data: Mapping[str, Any]) -> dict[str, Any]:
    """A message's headers without secrets."""
    return {key: HIDDEN if key.lower() in SECRET else own(value) for key, value in data.items()}


def _value(key: str, value: Any) -> Any:
    if key in _OWN:
        return own(value)
    if key in SECRET and value is not None:
        return HIDDEN
    if isinstance(value, Mapping):
        return mapping(value)
    if isinstance(value, list):
        return [_value("", item) for item in value]
    return redact(value) if isinstance(value, str) else value
