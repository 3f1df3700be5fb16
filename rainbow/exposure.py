"""Whether other users can read the secrets in a settings file."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rainbow.settings import find, read_document

log = logging.getLogger(__name__)

#: Names of settings that are secrets wherever they stand; keys have names of their own.
_SECRET = frozenset({"token", "secret"})
_PASSWORD = re.compile(r"://[^/@]*:[^/@]+@")


def exposed(path: str | Path | None = None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The settings file in force, when it holds a secret and other users can read it."""
    file = find(path, environ)
    if file is None or not file.stat().st_mode & 0o044 or not _holds_secret(read_document(file)):
        return None
    return file


def warn_if_exposed(path: str | Path | None = None) -> None:
    """For long-running programs: one line in the log when others can read the secrets in the settings file."""
    file = exposed(path)
    if file is not None:
        told = {"action": "settings"}
        log.warning("others can read the secrets in %s: `chmod 600 %s`", file, file, extra=told)


def _holds_secret(value: Any, name: str = "") -> bool:
    if isinstance(value, dict):
        return any(_holds_secret(item, str(key)) for key, item in value.items())
    if isinstance(value, list):
        return any(_holds_secret(item, name) for item in value)
    return isinstance(value, str) and (name in _SECRET or _PASSWORD.search(value) is not None)
