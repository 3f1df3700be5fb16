"""Tokens as people give them, one rule for all doors: settings, environment, files, options, messages and headers.

White space around a token, quotes and a leading ``Bearer`` are not part of it.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, SecretStr

from rainbow.errors import InvalidSettings
from rainbow.paths import expand

_BEARER = re.compile(r"bearer\s+", re.IGNORECASE)


def bare(text: str) -> str:
    """Return the token in `text`."""
    text = text.strip().removeprefix("\ufeff").strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1].strip()
    return _BEARER.sub("", text, count=1) if _BEARER.match(text) else text


def given(text: str) -> str:
    """Return the token in `text`, or in the file that ``@FILE`` names. Raises InvalidSettings."""
    text = bare(text)
    return read_file(text[1:]) if text.startswith("@") else text


def read_file(path: object) -> str:
    """Return the token in a file. Raises InvalidSettings."""
    file = expand(str(path))
    try:
        text = bare(file.read_text())
    except (OSError, UnicodeDecodeError) as exc:
        raise InvalidSettings(
            f"token file {file} cannot be read: {getattr(exc, 'strerror', None) or 'no text'}"
        ) from None
    if not text:
        raise InvalidSettings(f"token file {file} is empty")
    return text


def oddity(token: str) -> str:
    """Say in what way `token` does not look like one, and nothing of what is in it."""
    if not token:
        return "it is empty"
    if token.startswith("@"):
        return "it names a file, which is read on the command line and in settings only"
    if any(c.isspace() for c in token):
        return "it has white space in it"
    parts = token.count(".") + 1
    if parts != 3:
        return f"it has {parts} part{'s' if parts > 1 else ''} with dots between, not 3"
    return "its first part cannot be read"


def _setting(value: Any) -> Any:
    return given(value) if isinstance(value, str) else value


#: A token in the settings, or ``@FILE`` with one in it.
TokenText = Annotated[SecretStr, BeforeValidator(_setting)]
